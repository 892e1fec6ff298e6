"""``make freeze`` writes what the program shows the outside into ``tests/frozen/``: its diff is what a reviewer reads.

Commands with their help, variables, routes, calls and MCP tools with their schemas, the library with its signatures,
the columns of every export, and each kind of error with its sentences. A test compares the files with the program.
What is stored (old databases, a workspace) is held there by its hashes, which this never writes.
"""

from __future__ import annotations

import ast
import asyncio
import csv
import inspect
import io
import json
import re
import tempfile
import zipfile
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import typer.main
from fastapi.testclient import TestClient
from mcp import types
from mcp.server.lowlevel.server import request_ctx
from starlette.routing import Mount

import fsd_core
from dashboard.server.api import API_VERSION
from dashboard.ui.api_call import answer_schema
from dashboard.web import all_actions, build_app
from fsd_core.actions.action import Action, arguments_of
from fsd_core.cli.commands import application
from fsd_core.errors import FsdError
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.settings import Settings
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from tests.tools.built import built
from tests.tools.plausible import add_finished, new_repository
from tests.tools.routes import routes

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "frozen"
WIDTH = 120
_MANY = 8
"""parameters, each on a line of its own from which on"""
_ID = re.compile("[0-9a-f]{32}")
ANN, BOB = Person("Ann", "author"), Person("Bob", "admin")


def frozen() -> dict[str, str]:
    """Return the contents of each file by its name."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        repository, settings = new_repository(home), Settings(home=home, mlflow_ui=False)
        app, calls = built(lambda: build_app(repository, settings)), {it.name: it for it in all_actions()}
        files = {
            "commands.txt": "\n".join(_commands(typer.main.get_command(application()), ())),
            "variables.txt": "".join(_variables()),
            "routes.txt": "".join(_routes(app)),
            "calls.json": _json({"version": API_VERSION} | {name: _call(call) for name, call in calls.items()}),
            "tools.json": _json(_apart(_tools(app, calls))),
            "library.txt": "\n".join(_library()),
            "exports.json": _json(_exports(TestClient(app, "http://127.0.0.1"), repository)),
            "errors.txt": "\n".join(_errors()),
        }
    return {name: content.strip() + "\n" for name, content in files.items()}


def _json(value: Any, indent: str = "") -> str:
    """Return JSON with each value on a line of its own as soon as it does not fit on one."""
    short = json.dumps(value, ensure_ascii=False)
    if len(short) + len(indent) <= WIDTH or not isinstance(value, dict | list) or not value:
        return short
    deeper = indent + " "
    if isinstance(value, list):
        return "[\n" + ",\n".join(deeper + _json(one, deeper) for one in value) + f"\n{indent}]"
    named = (f"{deeper}{json.dumps(name)}: {_json(one, deeper)}" for name, one in value.items())
    return "{\n" + ",\n".join(named) + f"\n{indent}}}"


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[str]:
    """Yield the help of a command and of all below it."""
    with command.make_context(
        " ".join(("fsd-lab", *path)), [], resilient_parsing=True, terminal_width=WIDTH
    ) as context:
        yield command.get_help(context).replace(str(Path.home()), "~") + "\n"
    for name, below in getattr(command, "commands", {}).items():
        yield from _commands(below, (*path, name))


def _variables() -> Iterator[str]:
    for name, field in Settings.model_fields.items():
        default = str(field.get_default(call_default_factory=True)).replace(str(Path.home()), "~")
        yield f"FSD_{name.upper()} = {default!r}\n  {field.description}\n"


def _routes(app: Any) -> Iterator[str]:
    """Yield the addresses that are ours: Gradio is mounted."""
    own = (route for route in app.routes if not isinstance(route, Mount))
    yield from (f"{method} {path}\n" for method, path in sorted(set(routes(own))))


def _call(call: Action[..., Any]) -> dict[str, Any]:
    return {
        "about": call.about,
        "effects": call.effects._asdict(),
        "parameters": {name: "required" if it.required else repr(it.default) for name, it in call.parameters.items()},
        "arguments": arguments_of(call).model_json_schema(),
        "answer": answer_schema(call),
    }


def _apart(answer: Coroutine[Any, Any, list[Any]]) -> list[Any]:
    """Return what a coroutine does, in a thread: this one may have a loop of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, answer).result()


async def _tools(app: Any, calls: dict[str, Action[..., Any]]) -> list[Any]:
    request_ctx.set(SimpleNamespace(request=None))  # type: ignore[arg-type]  # Gradio looks for a choice of tools there
    (server,) = {id(blocks): blocks.mcp_server_obj for blocks in _blocks(app)}.values()
    listed = await server.mcp_server.request_handlers[types.ListToolsRequest](types.ListToolsRequest())
    for tool in listed.root.tools:
        assert tool.outputSchema == answer_schema(calls[tool.name]), "a tool answers as the call of its name"
    return [tool.model_dump(exclude_none=True, exclude={"meta", "outputSchema"}) for tool in listed.root.tools]


def _blocks(app: Any) -> Iterator[Any]:
    for route in app.routes:
        if blocks := getattr(getattr(route, "app", None), "blocks", None):
            yield blocks


def _library() -> Iterator[str]:
    for name in fsd_core.__all__:
        value = getattr(fsd_core, name)
        yield name + _signature(value)
        if inspect.isclass(value) and value.__module__.startswith("fsd_core"):
            for method, member in sorted(vars(value).items()):
                if not method.startswith("_"):
                    yield f"  .{method}{_signature(getattr(member, '__func__', member))}"


def _signature(value: Any) -> str:
    """Return the parameters of a function or class, or nothing for another value."""
    if not callable(value) or value is FsdError:
        return ""
    parameters = [re.sub(r" at 0x[0-9a-f]+", "", str(one)) for one in inspect.signature(value).parameters.values()]
    return f"({', '.join(parameters)})" if len(parameters) < _MANY else "(\n    " + ",\n    ".join(parameters) + ")"


def _exports(client: TestClient, repository: Repository) -> dict[str, Any]:
    """Return the columns of a table, and the keys of everything else."""
    runs = repository.experiment(add_finished(repository, limit=4)).runs
    service = ReviewService(repository)
    service.describe(ANN, "Chat", requirements=Requirements(margin=None))
    review = service.review(service.propose(ANN, "chat", [runs[3].id], [runs[0].id]))
    service.submit_review(BOB, review, "approve", "", review.use.sequence)
    query = "?runs=" + ",".join(run.id for run in runs)
    addresses = {
        "comparison.csv": f"/export/comparison.csv{query}",
        "comparison.matched.csv": f"/export/comparison.matched.csv{query}",
        "review.csv": "/export/review.csv?use=chat", "review.jsonl": "/export/review.jsonl?use=chat",
        "workspace.zip": "/export/workspace.zip",
        "uses": "/api/v1/uses", "approved": "/api/v1/uses/chat/approved", "check": "/api/v1/uses/chat/check",
    }  # fmt: skip
    return {name: _columns(name, client.get(address)) for name, address in addresses.items()}


def _columns(name: str, answer: Any) -> Any:
    assert answer.status_code == 200, (name, answer.text)
    if name.endswith(".csv"):
        return next(csv.reader(io.StringIO(answer.content.decode("utf-8-sig"))))
    if name.endswith(".jsonl"):
        return _keys([json.loads(line) for line in answer.text.splitlines()])
    if name.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(answer.content)) as packed:
            return {
                entry: _entry(packed.read(entry).decode()) for entry in sorted(packed.namelist()) if "json" in entry
            }
    return _keys(answer.json())


def _entry(text: str) -> Any:
    try:
        return _keys(json.loads(text))
    except ValueError:
        return _keys([json.loads(line) for line in text.splitlines()])


def _keys(value: Any) -> Any:
    """Return the keys of an object, and of all objects of a list as of one; nothing of any other value."""
    if isinstance(value, dict):
        return {_ID.sub("…", key): _keys(one) for key, one in sorted(value.items())}
    merged: Any = ""
    for one in map(_keys, value if isinstance(value, list) else ()):
        merged = _merged(merged, one)
    return [merged] if merged else ""


def _merged(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: _merged(one.get(key, ""), other.get(key, "")) for key in sorted(one.keys() | other.keys())}
    return one or other


def _errors() -> Iterator[str]:
    """Yield each kind of error, and the sentences that are raised of it, as templates, wherever they stand."""
    first = ROOT / "fsd_core" / "errors.py"
    rooms = ("fsd_core", "dashboard", "fsd_plugins")
    paths = (first, *sorted({path for room in rooms for path in (ROOT / room).rglob("*.py")} - {first}))
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in paths)
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.Call)]
    kinds: dict[str, str] = {}
    sentences: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.ClassDef) and {"FsdError", *kinds} & {node.name, *map(ast.unparse, node.bases)}:
            code = re.search("^    code.* = '(.*)'$", ast.unparse(node), re.MULTILINE)
            about = (ast.get_docstring(node) or "").partition("\n")[0]
            kinds[node.name], sentences[node.name] = f"{code[1] if code else ''}  {node.name}: {about}", set()
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds and node.args:
            sentences[node.func.id].add(_template(node.args[0]))
    for name, kind in kinds.items():
        yield kind
        yield from sorted(f"  {sentence}" for sentence in sentences[name])
        yield ""


def _template(node: ast.expr) -> str:
    """Return a sentence with the source of what stands in it between braces."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_template(part) for part in node.values)
    if isinstance(node, ast.Constant):
        return str(node.value)
    return f"{{{ast.unparse(node.value if isinstance(node, ast.FormattedValue) else node)}}}"


if __name__ == "__main__":
    for name, content in frozen().items():
        (FOLDER / name).write_text(content, encoding="utf-8")
