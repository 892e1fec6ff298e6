"""Each kind of error that a user sees has a code of its own, and is raised."""

from __future__ import annotations

import ast
import re
from typing import Literal

import pytest
from pydantic import Field

from fsd_core import errors
from fsd_core.config import DecodingConfig
from fsd_core.errors import FsdError, IncompatibleOptions, InvalidSetting, Malformed, OutOfRange, UnknownChoice
from fsd_core.frozen import Frozen
from tools.freeze import FOLDER, ROOT


class Limited(Frozen):
    limit: int = Field(default=1, ge=1)
    goal: Literal["fast", "small"] = "fast"


def codes() -> dict[str, str | None]:
    """Return the code that each kind declares itself, by the name of its class, wherever it is defined."""
    kinds = {name: vars(kind).get("code") for name, kind in vars(errors).items() if is_kind(kind)}
    for path in sorted(
        (*ROOT.glob("fsd_core/**/*.py"), *ROOT.glob("dashboard/**/*.py"), *ROOT.glob("fsd_plugins/**/*.py"))
    ):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and kinds.keys() & set(map(ast.unparse, node.bases)):
                declared = re.search("^    code.* = '(.*)'$", ast.unparse(node), re.MULTILINE)
                kinds[node.name] = declared[1] if declared else None
    return kinds


def is_kind(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, FsdError)


def test_each_kind_declares_a_code_of_its_own() -> None:
    found = codes()
    assert [name for name, code in found.items() if not re.fullmatch("[a-z]+(-[a-z]+)*", code or "")] == []
    assert len(set(found.values())) == len(found)


def test_each_kind_is_raised_and_shown_with_its_code() -> None:
    kinds = (FOLDER / "errors.txt").read_text(encoding="utf-8").split("\n\n")
    shown = [re.fullmatch(r"(\S+)  (\w+): \S.*\.(\n  .+)+", kind.rstrip()) for kind in kinds]
    assert {kind[2]: kind[1] for kind in shown if kind} == codes()


@pytest.mark.parametrize(
    ("values", "kind"),
    [({"limit": 0}, OutOfRange), ({"limit": "x"}, Malformed), ({"goal": "x"}, UnknownChoice), ({"x": 1}, Malformed)],
)
def test_a_value_is_refused_as_the_kind_that_fits(values: dict[str, object], kind: type[InvalidSetting]) -> None:
    with pytest.raises(kind):
        Limited.checked(**values)


def test_the_kind_of_a_refusal_reaches_who_built_the_value() -> None:
    with pytest.raises(IncompatibleOptions, match="judges drafted tokens"):
        DecodingConfig.checked(drafter=None)
