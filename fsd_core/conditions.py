"""What decides the speed of a run beside its setting: the conditions under which its prompts were measured.

Times that were measured under different conditions are not one figure. This module alone decides where that is so, and
in which words; pages, exports, the command line, the library and MLflow follow it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

Conditions = Mapping[str, Any]
"""by key of :data:`CONDITIONS`; what is not known is left out, and empty conditions are those of prompts of which
nothing was recorded"""

MIXED_MARK = "†"
"""stands behind a speed or a time that is not one figure"""
SHARED_DEVICE = "Computed in the app's own process or on ZeroGPU, which are shared: no speed to compare."
"""what the mark means of such times"""
UNRECORDED = "unrecorded conditions"
"""in the place of a condition's name, where those of some prompts are not known"""

EXECUTOR = "executor"
"""key of the condition that is there only where what computes is shared: then no speed is to be compared"""
SHARED_EXECUTOR = "shared executor"
"""its name"""


class Condition(NamedTuple):
    """One of the things that decide speed."""

    key: str
    """its name in what is stored"""
    name: str
    phrase: str
    """how something was measured, with ``{}`` for the value and ``{s}`` for a plural"""


CONDITIONS = (
    Condition(EXECUTOR, SHARED_EXECUTOR, "by {}"),
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
    """A condition that was not the same throughout, and its values as text."""

    name: str
    values: tuple[str, ...]


def conditions_of(provenance: Mapping[str, Any] | None) -> dict[str, Any]:
    """What decides speed, of what :func:`fsd_core.tracking.provenance.collect` has gathered."""
    known = dict(provenance or {})
    known |= known.get("versions") or {}
    return {c.key: known[c.key] for c in CONDITIONS if known.get(c.key) is not None}


def mixed(sittings: Sequence[Conditions]) -> tuple[str, ...]:
    """Why the speed over several sittings of one run is not one figure: the names of what differs between them.

    Empty where it is one figure. Sittings of which nothing was recorded count as different from all others. An executor
    that is shared makes every speed one that is not to be compared.
    """
    shared = (SHARED_EXECUTOR,) if any(EXECUTOR in one for one in sittings) else ()
    unknown = (UNRECORDED,) if len(sittings) > 1 and not all(sittings) else ()
    differing = (difference.name for difference in differences([[one] for one in sittings]))
    return tuple(dict.fromkeys((*shared, *differing, *unknown)))


def differences(runs: Sequence[Sequence[Conditions]]) -> list[Difference]:
    """What differs between several runs, each given by its sittings. What is not known differs from nothing."""
    found = []
    for condition in CONDITIONS:
        values = [{_text(condition, one) for one in sittings if condition.key in one} for sittings in runs]
        known = [frozenset(one) for one in values if one]
        if len(set(known)) > 1:
            found.append(Difference(condition.name, tuple(sorted(frozenset().union(*known)))))
    return found


def mixed_sentence(names: Sequence[str]) -> str:
    """What the mark means, from the names of :func:`mixed`; empty for none."""
    known, said = [name for name in names if name not in (UNRECORDED, SHARED_EXECUTOR)], []
    if SHARED_EXECUTOR in names:
        said.append(SHARED_DEVICE)
    if known:
        said.append(f"Measured under conditions that differ in {listed(known)}: not one figure.")
    if UNRECORDED in names:
        said.append("The conditions of some prompts were not recorded, so this may not be one figure.")
    return " ".join(said)


def sittings_sentence(sittings: Sequence[tuple[Conditions, Sequence[int]]]) -> str:
    """Which prompts were measured how, for a run whose speed is not one figure; empty for any other.

    Each sitting comes with the positions of its prompts, from 0; prompts are numbered from 1.

    >>> sittings_sentence([({"threads": 2}, range(12)), ({"threads": 1}, range(12, 24))])
    'Prompts 1 to 12 were measured with 2 threads, the other 12 with 1 thread.'
    """
    groups: dict[str, list[int]] = {}
    with_prompts = [(conditions, positions) for conditions, positions in sittings if positions]
    names = mixed([conditions for conditions, _ in with_prompts])
    for conditions, positions in with_prompts:
        groups.setdefault(phrases(conditions, names), []).extend(positions)
    if len(groups) < 2:
        return ""
    ordered = sorted((sorted(positions), how) for how, positions in groups.items())
    (first, how), *between, (rest, last) = ordered
    parts = [
        f"{which(first)} {'was' if len(first) == 1 else 'were'} measured {how}",
        *(f"{which(positions)} {how}" for positions, how in between),
        f"the other {len(rest)} {last}" if len(rest) > 1 else f"the other {last}",
    ]
    sentence = ", ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}."


def phrases(conditions: Conditions, names: Iterable[str] | None = None) -> str:
    """Conditions in words, such as ``with 2 threads and at commit 1f2e3d``; those of these names, if any are given."""
    if not conditions:
        return "under conditions that were not recorded"
    wanted = None if names is None else set(names)
    said = [
        c.phrase.format(_text(c, conditions), s="" if conditions[c.key] == 1 else "s")
        for c in CONDITIONS
        if c.key in conditions and (wanted is None or c.name in wanted)
    ]
    return listed(said) or "under recorded ones"


def which(positions: Sequence[int]) -> str:
    """Prompts by their numbers where they follow on each other, else by how many they are. Positions are in order."""
    if len(positions) == 1:
        return f"prompt {positions[0] + 1}"
    if positions[-1] - positions[0] == len(positions) - 1:
        return f"prompts {positions[0] + 1} to {positions[-1] + 1}"
    return f"{len(positions)} prompts"


def listed(words: Sequence[str]) -> str:
    """``one``, ``one and two``, ``one, two and three``."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def short_commit(revision: str) -> str:
    """The first digits of a commit, and whether files differed from it."""
    commit, changed, _ = revision.partition("+")
    return commit[:12] + (" with changes" if changed else "")


def _text(condition: Condition, conditions: Conditions) -> str:
    """A value as it is shown."""
    text = str(conditions[condition.key])
    return short_commit(text) if condition.key == "git_revision" else text
