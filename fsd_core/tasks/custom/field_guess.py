"""Guesses which fields of a file hold prompt and reference, and which scorer fits. A person sees it before it holds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from fsd_core.tasks.custom.file_header import header_of
from fsd_core.tasks.custom.json_rows import json_rows
from fsd_core.tasks.custom.problems import Findings
from fsd_core.tasks.custom.scorers import get_scorer
from fsd_core.tasks.custom.shapes import QUESTION_FIELDS, USUAL_FIELDS, FieldNames, without_nulls
from fsd_core.tasks.custom.unpacking import unpacked

PROMPT_NAMES = ("question", "instruction", "query", "input", "problem", "request", "user", "text", "frage", "aufgabe")
REFERENCE_NAMES = (
    "answer", "reference_answer", "solution", "label", "target", "expected", "gold", "response", "completion", "output",
    "antwort", "lösung",
)  # fmt: skip
_GUESSED = ("number", "choice")
"""scorers whose references are told by their form"""
_SHORT = 60
"""characters of a reference that an answer may contain as it is"""


class Guess(NamedTuple):
    """A guess of the meaning of a file's fields."""

    names: FieldNames = USUAL_FIELDS
    scorer: str | None = None
    """``None`` if the file names it or needs none"""
    sentence: str = ""
    """for the person whose file it is; empty if nothing could be guessed"""


def guess(data: bytes) -> Guess:
    """Return the probable meaning of a file's fields. ``check`` reports the problems of the file."""
    findings = Findings()
    rows = [without_nulls(row) for _, row in json_rows(unpacked(data, findings), findings)]
    names_scorer = bool(rows) and header_of(rows[0], USUAL_FIELDS) is not None
    rows = rows[1:] if names_scorer else rows
    if not rows:
        return Guess()
    shared = [name for name in rows[0] if all(name in row for row in rows)]
    usual_prompt = next((name for name in QUESTION_FIELDS if any(name in row for row in rows)), "")
    prompt = usual_prompt or _prompt_field(rows, shared)
    if not prompt:
        return Guess()
    usual_reference = "reference" if any("reference" in row for row in rows) else ""
    reference = usual_reference or _named(REFERENCE_NAMES, [name for name in shared if name != prompt])
    scorer, why = (None, "") if names_scorer or not reference else _scorer([row.get(reference) for row in rows])
    parts = [f"Prompt: {prompt[:40]}."]
    parts += [f"Reference: {reference[:40]}."] if reference else ["No reference."]
    parts += [f"Scorer: {get_scorer(scorer).title}, since {why}."] if scorer else []
    names = FieldNames("" if usual_prompt else prompt, "" if usual_reference else reference)
    return Guess(names, scorer, " ".join(parts))


def _prompt_field(rows: Sequence[dict[str, Any]], shared: Sequence[str]) -> str:
    """Return the field with a name that means a prompt, or else the one with the longest texts."""
    texts = [name for name in shared if all(isinstance(row[name], str) for row in rows)]
    rest = [name for name in texts if name.lower() not in (*REFERENCE_NAMES, "reference", "id")]
    return _named(PROMPT_NAMES, texts) or max(rest, key=lambda name: sum(len(row[name]) for row in rows), default="")


def _named(names: Sequence[str], fields: Collection[str]) -> str:
    """Return the first of the fields, in the order of the names, whatever their capitals."""
    by_name = {field.lower(): field for field in reversed([*fields])}
    return next((by_name[name] for name in names if name in by_name), "")


def _scorer(references: Sequence[Any]) -> tuple[str, str]:
    """Return the scorer that fits all references, and why."""
    texts = [f"{reference}".strip() for reference in references if reference is not None]
    for name in _GUESSED:
        if texts and all(_fits(get_scorer(name).read, text) for text in texts):
            return name, f"every reference is a {'number' if name == 'number' else 'letter'}"
    if texts and max(map(len, texts)) <= _SHORT and all(texts):
        return "contains", "every reference is short"
    return "none", "the references are long texts"


def _fits(read: Callable[[str], str], reference: str) -> bool:
    try:
        read(reference)
    except ValueError:
        return False
    return True
