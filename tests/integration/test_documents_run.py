"""The commands of the documents, run as they stand there but for their sizes, block by block in one home each; and the
README's table of results, measured again. ``tests/unit/test_documents.py`` parses all of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.tools.documents import DOCUMENTS, ROOT, SHELL, Block, Command, blocks, commands, text_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]  # a block is many commands

SMALLER = {
    "--limit": "2", "--minutes": "0.2", "--turns": "1", "--max-new-tokens": "12", "--threads": "1",
    "--draft-length": "4",
}  # fmt: skip
"""what sizes become"""
SHORT = ("generate", "run", "sweep", "record", "calibrate")
"""commands that are given few tokens where a document names no number"""
RESULTS = ROOT / "tests" / "data" / "results"
BLOCKS = [
    block
    for path in DOCUMENTS
    if path.name != "deploy.md"  # test_deploy.py runs it
    for block in blocks(path)
    if block.language in SHELL and any(not command.reason and command.words for command in commands(block))
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that the documents' commands are given."""
    sums = [{"prompt": f"What is {n} + 1?", "reference": str(n + 1)} for n in range(60)]
    lines = "".join(json.dumps(line) + "\n" for line in sums)
    (tmp_path / "support.jsonl").write_text(lines)
    roles = {"Hi": "user", "Hello": "assistant", "Bye": "user"}
    turns = {"messages": [{"role": role, "content": text} for text, role in roles.items()]}
    (tmp_path / "chats.jsonl").write_text('{"scorer": "none"}\n' + json.dumps(turns) + "\n")
    (tmp_path / "tickets.jsonl").write_text('{"scorer": "number"}\n' + lines)
    questions = pd.DataFrame({"question": ["What is 1 + 1?", "What is 2 + 2?"], "answer": ["2", "4"]})
    questions.to_parquet(tmp_path / "test.parquet")
    shutil.copy(RESULTS / "specforge.json", tmp_path / "results.json")
    shutil.copy(RESULTS / "llama-batched-bench.jsonl", tmp_path / "bench.jsonl")
    return tmp_path


def called(folder: Path, command: Command | list[str], variables: dict[str, str]) -> str:
    """Run a command in the folder, and return what it prints. Fails with the command's place and its errors."""
    words = command if isinstance(command, list) else command.words
    set_here = {} if isinstance(command, list) else command.variables
    environment = os.environ | {"PYTHONPATH": str(ROOT), "FSD_HOME": str(folder / "home"), "FSD_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words[1:]], cwd=folder, env=environment | variables | set_here, capture_output=True,
        text=True, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    place = "" if isinstance(command, list) else f"{command.block.place}: "
    assert done.returncode == 0, f"{place}{' '.join(words)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def smaller(words: list[str]) -> list[str]:
    """Return a command with small sizes. A number in a list of lengths stays one of them."""
    less, after = [], ""
    for word in words:
        less.append(SMALLER[after] if after in SMALLER and "," not in word else word)
        after = word
    name = words[3] if words[2:3] == ["fsd_core"] else ""
    if name in SHORT and "--max-new-tokens" not in words and "--time-again" not in words:
        less += ["--max-new-tokens", SMALLER["--max-new-tokens"]]
    if name == "sweep" and less.count("--draft-length") > 1:  # the same length twice is one setting
        first = less.index("--draft-length") + 1
        less[first] = "3"
    return [*less, "--yes"] if name == "delete" else less


@pytest.fixture
def ids(folder: Path) -> dict[str, str]:
    """Runs in the home, for what a document calls by an id: two experiments, each of one run."""
    stored = []
    for seed in ("1", "2"):
        words = ["python", "-m", "fsd_core", "sweep", "--thresholds", "0.1", "--no-baselines", "--limit", "1"]
        out = called(folder, [*words, "--max-new-tokens", "4", "--seed", seed, "--json"], {})
        stored.append(json.loads(out.splitlines()[-1])["experiment_id"])
    return {"3f9c1a": stored[0], "77b0d2": stored[1], "EXPERIMENT": stored[0]}


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_the_commands_of_a_block_do_what_they_say(block: Block, folder: Path, ids: dict[str, str]) -> None:
    variables: dict[str, str] = {}
    done = 0
    for command in commands(block):
        if not command.words:
            variables |= command.variables  # an export
        elif not command.reason:
            assert command.words[0] in ("python", ".venv/bin/python"), f"{command.text}: mark why it is not run"
            text = [ids.get(word, word) for word in smaller(command.words)]
            if "restore" in text or "delete" in text:  # afterwards what the others call is gone
                continue
            called(folder, command._replace(words=text), variables)
            done += 1
    for command in commands(block):
        if "restore" in command.words or "delete" in command.words:
            called(folder, command._replace(words=[ids.get(word, word) for word in smaller(command.words)]), variables)
            done += 1
    assert done


def test_the_table_of_the_readme_is_measured_again(folder: Path) -> None:
    """Accuracy, acceptance and lengths, to the digits that stand there; times are the machine's."""
    rows = {
        cells[0]: cells[1:]
        for line in text_of(ROOT / "README.md").split("## What it shows")[1].split("\n\n")[2].splitlines()[2:]
        if (cells := [cell.strip() for cell in line.strip("| ").split("|")])
    }
    again = {
        "Target alone": ("autoregressive", []),
        "SD, lossless, γ 5": ("speculative", ["--draft-length", "5"]),
        "FSD, js ≤ 0.1, γ 14": ("fsd-reducible", ["--threshold", "0.1", "--draft-length", "14"]),
        "Draft alone": ("draft-only", []),
    }
    for name, (rule, options) in again.items():
        words = ["python", "-m", "fsd_core", "run", "--acceptance", rule, *options, "--limit", "150", "--json"]
        metrics = json.loads(called(folder, words, {}).splitlines()[-1])
        accuracy, _, _, acceptance, length = rows[name]
        assert accuracy.startswith(f"{100 * metrics['accuracy']:.0f} %"), name
        rate = metrics["acceptance_rate"]
        assert acceptance == ("–" if rate is None else f"{100 * rate:.0f} %"), name
        digits = len(re.sub(r"^\d+\.?", "", length))
        assert length == f"{metrics['mean_acceptance_length']:.{digits}f}", name
