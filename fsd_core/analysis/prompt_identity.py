"""Whether runs were asked the same: a prompt is the token ids that were fed, not the text that a person reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsd_core.storage.records import Prompts, RunView


def rendered_differently(runs: Sequence[RunView], prompts: Prompts) -> list[int]:
    """Return the positions at which runs of one pair and task were fed different token ids.

    Another template, its arguments, its date or another tokenizer does that. Prompts whose hashes were not recorded are
    left out, and so are later turns of conversations: these follow what each run wrote before.
    """
    hashes: dict[tuple[str, str, int], set[str]] = {}
    for run in runs:
        for position, counts in prompts.get(run.id, {}).items():
            if counts.prompt_hash is not None and not counts.turn:
                hashes.setdefault((run.pair, run.task, position), set()).add(counts.prompt_hash)
    return sorted({position for (_, _, position), seen in hashes.items() if len(seen) > 1})


def ended_by_context(runs: Sequence[RunView], prompts: Prompts) -> dict[str, int]:
    """Return by run how many answers the context ended, of the prompts that all runs have done.

    Empty if it ended equally many of each: then no run had more room than another.
    """
    done = [prompts[run.id] for run in runs if prompts.get(run.id)]
    shared = set.intersection(*(set(counts) for counts in done)) if done else set()
    ended = {
        run.id: sum(prompts[run.id][position].stop_reason == "context" for position in shared)
        for run in runs
        if prompts.get(run.id)
    }
    return ended if len(set(ended.values())) > 1 else {}
