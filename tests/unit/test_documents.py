"""What the documents say exists: commands parse; options, files, links, variables and labels are there.

``tests/integration/test_documents_run.py`` runs the commands.
"""

from __future__ import annotations

import ast
import json
import re
import runpy
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from dashboard.server import requests
from fsd_core.cli import reference
from fsd_core.cli.commands import application
from fsd_core.config.options import ALIASES
from fsd_core.settings import Settings, get_settings
from fsd_core.storage.tables import Base
from tests.tools.documents import (
    DOCUMENTS,
    RESULTS,
    ROOT,
    SHELL,
    Command,
    anchors,
    blocks,
    commands,
    index,
    inline_code,
    links,
    prose,
    text_of,
)

export = runpy.run_module("dashboard.__main__")["export"]  # not imported, since other tests run that module
COMMANDS = [
    command for path in DOCUMENTS for block in blocks(path) if block.language in SHELL for command in commands(block)
]
FOREIGN = {
    "curl": {"--fail"}, "alembic": {"--autogenerate"}, "pip": {"--no-deps"}, "lm-eval": {"--output_dir", "--config"},
    "llama.cpp": {"--alias", "--metrics"},
    "vLLM": {"--additional-config", "--revision", "--append-result", "--save-result", "--spec-synth-len",
             "--spec-synth-rates"},
    "SGLang": {"--speculative-accept-threshold-acc"}, "SpecForge": {"--output-json"},
    "the example of extending.md": {"--weight", "--weights"}, "examples/vittm": {"--epochs", "--images", "--repeats"},
}  # fmt: skip
"""options that a document names, by the program whose they are"""
NO_FILES = (
    "FOLDER/", "NAME.", "OWNER/", "vllm/utils/", "./mlruns", "aime/", "truthfulqa/", "gpqa/", "humaneval/", "mbpp/",
    "livecodebench/", "mtbench/", "specbench/", "speed/", "examples/specdec_bench",
)  # fmt: skip
"""how names of files begin that are a reader's, another project's or a benchmark's"""
OF_OTHERS = {
    "config.json", "generation_config.json", "adapter_config.json", "tokenizer.json", "vocab.json", "merges.txt",
    "calibration.json", "test2.jsonl", "test6.jsonl", "fsd_utils.py", "pyproject.toml",
}  # fmt: skip
"""names of files that models, benchmarks and published programs have"""
COMPOSED = {
    "Propose this setting": "Propose ", "Export CSV": "Export ", "With starter code": "starter",
    "The candidate beside: What is approved": "What is approved",
}  # fmt: skip
"""labels that a page puts together, and the part that its source has"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home without a database, which a named pair would be looked up in."""
    monkeypatch.setenv("FSD_HOME", str(tmp_path))
    get_settings.cache_clear()
    yield tmp_path
    get_settings.cache_clear()


def parse(words: list[str], command: Any) -> None:
    """Parse a command line as typed, down to the subcommand, without running it."""
    words = [word for word in words if word != "…"]
    context = command.make_context(command.name or "", [*words])
    if getattr(command, "commands", None) and words:
        rest = [*context._protected_args, *context.args]
        if rest:
            name, child, rest = command.resolve_command(context, rest)
            context = child.make_context(name, rest, parent=context)
            if getattr(child, "commands", None) and (further := [*context._protected_args, *context.args]):
                name, grandchild, further = child.resolve_command(context, further)
                grandchild.make_context(name, further, parent=context)


def check_tool(module: str, words: list[str]) -> None:
    """Hold the words against the parser of a program of the tests, as its source has it. Nothing of it is loaded."""
    file = ROOT / f"{module.replace('.', '/')}.py"
    source = (file if file.is_file() else file.with_suffix("") / "__main__.py").read_text(encoding="utf-8")
    assert "__main__" in source or "def main(" in source, f"{module} is no program"
    declared = set(re.findall(r'add_argument\(\s*"(--[\w-]+)"', source))
    required = set(re.findall(r'add_argument\(\s*"(--[\w-]+)"[^)]*required=True', source))
    given = {word for word in words if word.startswith("--")}
    assert given <= declared, f"{module} has no {given - declared}"
    assert required <= given, f"{module} wants {required - given}"


@pytest.mark.parametrize(
    "path",
    [path for path in DOCUMENTS if any(c.block.path == path for c in COMMANDS)],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_every_command_of_a_document_is_one_that_the_program_takes(path: Path) -> None:
    for command in (command for command in COMMANDS if command.block.path == path):
        try:
            check(command)
        except (Exception, SystemExit) as error:
            pytest.fail(f"{command.block.place}: {command.text}\n{type(error).__name__}: {error}")


def check(command: Command) -> None:
    unknown = {name for name in command.variables if name.startswith("FSD_")} - variables()
    assert not unknown, f"no variable {unknown}"
    match command.words:
        case []:
            pass
        case ["make", *targets]:
            assert set(targets) <= make_targets()
        case ["python" | ".venv/bin/python", "-m", "fsd_core", *words] | ["fsd-lab", *words]:
            parse(words, typer.main.get_command(application()))
        case ["python" | ".venv/bin/python", "-m", "dashboard", *words]:
            single = typer.Typer(add_completion=False)
            single.command()(export)
            parse(words, typer.main.get_command(single))
        case ["python" | ".venv/bin/python", "-m", module, *words] if module.startswith("tests."):
            check_tool(module, words)
        case ["python" | ".venv/bin/python", "app.py", *words]:
            requests.given(words)
        case ["pg_dump" | "pg_restore", *_]:
            pass  # tests/integration/test_deploy.py runs them
        case ["pip", "install", *words]:
            for extra in re.findall(r"\[(\w+)\]", " ".join(words)):
                assert extra in project()["project"]["optional-dependencies"]
            assert all((ROOT / word).exists() for word in words if word.startswith("."))
        case ["curl", *_]:
            assert not re.search(r"127\.0\.0\.1:7860", command.text) or any(
                known in command.text for known in ("/api/v1", "/export/")
            )
        case _:
            assert command.reason, f"{command.words[0]} is not ours: say in a mark before the block why it is not run"


@cache
def variables() -> set[str]:
    """The names of environment variables that some file of the project reads."""
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "engines").rglob("*.py"), ROOT / "Makefile"]
    read = {name for file in files for name in re.findall(r"\bFSD_[A-Z_]*[A-Z]\b", file.read_text(encoding="utf-8"))}
    return {f"FSD_{name.upper()}" for name in Settings.model_fields} | read


@cache
def make_targets() -> set[str]:
    (phony,) = re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    return set(phony.split())


@cache
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@cache
def options() -> set[str]:
    """Every option of every program of the project, under its former names too."""
    found = {"--help"} | {f"--{alias.replace('_', '-')}" for alias in ALIASES}
    single = typer.Typer(add_completion=False)
    single.command()(export)
    for root in (typer.main.get_command(application()), typer.main.get_command(single)):
        for command in [root, *(child for _, child in reference.commands(root))]:
            found |= {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    for file in [*(ROOT / "tests" / "tools").rglob("*.py"), *(ROOT / "dashboard" / "server").rglob("*.py")]:
        found |= set(re.findall(r'add_argument\(\s*"(--[\w-]+)"', file.read_text(encoding="utf-8")))
    return found


def test_every_option_that_a_document_names_exists() -> None:
    known = options().union(*FOREIGN.values())
    found = {
        (path.name, option)
        for path in DOCUMENTS
        for code in inline_code(path)
        for option in re.findall(r"(?<![\w-])--[a-z][\w-]*", code)
    }
    assert not {(page, option) for page, option in found if option not in known}


def test_every_file_that_a_document_names_exists() -> None:
    tracked = [
        file
        for folder in ("fsd_core", "fsd_plugins", "dashboard", "tests", "docs", "engines", "examples", "migrations")
        for file in (ROOT / folder).rglob("*")
    ]
    names = {file.name for file in tracked}
    missing = []
    for path in DOCUMENTS:
        for code in inline_code(path):
            name = code.partition(":")[0]
            if not re.fullmatch(
                r"[\w.\-]+(/[\w.\-]+)*/[\w\-]+\.\w+|[\w\-]+\.(py|md|toml|txt|html|js|css|json|jsonl)", name
            ):
                continue
            if name.startswith(NO_FILES) or name in OF_OTHERS or name.endswith(".person_of"):
                continue
            places = (ROOT, ROOT / "fsd_core", ROOT / "dashboard", ROOT / "docs", ROOT / "tests", path.parent)
            if "/" in name and not any((place / name).exists() for place in places):
                inside = any(str(file).endswith(f"/{name}") for file in tracked)
                missing += [] if inside else [(path.name, code)]
            elif "/" not in name and name not in names and not (ROOT / name).exists():
                missing.append((path.name, code))
    assert not missing


def test_commands_within_sentences_are_programs_that_take_their_options() -> None:
    for path in DOCUMENTS:
        for code in inline_code(path):
            if module := re.match(r"python -m (tests\.tools[\w.]*)(.*)", code):
                check_tool(module[1], module[2].split())


def test_the_architecture_names_every_package_and_every_table() -> None:
    text = text_of(ROOT / "docs" / "architecture.md")
    layout = next(block.text for block in blocks(ROOT / "docs" / "architecture.md") if block.language == "text")
    named = set(re.findall(r"(\w+)/", layout))
    packages = {folder.name for folder in (ROOT / "fsd_core").iterdir() if (folder / "__init__.py").is_file()}
    assert not packages - named
    assert not set(re.findall(r"^  (\w+)/", layout, re.MULTILINE)) - packages
    rows = text.split("\n## State\n")[1].split("| Table |")[1].split("\n\n")[0]
    tables = {name for line in rows.splitlines()[2:] for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert tables == set(Base.metadata.tables)


def test_every_link_leads_somewhere() -> None:
    broken = []
    for path in DOCUMENTS:
        for link in links(path):
            if re.match(r"\w+:", link):
                continue
            file, _, anchor = link.partition("#")
            target = (path.parent / file).resolve() if file else path
            if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
                broken.append((path.name, link))
    assert not broken


def test_every_variable_is_documented_and_every_one_that_is_named_is_read() -> None:
    named = {name for path in DOCUMENTS for name in re.findall(r"\bFSD_[A-Z_]*[A-Z]\b", text_of(path))}
    assert not named - variables()
    usage = text_of(ROOT / "docs" / "usage.md").split("## Settings")[1].split("\n## ")[0]
    assert not {f"FSD_{name.upper()}" for name in Settings.model_fields} - set(re.findall(r"FSD_[A-Z_]*[A-Z]", usage))


def test_every_label_of_a_page_that_a_document_names_is_on_the_pages() -> None:
    """What is slanted and begins with a capital is a label: a button, a field, a heading or a mark of a page."""
    sources = "\n".join(
        file.read_text(encoding="utf-8")
        for folder in ("dashboard", "fsd_core", "fsd_plugins")
        for file in (ROOT / folder).rglob("*")
        if file.suffix in (".py", ".html", ".js") and "assets" not in file.parts
    )
    words = re.sub(r"<[^<>\n]+>|\s+", " ", sources)
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    missing = []
    for path in pages:
        for label in re.findall(r"(?<![*\w])\*([A-Z][^*\n]{2,60})\*(?!\*)", re.sub(r"`[^`\n]+`", "", prose(path))):
            if COMPOSED.get(label, label.rstrip(".:,…")) not in words:
                missing.append((path.name, label))
    assert not missing


def test_python_that_is_shown_compiles_and_json_is_json() -> None:
    for path in DOCUMENTS:
        for block in blocks(path):
            if block.language == "python":
                ast.parse(block.text, block.place)
            elif block.language == "json":
                json.loads(block.text)
            elif block.language == "toml":
                tomllib.loads(block.text)
            elif block.language == "jsonl":
                assert [json.loads(line) for line in block.text.splitlines()]
            else:
                assert block.language in (*SHELL, "text", "http", "bibtex", "nginx", "ini"), block.place


def test_each_file_of_results_has_its_command_commit_and_machine() -> None:
    files = {path.name for path in RESULTS.glob("*.csv") if not path.name.endswith(".matched.csv")} - {"index.csv"}
    rows = index()
    assert sorted(row["file"] for row in rows) == sorted(files)
    for row in rows:
        assert re.fullmatch("[0-9a-f]{7,12}", row["commit"]), row
        assert "python -m " in row["command"], row
        assert row["machine"], row
    page = text_of(ROOT / "docs" / "results.md")
    named = {name.removesuffix("-…") for name in re.findall(r"`([a-z][a-z0-9-]+(?:-…)?)`", page)}
    assert {row["file"] for row in rows if not any(row["file"].startswith(name) for name in named)} <= NOT_TOLD


NOT_TOLD = {
    "fsd-reducible-js-0-05-to-0-6-4-on-multiarith.csv",
    *(f"fsd-reducible-js-0-05-to-0-6-4-on-spec-bench-{kind}.csv"
      for kind in ("math", "mt", "qa", "rag", "summarization", "translation")),
}  # fmt: skip
"""comparisons that no table of the page is of"""
