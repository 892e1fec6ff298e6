"""The tables of the methods name every rule, as the one list of rules has it."""

from __future__ import annotations

import re
from pathlib import Path

from fsd_core.config import DecodingConfig
from fsd_core.rules import RULES, VERIFIERS

METHODS = "\n".join(
    page.read_text(encoding="utf-8") for page in sorted((Path(__file__).parents[2] / "docs").glob("methods-*.md"))
)


def table(heading: str) -> list[list[str]]:
    """The rows of the first table under a heading, without its head; a row is its cells."""
    section = METHODS.split(f"\n## {heading}\n", 1)[1]
    lines = section[section.index("\n|") + 1 :].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def kinds(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_rule_has_its_row_with_its_name_its_knob_and_what_it_guarantees() -> None:
    default = DecodingConfig().acceptance.kind
    written = [
        (first, name, knob, output) for first, name, _, knob, output in table("What is lossless and what is not")
    ]
    expected = [
        (
            f"`{kind}`" + (" (default)" if kind == default else ""),
            rule.title,
            f"`{rule.knob.field}`" if rule.knob else "–",
            "**lossless**" if rule.lossless else "lossy",
        )
        for kind, rule in RULES.items()
    ]
    assert [(first, name, knob, re.split(r"[:;, ]", output)[0]) for first, name, knob, output in written] == expected
    for (kind, rule), (*_, output) in zip(RULES.items(), written, strict=True):
        off = f"lossless with `--{rule.knob.field.replace('_', '-')} off`" if rule.knob else "`--"
        assert (off in output) == rule.can_be_off(), kind


def test_the_formulas_leave_no_rule_out() -> None:
    rows = table("Rules")
    named = {kind: row for row in reversed(rows) for kind in kinds(row[0])}  # its own row, before that of trees
    assert set(named) == set(RULES)
    for kind, rule in RULES.items():
        says = named[kind][-1]
        allowed = ("only with T off", "only with the knob off") if rule.can_be_off() else ("no",)
        assert says in (("yes",) if rule.lossless else allowed), kind


def test_every_verifier_of_several_drafts_has_its_formula() -> None:
    drafts = {kind: row[1] for row in table("Several drafts per position") for kind in kinds(row[0])}
    assert set(drafts) == set(VERIFIERS)
    for kind, rule in VERIFIERS.items():
        assert drafts[kind].partition(",")[0].split()[0] == rule.sampling.split("_")[0], kind
