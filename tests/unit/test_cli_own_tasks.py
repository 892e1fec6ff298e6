"""The commands for tasks of one's own, with good and bad files."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fsd_core.settings import get_settings

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "Two Sums.jsonl"
    path.write_text('{"prompt": "1 + 1 = ?", "reference": 2}\n{"prompt": "2 + 2 = ?", "reference": 4}\n')
    return path


def test_a_file_is_checked_added_listed_and_shown(call: Call, file: Path) -> None:
    status, out, err = call("task", "check", str(file), "--scorer", "number")
    too_few = "note: To be sure of 2 points a search takes 309 prompts, and these are {}: too few for any margin"
    assert (status, out) == (0, f"{file} has 2 prompts, scored by number.\n")
    assert err.startswith(too_few.format(2))
    rows = "".join(json.dumps({"prompt": f"1 + {i} = ?", "reference": 1 + i}) + "\n" for i in range(200))
    (longer := file.with_name("longer.jsonl")).write_text(rows)
    assert "these are 200: they do for 4 points or more" in call("task", "check", str(longer), "--scorer", "number")[2]
    assert call("task", "check", str(longer), "--scorer", "none")[2] == ""
    status, out, err = call("task", "list")
    assert (status, out) == (0, "")
    assert "There is no task of your own yet" in err
    status, out, _ = call("task", "add", str(file), "--scorer", "number", "--title", "My sums")
    name = out.split()[0]
    assert (status, out) == (0, f"{name} has 2 prompts, scored by number. Measure with --task two-sums.\n")
    status, shown, _ = call("task", "show", "two-sums")
    assert shown.startswith('{"scorer": "number"}\n{"prompt": "1 + 1 = ?", "reference": "2"}\n')
    assert hashlib.sha256(shown.encode()).hexdigest().startswith(name.removeprefix("two-sums@"))
    file.write_text('{"prompt": "3 + 3 = ?", "reference": 6}\n')
    assert call("task", "add", str(file), "--name", "two-sums", "--scorer", "exact")[0] == 0
    _, out, _ = call("task", "list")
    (line,) = out.splitlines()[1:]
    assert "1        exact   command line" in line
    _, out, _ = call("task", "list", "--versions")
    assert len(out.splitlines()) == 3
    assert call("task", "show", name)[1] == shown


def test_fields_are_named_and_those_that_are_not_read_are_told(call: Call, tmp_path: Path) -> None:
    rows = '[{"question": "1 + 1?", "answer": 2, "number": 7, "level": 1}]'
    file = tmp_path / "sums.json.gz"
    file.write_bytes(gzip.compress(rows.encode()))
    status, _, err = call("task", "check", str(file))
    assert (status, "with --prompt-field, one of 'question', 'answer'" in err) == (2, True)
    named = "--prompt-field", "question", "--reference-field", "answer", "--id-field", "number", "--scorer", "number"
    note = "note: Fields that are not used: 'level'.\nnote: To be sure of 2 points"
    status, out, err = call("task", "check", str(file), *named)
    assert (status, out, err.startswith(note)) == (0, f"{file} has 1 prompt, scored by number.\n", True)
    status, out, err = call("task", "add", str(file), *named)
    assert (status, out.startswith("sums@"), err.startswith(note)) == (0, True, True)
    assert call("task", "show", "sums")[1].splitlines()[1] == '{"id": "7", "prompt": "1 + 1?", "reference": "2"}'


def test_every_problem_is_told_with_its_line_and_nothing_is_kept(call: Call, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_bytes(b'{"prompt": "a", "reference": "("}\nnonsense\n\xff\n{"promt": "b"}\n')
    for command in (("check",), ("add", "--name", "bad")):
        status, out, err = call("task", command[0], str(bad), *command[1:], "--scorer", "regex")
        assert (status, out) == (2, "")
        told = err.splitlines()
        assert [line.split(":")[0] for line in told] == ["Line 1", "Line 2", "Line 3", "Line 4", "error"]
        assert told[-1] == f"error: {bad} has 4 problems: nothing can be measured on it yet."
    assert call("task", "list")[1] == ""
    bad.write_text("x\n" * 60)
    assert call("task", "check", str(bad))[2].splitlines()[-2] == "And 10 more."


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("check", "nowhere.jsonl"), "error: There is no file nowhere.jsonl: expected a file of JSON Lines, JSON or"),
        (("check", "."), "error: . is a folder: expected a file of JSON Lines, JSON or Parquet."),
        (("add", "FILE", "--name", "../evil"), "error: The task name '../evil' cannot be used"),
        (("add", "FILE", "--name", "arithmetic"), "error: The name 'arithmetic' is that of a task of the program"),
        (("add", "FILE", "--scorer", "bleu"), "error: --scorer 'bleu' is not known: expected one of number, choice"),
        (("check", "FILE", "--scorer", ""), "error: --scorer '' is not known: expected one of number, choice, exact"),
        (("add", "FILE"), "The lines have references, and no scorer is chosen"),
        (("show", "nothing"), "error: There is no task 'nothing': expected one of arithmetic"),
        (("show", "arithmetic"), "error: 'arithmetic' is a task of the program"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(call: Call, file: Path, arguments: tuple[str, ...], told: str) -> None:
    status, out, err = call("task", *(str(file) if one == "FILE" else one for one in arguments))
    assert (status, out) == (2, "")
    assert told in err


def test_a_file_that_may_not_be_read_is_told_of(call: Call, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refused)
    status, _, err = call("task", "check", str(file))
    assert (status, err) == (2, f"error: {file} cannot be read (Permission denied): check the file and its rights.\n")


def test_a_run_takes_the_name_and_is_refused_before_anything_is_loaded(
    call: Call, file: Path, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "traffic.jsonl").write_text('{"prompt": "a"}')
    (folder / "broken.jsonl").write_text("x")
    monkeypatch.setenv("FSD_TASKS", str(folder))
    get_settings.cache_clear()
    status, out, err = call("run", "--task", "traffic", "--limit", "2")
    assert (status, out) == (2, "")
    first, last = err.splitlines()
    assert first.startswith("warning: broken.jsonl has 1 problem. Line 1: It is not JSON")
    assert last.startswith("error: The task 'traffic@")
    assert last.endswith("has 1 prompt: expected a limit from 1 to 1.")
    status, _, err = call("run", "--task", "nothing")
    assert (status, "There is no task 'nothing': expected one of arithmetic," in err) == (2, True)
    status, out, _ = call("sweep", "--task", "traffic", "--limit", "1", "--thresholds", "0.1", "--enqueue")
    assert (status, "is queued for the worker" in out) == (0, True)
    _, out, _ = call("runs", "--json")
    assert out.count('"task": "traffic@') == 3


def test_user_turns_are_asked_one_after_another_where_that_is_asked_for(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "chats.jsonl"
    turns = [("user", "One?"), ("assistant", "A"), ("user", "Two?")]
    file.write_text(json.dumps({"messages": [{"role": role, "content": text} for role, text in turns]}) + "\n")
    assert call("task", "check", str(file))[1] == f"{file} has 1 prompt, scored by none.\n"
    status, out, err = call("task", "add", str(file), "--all-turns")
    assert (status, "has 2 prompts" in out, "1 given answer between user turns is left out" in err) == (0, True, True)
    _, shown, _ = call("task", "show", "chats")
    assert shown.splitlines()[1] == '{"prompt": "One?", "turns": ["Two?"]}'
    trace = str(tmp_path / "trace.gz")
    limited = "--task", "chats", "--limit", "2"
    for command, purpose in (
        (("record", trace, *limited), "replay"),
        (("bench", *limited), "bench"),
        (("calibrate", "--task", "chats", "--accepted", "0.9"), "a calibration"),
    ):
        status, _, err = call(*command)
        assert (status, f"and {purpose} needs the same prompts for every setting" in " ".join(err.split())) == (2, True)
