"""Near-duplicates in a task: prompts of one template, or the same question in nearly the same words.

They depend on each other: a setting that fails one of them often fails all. Prompts count as alike if at least half of
their runs of three words are shared (Jaccard similarity, estimated by MinHash: Broder 1997).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import cast

from fsd_core.formatting import count
from fsd_core.tasks.custom.lines import TaskLine
from fsd_core.tasks.custom.reading import CheckedFile

_ALIKE = 0.5
_HASHES = 128
_WORDS = 3
_LONGEST = 4_000
"""words of a prompt that are compared"""
_WORD = re.compile(r"\w+")


def families(lines: tuple[TaskLine, ...]) -> list[list[int]]:
    """Return the lines that are alike, directly or through others, by index. Lines with a group are left out."""
    from datasketch import MinHash, MinHashLSH  # most tasks are read again and not compared

    index, parent = MinHashLSH(threshold=_ALIKE, num_perm=_HASHES), list(range(len(lines)))
    sketches: dict[int, MinHash] = {}

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = i = parent[parent[i]]
        return i

    for i, line in enumerate(lines):
        if line.group or not (pieces := _pieces(line)):
            continue
        sketches[i] = sketch = MinHash(num_perm=_HASHES, seed=1)
        sketch.update_batch(pieces)
        for other in cast("list[int]", index.query(sketch)):
            if sketches[other].jaccard(sketch) >= _ALIKE:
                parent[root(i)] = root(other)
        index.insert(i, sketch)
    found: dict[int, list[int]] = {}
    for i in sketches:
        found.setdefault(root(i), []).append(i)
    return sorted(sorted(family) for family in found.values() if len(family) > 1)


def grouped(checked: CheckedFile) -> CheckedFile:
    """Return the file with a group for each family of near-duplicates, named by its first line."""
    lines, groups = list(checked.lines), {line.group for line in checked.lines}
    alike = families(checked.lines)
    for family in alike:
        name = f"like line {family[0] + 1}"
        while name in groups:
            name += "'"
        for i in family:
            lines[i] = replace(lines[i], group=name)
    sentence = f"{_counted(alike)}: each family is a group, which counts once." if alike else ""
    return replace(checked, lines=tuple(lines), notes=tuple(filter(None, (*checked.notes, sentence))))


def noted(checked: CheckedFile, remedy: str) -> CheckedFile:
    """Return the file with a note on near-duplicates, if it has any. ``remedy``: how to make them groups."""
    alike = families(checked.lines)
    if not alike:
        return checked
    first, second = (checked.lines[i] for i in alike[0][:2])
    examples = " and ".join(repr(_text(line)[:60]) for line in (first, second))
    note = (
        f"{_counted(alike)}, such as {examples}. They depend on each other, so intervals would be too narrow: give the "
        f"lines of a family one group, {remedy}."
    )
    return replace(checked, notes=(*checked.notes, note))


def _counted(alike: list[list[int]]) -> str:
    prompts, of = sum(map(len, alike)), len(alike)
    return f"{count(prompts, 'prompt')} are near-duplicates, in {of:,} {'family' if of == 1 else 'families'}"


def _pieces(line: TaskLine) -> list[bytes]:
    words = _WORD.findall(_text(line).lower())[:_LONGEST]
    if not words:
        return []
    runs = range(max(1, len(words) - _WORDS + 1))
    return list({" ".join(words[i : i + _WORDS]).encode(errors="replace") for i in runs})


def _text(line: TaskLine) -> str:
    """Return what the user says; what the messages before it and the system say is often the same for all."""
    if isinstance(line.model_input, str):
        return line.model_input
    return next((message[1] for message in reversed(line.model_input) if message[0] == "user"), "")
