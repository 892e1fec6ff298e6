"""The conditions under which a run's prompts were measured: they decide its speed besides the setting.

Times measured under different conditions are not one figure. This module alone decides when that is so and how to say
it. Pages, exports, the command line, the library and MLflow follow it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

Conditions = Mapping[str, Any]
"""values by key of :data:`CONDITIONS`; unknown ones are left out, and unrecorded conditions are empty"""

MIXED_MARK = "†"
"""follows a speed or a time that is not one figure"""
SHARED_DEVICE = "Computed in the app's own process or on ZeroGPU, which are shared: no speed to compare."
"""explains the mark for times from a shared device"""
UNRECORDED = "unrecorded conditions"
"""replaces a condition's name if the conditions of some prompts are unknown"""

MOST_TAKEN = 0.2
"""largest share of the decoding time that other programs may take before speeds are doubted"""

EXECUTOR = "executor"
"""key of a condition that exists only if the device is shared, so that no speed can be compared"""
SHARED_EXECUTOR = "shared executor"
"""its name"""
WORKER = "worker"
"""key of a condition that exists only where several workers share runs: the name of one, and so of its machine"""


class Condition(NamedTuple):
    """One thing that decides speed."""

    key: str
    """its key in stored data"""
    name: str
    phrase: str
    """how something was measured, with ``{}`` for the value and ``{s}`` for a plural"""


CONDITIONS = (
    Condition(EXECUTOR, SHARED_EXECUTOR, "by {}"),
    Condition(WORKER, "worker", "by the worker {}"),
    Condition("engine", "engine", "on {}"),
    Condition("device", "device", "on {}"),
    Condition("cpu", "processor", "on {}"),
    Condition("cpu_count", "number of processors", "on {} processor{s}"),
    Condition("gpu", "GPU", "on {}"),
    Condition("dtype", "dtype", "in {}"),
    Condition("threads", "number of threads", "with {} thread{s}"),
    Condition("python", "version of Python", "with Python {}"),
    Condition("torch", "version of torch", "with torch {}"),
    Condition("transformers", "version of transformers", "with transformers {}"),
    Condition("fsd-lab", "version of FSD Lab", "with FSD Lab {}"),
    Condition("git_revision", "commit", "at commit {}"),
)


class Difference(NamedTuple):
    """A condition that varied, with its values as text."""

    name: str
    values: tuple[str, ...]


def conditions_of(provenance: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the conditions in what :func:`fsd_core.tracking.provenance.collect` has gathered."""
    values = dict(provenance or {})
    values |= values.get("versions") or {}
    return {c.key: values[c.key] for c in CONDITIONS if values.get(c.key) is not None}


def mixed(sessions: Sequence[Conditions]) -> tuple[str, ...]:
    """Return the names of the differences between a run's measurement sessions; empty if its speed is one figure.

    A session without recorded conditions counts as different from all others. A shared executor is always named,
    because no speed measured with it can be compared.
    """
    shared = (SHARED_EXECUTOR,) if any(EXECUTOR in conditions for conditions in sessions) else ()
    unknown = (UNRECORDED,) if len(sessions) > 1 and not all(sessions) else ()
    differing = (difference.name for difference in differences([[conditions] for conditions in sessions]))
    return tuple(dict.fromkeys((*shared, *differing, *unknown)))


def differences(runs: Sequence[Sequence[Conditions]]) -> list[Difference]:
    """Return the differences between runs, each given by its measurement sessions. Unknown values never differ."""
    result = []
    for condition in CONDITIONS:
        values = [{_text(condition, item) for item in sessions if condition.key in item} for sessions in runs]
        recorded = [frozenset(item) for item in values if item]
        if len(set(recorded)) > 1:
            result.append(Difference(condition.name, tuple(sorted(frozenset().union(*recorded)))))
    return result


def taken(times: Iterable[tuple[float, float | None]]) -> float | None:
    """Return the share of the decoding time in which other programs had the processor.

    Each text comes with its wall seconds and the processor seconds of this process meanwhile, ``None`` where another
    device computes or nothing was recorded. ``None`` if no text has them. Several threads hide some of it, so it is at
    least this share.
    """
    known = [(seconds, cpu) for seconds, cpu in times if cpu is not None and seconds > 0]
    total = sum(seconds for seconds, _ in known)
    return sum(max(0.0, seconds - cpu) for seconds, cpu in known) / total if total else None


def taken_sentence(share: float | None) -> str:
    """Return how much of the time was taken, with what to do if it is much; empty if that is unknown."""
    if share is None:
        return ""
    sentence = f"Other programs took {100 * share:.0f} % of the decoding time"
    return f"{sentence}." if share <= MOST_TAKEN else f"{sentence}: time it again when the machine is quiet."


def mixed_sentence(names: Sequence[str]) -> str:
    """Return the meaning of the mark, from the names of :func:`mixed`; empty for none."""
    varying, sentences = [name for name in names if name not in (UNRECORDED, SHARED_EXECUTOR)], []
    if SHARED_EXECUTOR in names:
        sentences.append(SHARED_DEVICE)
    if varying:
        sentences.append(f"Measured under conditions that differ in {listed(varying)}: not one figure.")
    if UNRECORDED in names:
        sentences.append("The conditions of some prompts were not recorded, so this may not be one figure.")
    return " ".join(sentences)


def sessions_sentence(sessions: Sequence[tuple[Conditions, Sequence[int]]]) -> str:
    """Return which prompts were measured how, for a run whose speed is not one figure; empty for any other.

    Each measurement session comes with the positions of its prompts, from 0. The text numbers prompts from 1.

    >>> sessions_sentence([({"threads": 2}, range(12)), ({"threads": 1}, range(12, 24))])
    'Prompts 1 to 12 were measured with 2 threads, the other 12 with 1 thread.'
    """
    groups: dict[str, list[int]] = {}
    with_prompts = [(conditions, positions) for conditions, positions in sessions if positions]
    names = mixed([conditions for conditions, _ in with_prompts])
    for conditions, positions in with_prompts:
        groups.setdefault(phrases(conditions, names), []).extend(positions)
    if len(groups) < 2:
        return ""
    ordered = sorted((sorted(positions), phrase) for phrase, positions in groups.items())
    (first, phrase), *between, (remaining, last_phrase) = ordered
    parts = [
        f"{which(first)} {'was' if len(first) == 1 else 'were'} measured {phrase}",
        *(f"{which(positions)} {phrase}" for positions, phrase in between),
        f"the other {len(remaining)} {last_phrase}" if len(remaining) > 1 else f"the other {last_phrase}",
    ]
    sentence = ", ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}."


def phrases(conditions: Conditions, names: Iterable[str] | None = None) -> str:
    """Return conditions as text, such as ``with 2 threads and at commit 1f2e3d``; only those in ``names`` if given."""
    if not conditions:
        return "under conditions that were not recorded"
    wanted = None if names is None else set(names)
    texts = [
        c.phrase.format(_text(c, conditions), s="" if conditions[c.key] == 1 else "s")
        for c in CONDITIONS
        if c.key in conditions and (wanted is None or c.name in wanted)
    ]
    return listed(texts) or "under recorded ones"


def which(positions: Sequence[int]) -> str:
    """Return prompts by their numbers if they are consecutive, else their count. Positions are sorted."""
    if len(positions) == 1:
        return f"prompt {positions[0] + 1}"
    if positions[-1] - positions[0] == len(positions) - 1:
        return f"prompts {positions[0] + 1} to {positions[-1] + 1}"
    return f"{len(positions)} prompts"


def listed(items: Sequence[str]) -> str:
    """Join items: ``one``, ``one and two``, ``one, two and three``."""
    return " and ".join(filter(None, (", ".join(items[:-1]), *items[-1:])))


def short_commit(revision: str) -> str:
    """Return the first 12 digits of a commit, and whether files differed from it."""
    commit, changed, _ = revision.partition("+")
    return commit[:12] + (" with changes" if changed else "")


def _text(condition: Condition, conditions: Conditions) -> str:
    """Return a condition's value as displayed."""
    text = str(conditions[condition.key])
    return short_commit(text) if condition.key == "git_revision" else text
