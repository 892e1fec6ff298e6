"""The settings that a trace is replayed with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsd_core.config import DecodingConfig
from fsd_core.config.building import Named, in_python
from fsd_core.config.sweeps import methods
from fsd_core.replays.costs import replayable
from fsd_core.replays.replay_trace import TraceInfo

_SHARED = ("temperature", "top_k", "top_p", "min_p", "max_new_tokens", "drafter", "topology")
"""options that the trace has decided"""


def settings_of(info: TraceInfo, chosen: Mapping[str, Any], named: Named = in_python) -> list[DecodingConfig]:
    """Every rule with every value of its knob at every draft length, as far as ``chosen`` names no others.

    ``chosen``: options of rules by name, ``acceptance`` and ``draft_length`` with several values, knobs as ``sweep``
    takes them. Rules that draft greedily are left out where the trace holds sampled drafts. Raises as
    :func:`fsd_core.config.sweeps.methods` does.
    """
    rules = [kind for kind, rule in replayable().items() if info.sampling.greedy or not rule.greedy_draft]
    usual = {"acceptance": rules, "draft_length": list(range(1, info.draft_length + 1))}
    given = {name: value for name, value in chosen.items() if value not in (None, [], ())}
    sampling = info.sampling.model_dump()
    return methods(usual | given | sampling | {"max_new_tokens": info.max_new_tokens}, named)
