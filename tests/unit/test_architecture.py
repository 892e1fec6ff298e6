"""The house rules that a tool can check: imports, lists of packages, tables of the documents."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

import fsd_core
from fsd_core.config import DecodingConfig
from fsd_core.rules import RULES, VERIFIERS

ROOT = Path(__file__).resolve().parents[2]

# Builds what `python app.py` builds, then names the forbidden modules that were loaded on the way.
WEB_PROCESS = """
import sys
import app
from dashboard.server.api import reference_routes
from dashboard.web import build_app
from fsd_core.settings import Settings
from starlette.requests import Request
settings = Settings(home=sys.argv[1], mlflow_ui=False)
app.upgrade(settings.resolved_database_url)
build_app(app.Repository(app.open_database(settings.resolved_database_url)), settings)
app.Supervisor(settings)
assert "scipy.stats" not in sys.modules, "it takes a second to import"
assert b"FSD_HOME" in reference_routes().routes[0].endpoint(Request({"type": "http", "headers": []})).body
print("STUBS", sys.modules["gradio.component_meta"].create_or_modify_pyi.__module__)
print("LOADED", *sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "transformers", "mlflow"}))
"""


def test_the_web_process_loads_neither_torch_nor_transformers_nor_mlflow_and_writes_no_stubs(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", WEB_PROCESS, str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-2:] == ["STUBS dashboard", "LOADED"]


def tracked_texts() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [ROOT / name for name in listed.split("\0") if name]
    return [path for path in paths if path.is_file() and b"\0" not in path.read_bytes()[:4096]]


def test_no_file_names_a_path_of_the_machine_it_was_written_on() -> None:
    if not (ROOT / ".git").exists():
        pytest.fail("The files to check are those that git knows: run the tests in a clone.")
    homes = re.compile(r"/(?:Users|home)/(?!user/)\w+/|[A-Z]:\\\\?Users\\")
    here = {f"{ROOT}/", f"{ROOT.parent}/", f"{Path.home()}/"} - {"/", "//"}
    found = []
    for path in tracked_texts():
        text = path.read_text(encoding="utf-8")
        found += [(path.name, word) for word in here if word in text]
        found += [(path.name, match) for match in homes.findall(text)]
    assert not found


LONGEST = 800
"""lines of a file: a concept takes 150 to 600"""


def test_no_file_is_longer_than_a_concept() -> None:
    rooms = ("fsd_core", "dashboard", "tests", "tools", "engines", "examples", "migrations")
    lines = {path: path.read_bytes().count(b"\n") for room in rooms for path in (ROOT / room).rglob("*.py")}
    assert [str(path.relative_to(ROOT)) for path, count in lines.items() if count > LONGEST] == []


def test_whatever_is_measured_is_identified_first() -> None:
    """A setting's id rests on the models that a folder holds, at whatever door it is asked for."""
    stores = re.compile(r"\brepository\.create_(?:experiment|run)\(")
    doors = [path for room in ("fsd_core", "dashboard", "fsd_plugins") for path in (ROOT / room).rglob("*.py")]
    doors = [path for path in doors if stores.search(path.read_text())]
    assert len(doors) == 4
    assert not [path for path in doors if "identified(" not in path.read_text()]


def test_no_room_hides_what_the_library_offers() -> None:
    """A package that is imported becomes an attribute of ``fsd_core``, in place of a function of its name."""
    rooms = {path.stem for path in (ROOT / "fsd_core").iterdir()}
    assert rooms.isdisjoint(fsd_core.__all__)


WIDE = "pytest.mark.wide"


def test_what_the_gate_leaves_out_has_a_twin_in_it() -> None:
    """In the same file, or in one that the mark names, which has tests in the gate itself."""
    marks = {file.name: marks_of(file) for file in sorted(ROOT.glob("tests/*/test_*.py"))}
    whole = {name for name, found in marks.items() if found and all(found)}
    twins = {name: set(re.findall(r"test_\w+\.py", " ".join(found))) for name, found in marks.items()}
    assert not [name for name in whole if not twins[name]], "leave some tests unmarked, or name a file of twins"
    assert set().union(*twins.values()) <= marks.keys() - whole, "name files that have tests in the gate"


def marks_of(file: Path) -> list[str]:
    """How each test of a file, or the file as a whole, is marked as wide, in the words of the source; or empty."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    tests = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test")]
    assigned = (ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign))
    whole = next((text for text in assigned if text.startswith("pytestmark") and WIDE in text), "")
    decorators = [[ast.unparse(node) for node in test.decorator_list] for test in tests]
    return [whole or next((text for text in those if text.startswith(WIDE)), "") for those in decorators]


PAGES = {
    "typing-extensions",
    "authlib", "httpx2", "jinja2", "markdown-it-py", "markupsafe", "mcp", "orjson", "gradio",
    "plotly", "pandas",
}  # fmt: skip
"""what the pages alone import, and figures of the library (its group ``figures``)"""


def listed(name: str) -> list[Requirement]:
    """The packages of a list."""
    lines = (line.partition("#")[0].strip() for line in (ROOT / name).read_text().splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith("-")]


def held(name: str) -> dict[str, SpecifierSet]:
    """The versions that a list gives each package here."""
    here = (each for each in listed(name) if each.marker is None or each.marker.evaluate())
    return {canonicalize_name(each.name): each.specifier for each in here}


@pytest.mark.parametrize("name", ["requirements", "requirements-dev", "requirements-zerogpu"])
def test_all_that_people_list_is_held(name: str) -> None:
    assert all(str(each.specifier).startswith("==") for each in listed(f"{name}.txt"))
    versions = held(f"{name}.txt")
    for each in listed(f"{name}.in"):
        (only,) = versions[canonicalize_name(each.name)]
        assert each.specifier.contains(only.version), f"{each}: run make lock"


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_what_is_tested_is_what_is_held(name: str) -> None:
    installed = {package: Version(version(package)) for package in held(name)}
    assert {package: found for package, found in installed.items() if found not in held(name)[package]} == {}


def test_a_zero_gpu_space_has_the_same_packages_but_for_torch_and_spaces() -> None:
    usual, lent = ({str(each) for each in listed(f"{name}.txt")} for name in ("requirements", "requirements-zerogpu"))
    assert {Requirement(each).name for each in lent - usual} == {"torch", "spaces"}
    assert {Requirement(each).name for each in usual - lent} == {"torch"}


def test_what_is_listed_is_what_the_library_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {canonicalize_name(each.name): each for each in map(Requirement, project["dependencies"])}
    assert wanted.keys() == {canonicalize_name(each.name) for each in listed("requirements.in")} - PAGES
    assert {*project["optional-dependencies"]["figures"]} < PAGES
    for name, (only,) in held("requirements.txt").items():
        assert name not in wanted or wanted[name].specifier.contains(only.version), f"{name} is held at {only.version}"


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
