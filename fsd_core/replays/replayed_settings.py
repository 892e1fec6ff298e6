"""Settings with which a trace is replayed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsd_core.config import DecodingConfig
from fsd_core.config.building import Named, in_python
from fsd_core.config.flat import options_of
from fsd_core.config.options import SHARED_OPTIONS
from fsd_core.config.sweeps import methods
from fsd_core.replays.costs import replayable
from fsd_core.replays.replay_trace import TraceInfo


def settings_of(info: TraceInfo, options: Mapping[str, Any], named: Named = in_python) -> list[DecodingConfig]:
    """Return every rule with every knob value at every draft length, unless ``options`` names others.

    ``options``: options of rules by name. ``acceptance`` and ``draft_length`` may have several values, and knobs are as
    in ``sweep``. Rules that draft greedily are left out if the trace holds sampled drafts. Raises as
    :func:`fsd_core.config.sweeps.methods` does.
    """
    rules = [kind for kind, rule in replayable().items() if info.sampling.greedy or not rule.greedy_draft]
    defaults = {"acceptance": rules, "draft_length": list(range(1, info.draft_length + 1))}
    given = {name: value for name, value in options.items() if value not in (None, [], ())}
    asked = DecodingConfig(sampling=info.sampling, template=info.template, max_new_tokens=info.max_new_tokens)
    shared = {name: value for name, value in options_of(asked).items() if name in SHARED_OPTIONS}
    return methods(defaults | given | shared, named)
