"""Whatever a caller writes into a text of a call: an answer or a short sentence comes back, and no file arises."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import orjson
import pytest
from starlette.requests import Request

from dashboard.ui.api_call import ApiCall
from dashboard.web import calls_of
from fsd_core.accounts import KEY
from fsd_core.errors import FsdError
from fsd_core.roles import Person
from fsd_core.settings import Settings
from fsd_core.storage.repository import Repository
from tests.tools.plausible import add_finished

HOSTILE = (
    "a\ud800b", "a\0b", "x" * 100_000, "../../x", "..", "/tmp/x", "{{7*7}}%s{0.__class__}", "a\r\nSet-Cookie: x",
)  # fmt: skip
PLAIN: dict[Any, Any] = {str: "a", int: 1, float: 1.0, bool: False}
LONGEST_ANSWER = 4_100  # characters of a sentence


def value_of(kind: Any) -> Any:
    """A value of a type, with which a call is begun."""
    text = str(kind)
    if kind in PLAIN or "Literal" in text:
        return PLAIN[kind] if kind in PLAIN else get_args(kind)[0]
    return [] if text.startswith("list") else {} if text.startswith("dict") else None


def texts_of(endpoint: ApiCall) -> Iterator[tuple[str, Callable[[str], Any]]]:
    """The arguments of a call that take a text, each with a function that puts one in."""
    for name, kind in get_type_hints(endpoint).items():
        if name in ("return", "request"):
            continue
        if kind is str or kind == str | None:
            yield name, lambda text: text
        elif str(kind).startswith("list[str"):
            yield name, lambda text: [text]
        elif str(kind).startswith("list[dict"):
            yield name, lambda text: [{text: text}]
        elif str(kind).startswith("dict"):
            yield name, lambda text: {text: text}


def test_a_text_of_a_caller_reaches_nothing_but_a_sentence(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()  # from which a path upwards leads out
    add_finished(repository)
    admin = Request({"type": "http", "headers": [], KEY: Person("Ann", "admin")})
    files, failures, asked = set(tmp_path.rglob("*")), [], 0
    for endpoint in calls_of(repository, Settings(home=tmp_path)):
        hints, parameters = get_type_hints(endpoint), inspect.signature(endpoint).parameters
        empty = [name for name, one in parameters.items() if one.default is inspect.Parameter.empty]
        required = {name: value_of(hints[name]) for name in empty if name != "request"}
        for name, put in texts_of(endpoint):
            for text in HOSTILE:
                asked += 1
                try:
                    orjson.dumps(endpoint(**required | {name: put(text)}, request=admin))
                except FsdError as error:
                    if len(str(error)) > LONGEST_ANSWER:
                        failures.append(f"{endpoint.__name__}({name}={text[:20]!r}): {len(str(error))} characters")
                except Exception as error:
                    failures.append(f"{endpoint.__name__}({name}={text[:20]!r}): {type(error).__name__} {error}"[:200])
    assert asked > 500
    assert failures == []
    assert set(tmp_path.rglob("*")) == files


@pytest.mark.parametrize("name", ["go_on", "time_finalists"])
@pytest.mark.parametrize("id", ["/tmp/x", "../x", "none"])
def test_a_lock_is_named_by_what_the_database_returned(
    repository: Repository, tmp_path: Path, name: str, id: str
) -> None:
    from fsd_core.worker import run_actions

    with pytest.raises(FsdError):
        getattr(run_actions, name)(repository, tmp_path, id)
    assert not (tmp_path / "runs").exists()
