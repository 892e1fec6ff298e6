"""What vLLM's workers answer beside their own methods: the rule, changed while the server runs.

``--worker-extension-cls fsd_lab_vllm.worker.RuleExtension`` adds it, and ``LLM.collective_rpc`` or, on a development
server, ``POST /collective_rpc`` calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsd_lab_vllm import active_rule


class RuleExtension:
    """Methods that vLLM adds to each worker."""

    def fsd_lab_rule(
        self, value: str | Mapping[str, Any] | None = None, knob: str | float | None = None
    ) -> dict[str, Any]:
        """Put a rule in force and return it with every field; without a value, return the one in force.

        ``value``: ``off``, a kind, or an object with ``kind`` and fields. ``knob``: value of the rule's knob, or
        ``off``. Counts begin at 0. Texts that are being written go on under the new rule; for a comparison, change it
        between requests. Raises ``RuntimeError`` with a sentence, and leaves the rule as it was.
        """
        return active_rule.described() if value is None else active_rule.change(value, knob)

    def fsd_lab_counts(self) -> dict[str, int]:
        """Return ``rounds``, ``drafted`` and ``accepted`` tokens since the rule was put in force."""
        return active_rule.counts()
