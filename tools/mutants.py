"""Which small faults in the product does a set of tests not see?

``draw`` takes a sample of mutants, ``map`` stores which test executes which line, ``run`` tries each mutant, in a clone
of this checkout, on the tests that execute its line, and ``tell`` prints which were not killed. ``map`` needs coverage.
What a test executes in other processes is not seen, nor is a mutant within an f-string, a message or an annotation.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import ctypes
import faulthandler
import gc
import hashlib
import importlib
import json
import os
import py_compile
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("fsd_core/decoding", "fsd_core/statistics", "fsd_core/review", "fsd_core/calibration",
         "fsd_core/storage/jobs.py")  # fmt: skip
TESTS = ("tests/unit", "tests/contract", "tests/integration")
GATE = "not long and not wide"
BUDGET = 25  # seconds of tests in a stage
MEMORY = 12 << 30  # bytes of addresses: a mutant may fill a list for ever
PRELOADED = """torch transformers transformers.models.llama.modeling_llama gradio sqlalchemy.orm alembic.command psycopg
plotly.graph_objects pandas scipy.stats scipy.optimize mlflow mlflow.store.tracking.sqlalchemy_store peft datasets typer
matplotlib.pyplot fastapi.testclient pydantic_settings argon2 pyarrow graphql mcp httpx jinja2 rich.console re2"""
OTHER: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip
EXACT = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
"""comparisons of which the other is the negation"""
Say = Callable[..., None]
UNCHANGED = (ast.JoinedStr, ast.Raise, ast.Assert, ast.pattern)
NAMED = ("annotation", "returns", "decorator_list", "bases")


def mutants_of(file: str) -> Iterator[dict[str, Any]]:
    """Yield the mutants of a source file."""
    source = (ROOT / file).read_bytes()
    starts = _starts(source)

    def walk(node: ast.AST, lines: list[int] | None, called: bool) -> Iterator[dict[str, Any]]:
        if isinstance(node, UNCHANGED) or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            return
        if isinstance(node, ast.stmt):
            lines = None if hasattr(node, "body") else [node.lineno, node.end_lineno or node.lineno]
        for number, (kind, target, after) in enumerate(_changes(node, called)):
            place = [target.lineno, target.col_offset, target.end_lineno, target.end_col_offset]
            start, end = starts[place[0] - 1] + place[1], starts[place[2] - 1] + place[3]
            name = hashlib.sha1(f"{file} {place} {kind} {number}".encode()).hexdigest()[:12]
            yield {
                "id": name, "file": file, "line": place[0], "column": place[1], "kind": kind,
                "before": source[start:end].decode(), "after": after, "start": start, "end": end,
                "lines": lines or [place[0], place[2]], "called": called,
            }  # fmt: skip
        skipped: list[Any] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):  # types are no arithmetic
            skipped = {"cast": node.args[:1], "isinstance": node.args[1:]}.get(node.func.id, [])
        for field, value in ast.iter_fields(node):
            if field in NAMED or (field == "keywords" and isinstance(node, ast.ClassDef)):
                continue
            inside = called or (field == "body" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and child not in skipped:
                    yield from walk(child, lines, inside)

    yield from walk(ast.parse(source), None, False)


def _starts(source: bytes) -> list[int]:
    """Return where each line begins."""
    return [0] + [found.end() for found in re.finditer(b"\n", source)]


def _changes(node: ast.AST, called: bool) -> Iterator[tuple[str, Any, str]]:
    """Yield the kind of each change, what is replaced, and by what."""
    match node:
        case ast.Compare():
            for i, op in enumerate(node.ops):
                yield "comparison", node, _written(node, ops=[*node.ops[:i], OTHER[type(op)](), *node.ops[i + 1 :]])
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OTHER:
            text = any(isinstance(one, ast.JoinedStr) or _is_text(one) for one in (left, right))
            if not text and (called or not isinstance(op, ast.BitOr)):
                yield "arithmetic", node, _written(node, op=OTHER[type(op)]())
        case ast.AugAssign(op=op, value=value) if type(op) in OTHER and not _is_text(value):
            yield "arithmetic", node, _written(node, op=OTHER[type(op)]())[1:-1]
        case ast.BoolOp(op=op):
            yield "and or", node, _written(node, op=OTHER[type(op)]())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not", node, _written(operand)
        case ast.Constant(value=bool(value)):
            yield "truth", node, str(not value)
        case ast.Constant(value=int(value)):
            yield "integer", node, str(value + 1)
        case ast.Constant(value=float(value)) if value:
            yield "float", node, repr(value * 1.5)
        case ast.If(test=test) | ast.IfExp(test=test):
            exact = isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], EXACT)
            if not exact and not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
                yield "condition", test, f"(not {_written(test)})"
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield "return", value, "None"
        case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())):
            yield "call", node, "pass"
        case ast.Break():
            yield "break", node, "continue"
        case ast.Continue():
            yield "continue", node, "break"


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _written(node: ast.AST, **changed: Any) -> str:
    other = copy.copy(node)
    for name, value in changed.items():
        setattr(other, name, value)
    return f"({ast.unparse(other)})"


def draw(count: int, seed: int) -> None:
    """Print a sample, in the order of the draw."""
    files = (path for room in ROOMS for path in [ROOT / room, *(ROOT / room).rglob("*.py")] if path.is_file())
    every = [one for path in sorted(files) for one in mutants_of(path.relative_to(ROOT).as_posix())]
    for one in random.Random(seed).sample(every, min(count, len(every))):
        print(json.dumps(one, ensure_ascii=False))


class _Plugin:
    """Stands in for the plug-in that repeats tests: a mutant is killed at once."""

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", "flaky(reruns): may be repeated")


class _Mapping(_Plugin):
    """Tells coverage which test, or which fixture of several tests, runs; notes how each test ended."""

    def __init__(self, coverage: Any) -> None:
        self.coverage, self.seconds = coverage, defaultdict[str, float](float)
        self.outcomes, self.users = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
        self.contexts = [""]

    def _within(self, context: str) -> Iterator[None]:
        self.contexts.append(context)
        self.coverage.switch_context(context)
        try:
            return (yield)
        finally:
            self.contexts.pop()
            self.coverage.switch_context(self.contexts[-1])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Function) -> Iterator[None]:
        self.users[item.nodeid].add(item.nodeid)
        for name in item.fixturenames:
            for scope in ("session", str(item.path)):
                self.users[f"{name} of {scope}"].add(item.nodeid)
        return (yield from self._within(item.nodeid))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        scope = "session" if fixturedef.scope in ("session", "package") else str(request.path)
        return (yield from self._within(f"{fixturedef.argname} of {scope}"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        self.outcomes[report.nodeid].add(report.outcome)


class _Chosen(_Plugin):
    """Notes which tests are selected."""

    nodes: list[str]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.nodes = [item.nodeid for item in session.items]


class _Killing(_Plugin):
    """Runs tests file by file, the quickest first, until enough files have killed; says what it does as it goes on."""

    def __init__(self, stages: list[list[tuple[str, dict[str, float]]]], enough: int, say: Say) -> None:
        self.stages, self.enough, self.say = stages, enough, say
        self.seconds = {node: seconds for files in stages for _, tests in files for node, seconds in tests.items()}
        self.killers: set[str] = set()
        self.run = self.left_out = 0

    def pytest_collection(self, session: pytest.Session) -> bool:
        session.items = []  # each file is collected when it has its turn
        return True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._killed(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._killed(report.nodeid)

    def _killed(self, node: str) -> None:
        if node.split("::")[0] not in self.killers:
            self.killers.add(node.split("::")[0])
            self.say(killed=node)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        planned = self._planned(session)
        item = next(planned, None)
        while item is not None and len(self.killers) < self.enough:
            after = next(planned, None)
            self.say(started=item.nodeid)
            self.run += 1
            limit = 10 + 10 * self.seconds[item.nodeid]
            item.add_marker(pytest.mark.timeout(limit), append=False)
            faulthandler.dump_traceback_later(
                limit + 30,
                exit=True,
                file=sys.__stderr__,  # pyrefly: ignore
            )  # what does not come back to Python
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if after is not None and after.path == item.path and item.nodeid.split("::")[0] in self.killers:
                after = next(planned, None)
                session._setupstate.teardown_exact(after)
            item = after
        faulthandler.cancel_dump_traceback_later()
        self.say(run=self.run, left_out=self.left_out)
        return True

    def _planned(self, session: pytest.Session) -> Iterator[pytest.Item]:
        for files in self.stages:
            end = time.monotonic() + BUDGET
            for file, tests in files:
                if time.monotonic() > end:
                    self.left_out += len(tests)
                    continue
                items = [] if file in self.killers else session.perform_collect([file])
                for item in sorted((one for one in items if one.nodeid in tests), key=lambda one: tests[one.nodeid]):
                    if file in self.killers:
                        break
                    if time.monotonic() + tests[item.nodeid] > end:
                        self.left_out += 1
                        continue
                    yield item


def _preload() -> None:
    """Import what is large and of others."""
    os.environ |= {"GRADIO_ANALYTICS_ENABLED": "False", "GRADIO_ANALYTICS_MAX_EVENTS": "1"}
    os.environ |= {"GRADIO_ANALYTICS_CACHE_FREQUENCY": str(10**12)}
    finders = list(sys.meta_path)
    importlib.import_module("dashboard")  # Gradio writes no stubs then
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in PRELOADED.split():
            importlib.import_module(name)
    sys.meta_path[:] = [one for one in sys.meta_path if one in finders or type(one).__module__ != "dashboard"]
    for name in [name for name in sys.modules if name.split(".")[0] in ("dashboard", "fsd_core", "tools", "tests")]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()


def _clone(folder: Path) -> None:
    """Bring a clone to the commit of this checkout."""
    if not folder.exists():
        subprocess.run(["git", "clone", "-q", "--shared", ROOT, folder], check=True)
    subprocess.run(["git", "-C", folder, "fetch", "-q", ROOT, "HEAD"], check=True)
    subprocess.run(["git", "-C", folder, "checkout", "-q", "--force", "--detach", "FETCH_HEAD"], check=True)


def _log(folder: Path) -> str:
    """Return where the output of the last tests in a folder is."""
    return f"{tempfile.gettempdir()}/mutants-{folder.name}.log"


def _forked(folder: Path, call: Callable[[list[str], Say], None], seconds: float) -> list[dict[str, Any]]:
    """Return what a call says in a fork that is in the folder; it is given the arguments of every pytest."""
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: processes that tests leave are found
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="mutants-", dir=memory if memory.is_dir() else None) as name:
        said = Path(name) / "said"
        said.touch()
        child = os.fork()
        if not child:
            try:
                os.setsid()
                output = os.open(_log(folder), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                for stream in (1, 2):
                    os.dup2(output, stream)
                os.chdir(folder)
                sys.path[:] = [str(folder), *(one for one in sys.path if Path(one or ".").resolve() != ROOT)]
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
                sys.modules["__main__"] = ModuleType("__main__")  # processes that tests start do not import this
                (Path(name) / "tmp").mkdir()
                os.environ["TMPDIR"] = tempfile.tempdir = f"{name}/tmp"
                with said.open("a", buffering=1) as file:
                    options = "-q --tb short --assert plain -p no:xdist -p no:cacheprovider -p no:rerunfailures"
                    call(
                        [*options.split(), "-p", "no:faulthandler", "--basetemp", f"{name}/base"],
                        lambda **what: print(json.dumps(what), file=file),
                    )
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        end = time.monotonic() + seconds
        while (ended := os.waitpid(-1, os.WNOHANG)[0]) != child and time.monotonic() < end:
            if not ended:
                time.sleep(0.02)
        for left in psutil.Process().children(recursive=True):  # by a test as well
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)
        return [json.loads(line) for line in said.read_text().splitlines()]


def make_map(out: Path, folder: Path) -> None:
    """Store the tests that pass with their durations, and the numbers of those that execute each line."""
    _clone(folder)
    _preload()

    def call(options: list[str], say: Say) -> None:
        from coverage import Coverage  # type: ignore[import-not-found]  # only here

        include = [f"{folder}/{room}" + ("" if room.endswith(".py") else "/*") for room in ROOMS]
        coverage = Coverage(data_file=None, include=include, config_file=False, messages=False)
        coverage.start()
        mapping = _Mapping(coverage)
        pytest.main([*options, "-m", "not long", "--timeout", "300", *TESTS], plugins=[mapping])
        coverage.stop()
        tests = {node: mapping.seconds[node] for node, ends in mapping.outcomes.items() if ends == {"passed"}}
        number, data = {node: i for i, node in enumerate(tests)}, coverage.get_data()
        lines = {
            str(Path(file).relative_to(folder)): {
                line: sorted({number[node] for one in contexts for node in mapping.users[one] if node in number})
                for line, contexts in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        say(tests=tests, others=sorted(mapping.outcomes.keys() - tests.keys()), lines=lines)

    said = _forked(folder, call, 7200)
    out.write_text(json.dumps(said[-1]), encoding="utf-8")


def _reaching(mutant: dict[str, Any], known: dict[str, Any], importers: bool = True) -> set[str]:
    """Return the tests that execute a mutant's line; of a line that runs at import, those that use its module."""
    names, lines = list(known["tests"]), known["lines"].get(mutant["file"], {})
    first, last = mutant["lines"]
    wanted = lines if not mutant["called"] else [str(line) for line in range(first, last + 1)]
    found = {names[number] for line in wanted for number in lines.get(line, ())}
    if not found and not mutant["called"] and importers:  # values alone
        module = mutant["file"].removesuffix(".py").replace("/", ".")
        for file in known["lines"]:
            if f"from {module} import" in (ROOT / file).read_text(encoding="utf-8"):
                found |= _reaching(mutant | {"file": file}, known, importers=False)
    return found


def _by_file(tests: set[str], known: dict[str, Any]) -> list[tuple[str, dict[str, float]]]:
    """Return the tests of each file with their durations, the quickest file first."""
    files: dict[str, dict[str, float]] = defaultdict(dict)
    for node in sorted(tests):
        files[node.split("::")[0]][node] = known["tests"][node]
    return sorted(files.items(), key=lambda file: sum(file[1].values()))


def _chosen(folder: Path, expression: str) -> set[str]:
    """Return the tests that a marker expression selects in a checkout."""

    def call(options: list[str], say: Say) -> None:
        chosen = _Chosen()
        pytest.main([*options, "--collect-only", "-m", expression, *TESTS], plugins=[chosen])
        say(nodes=chosen.nodes)

    return set(_forked(folder, call, 600)[-1]["nodes"])


def run(mutants: list[dict[str, Any]], known: dict[str, Any], out: Path, folder: Path, gate: str, enough: int) -> None:
    """Try the mutants that have no result yet, and append theirs."""
    _clone(folder)
    _preload()
    gated = _chosen(folder, gate)
    had = {json.loads(line)["id"] for line in out.read_text().splitlines()} if out.exists() else set()
    quick = {min(known["tests"], key=known["tests"].__getitem__)}
    unchanged = _tried([_by_file(quick, known)], 1, folder)
    assert unchanged, f"see {_log(folder)}"
    assert "run" in unchanged[-1], unchanged
    assert not any("killed" in said for said in unchanged), unchanged
    for age, mutant in enumerate(mutants, 1):
        if mutant["id"] in had:
            continue
        began, reaching, file = time.monotonic(), _reaching(mutant, known), folder / mutant["file"]
        stages = [_by_file(reaching & gated, known), _by_file(reaching - gated, known)]
        source, stat = file.read_bytes(), file.stat()
        assert source[mutant["start"] : mutant["end"]].decode() == mutant["before"], "drawn from another version"
        said: list[dict[str, Any]] = []
        if reaching:
            try:
                file.write_bytes(source[: mutant["start"]] + mutant["after"].encode() + source[mutant["end"] :])
                os.utime(file, (stat.st_atime, int(stat.st_mtime) + age))
                said = _tried(stages, enough, folder)
            finally:
                file.write_bytes(source)
                os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
                py_compile.compile(str(file))
        killers = [one["killed"] for one in said if "killed" in one]
        started = [one["started"] for one in said if "started" in one]
        ended = said[-1] if said and "run" in said[-1] else None
        if reaching and not ended and (last := started[-1] if started else "import") not in killers:
            killers.append(last)
        result = {name: mutant[name] for name in ("id", "file", "line", "kind", "before", "after")} | {
            "killed": killers[0] if killers else None,
            "stage": _stage(killers, gated) if reaching else "unreached",
            "killers": killers, "died": bool(reaching and not ended), "reaching": len(reaching), "run": len(started),
            "left_out": ended["left_out"] if ended else 0, "seconds": round(time.monotonic() - began, 1),
        }  # fmt: skip
        with out.open("a", encoding="utf-8") as file_of_results:
            file_of_results.write(json.dumps(result, ensure_ascii=False) + "\n")


def _tried(stages: list[list[tuple[str, dict[str, float]]]], enough: int, folder: Path) -> list[dict[str, Any]]:
    def call(options: list[str], say: Say) -> None:
        sys.dont_write_bytecode = True
        pytest.main([*options, "tests"], plugins=[_Killing(stages, enough, say)])

    return _forked(folder, call, 5 * BUDGET)


def _stage(killers: list[str], gated: set[str]) -> str | None:
    """Return which stage kills: a file that cannot be loaded is killed by any of its tests."""
    if any(one == "import" or one in gated or any(node.startswith(one + "::") for node in gated) for one in killers):
        return "gate"
    return "wide" if killers else None


def tell(results: list[dict[str, Any]], gate: str | None) -> None:
    """Print the counts of each room, and what the gate does not kill; with an expression, by this checkout's marks."""
    if gate is not None:
        gated = _chosen(ROOT, gate)
        for one in results:
            one["stage"] = one["stage"] if one["stage"] == "unreached" else _stage(one["killers"], gated)
    names = {"gate": "killed by the gate", "wide": "killed only by wide", None: "survived", "unreached": "unreached"}
    for room in (*ROOMS, ""):
        counts = Counter(one["stage"] for one in results if one["file"].startswith(room))
        print(room or "all", *(f"{text} {counts[stage]}" for stage, text in names.items()), sep="; ")
    for one in sorted(results, key=lambda one: (one["file"], one["line"])):
        if one["stage"] != "gate":
            how = f"killed by wide: {one['killed']}" if one["killers"] else names[one["stage"]]
            left = f", {one['left_out']} tests left out" if one["left_out"] else ""
            change = " ".join(f"{one['before']} -> {one['after']}".split())
            print(f"{one['file']}:{one['line']} {one['kind']} {change} ({how}{left})")


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--copy", type=Path, default=Path(tempfile.gettempdir()) / "mutants-copy", help="where the clone is"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw")
    drawing.add_argument("--count", type=int, default=300)
    drawing.add_argument("--seed", type=int, default=0)
    commands.add_parser("map").add_argument("out", type=Path)
    running = commands.add_parser("run")
    running.add_argument("mutants", type=Path)
    running.add_argument("--map", type=Path, required=True)
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--gate-expression", default=GATE)
    running.add_argument("--all-killers", type=int, default=1, help="how many files of tests are to kill it")
    telling = commands.add_parser("tell")
    telling.add_argument("results", type=Path)
    telling.add_argument("--gate-expression", help="recompute what the gate kills, by the marks of this checkout")
    given = parser.parse_args()
    if given.command == "draw":
        draw(given.count, given.seed)
    elif given.command == "map":
        make_map(given.out, given.copy)
    elif given.command == "run":
        known = json.loads(given.map.read_text(encoding="utf-8"))
        run(_lines(given.mutants), known, given.out, given.copy, given.gate_expression, given.all_killers)
    else:
        tell(_lines(given.results), given.gate_expression)


if __name__ == "__main__":
    main()
