"""The command line, from what is asked for to tasks of one's own, with good and bad files."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fsd_core.settings import get_settings
from fsd_core.tasks import word_problems

Call = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    "command",
    [
        (),
        ("run",),
        ("sweep",),
        ("resume",),
        ("generate",),
        ("bench",),
        ("record",),
        ("replay",),
        ("train",),
        ("db",),
        ("rescore",),
        ("tasks",),
        ("fetch",),
        ("runs",),
    ],
)
def test_every_command_has_help(call: Call, command: tuple[str, ...]) -> None:
    status, out, err = call(*command, "--help")
    assert (status, err) == (0, "")
    assert "Usage:" in out


def test_run_has_exactly_the_promised_options(call: Call) -> None:
    promised = [
        "--pair", "--acceptance", "--divergence", "--threshold", "--divergence-top-k", "--guard", "--judge-bonus",
        "--token-width", "--sample-target", "--target-weight", "--kl-budget", "--lenience", "--stock-residual",
        "--trigger", "--deferral-cost", "--head-width", "--cactus-budget", "--tolerance", "--threshold-acc",
        "--threshold-single", "--posterior-threshold", "--posterior-alpha", "--relaxed-delta", "--relaxed-topk",
         "--logit-ratio", "--lookahead-entropy", "--lookahead-window", "--beams", "--confidence", "--least-width",
         "--most-width", "--drafter",
         "--max-ngram", "--longest-match", "--match-factor", "--least-share", "--memory",
         "--table", "--learning-window", "--learning-step", "--weight-cap", "--successors",
         "--topology", "--draft-length", "--length-by", "--least-probability",
         "--draft-cost", "--drafts", "--tree-top-k", "--tree-tokens", "--search", "--search-iterations",
        "--temperature",
        "--top-k", "--top-p", "--min-p", "--strict-first", "--lenient-in", "--max-new-tokens",
        "--template-arguments", "--template-date", "--seed",
        "--dtype", "--device", "--task", "--limit", "--batch",
        "--endpoint", "--parallel", "--request-rate", "--price-per-hour", "--fresh", "--json",
    ]  # fmt: skip
    _, out, _ = call("run", "--help")
    assert [line.split()[0] for line in out.splitlines() if line.startswith("  --")] == [*promised, "--help"]
    assert "(the pair's own)" in " ".join(out.split())
    _, out, _ = call("generate", "--help")
    of_runs = (
        "--task", "--limit", "--batch", "--endpoint", "--parallel", "--request-rate", "--price-per-hour", "--fresh",
    )  # fmt: skip
    expected = [option for option in promised if option not in of_runs]
    assert [line.split()[0] for line in out.splitlines() if line.startswith("  --")] == [*expected, "--help"]


def test_help_of_an_option_says_what_it_is_whose_it_is_and_what_stands_for_it(call: Call) -> None:
    def help_of(command: str, option: str) -> str:
        words = " ".join(call(command, "--help")[1].split("Options:")[1].split())
        return words.split(f" {option} ")[1].split(" --")[0]

    assert help_of("generate", "--threshold").endswith(
        "Largest divergence forgiven; off is exact SD (0.1; fsd-official: 0.4)."
    )
    assert help_of("run", "--lookahead-entropy").endswith("off is exact SD (0.3).")
    written = "a list such as 0.1,0.2 or a range start:stop:count (the rule's own values)."
    for command in ("sweep", "calibrate", "replay"):
        told = f"TEXT Weight of the target in the mixture; 1 is exact SD. For ensemble: {written}"
        assert help_of(command, "--target-weights") == told
        assert " For mentored: " in help_of(command, "--kl-budgets")
    assert help_of("sweep", "--acceptance").replace("- ", "-").endswith("may be given several times (fsd-reducible).")
    assert help_of("calibrate", "--acceptance").endswith("may be given several times (all that forgive by a knob).")
    assert help_of("calibrate", "--draft-length").endswith("(those that replay proposes).")
    assert help_of("replay", "--draft-length").endswith("(all up to that of the record).")


@pytest.mark.parametrize("option", ["--topology", "--shape"])
def test_a_former_name_of_an_option_goes_on_working(call: Call, option: str) -> None:
    """Help offers the present names alone; a refusal tells that both were understood, in these names."""
    status, out, err = call("run", option, "dynamic-tree", "--tree-width", "33")
    assert (status, out) == (2, "")
    assert "--tree-top-k is 33: expected at most 32." in err
    status, _, err = call("sweep", "--thresholds", "0.1", option, "chain", option, "bush")
    assert status == 2
    assert "--topology 'bush' is not known" in err


def test_pairs_lists_the_bundled_pair(call: Call) -> None:
    status, out, err = call("pairs")
    assert (status, err) == (0, "")
    assert "bundled" in out
    assert "arithmetic" in out


def test_tasks_says_which_files_are_wanted(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSD_DATA_DIR", str(tmp_path / "nothing"))
    status, out, err = call("tasks")
    assert (status, err) == (0, "")
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert lines["arithmetic"].rstrip().endswith("600 prompts")
    assert "needs gsm8k/test.jsonl, gsm8k/train.jsonl in" in " ".join(out.split())
    status, _, err = call("run", "--task", "gsm8k", "--limit", "1")
    assert status == 2
    assert "set FSD_DATA_DIR" in err


def test_the_held_out_problems_of_both_tasks_are_written_again(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = {name: getattr(word_problems, name) for name in ("ARITHMETIC_PROBLEMS", "SHORT_PROBLEMS")}
    for name, file in shipped.items():
        monkeypatch.setattr(word_problems, name, tmp_path / file.name)
    status, out, err = call("train", "held-out")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        f"{n} problems in {tmp_path / f.name}" for n, f in zip((600, 200), shipped.values(), strict=True)
    ]
    assert all((tmp_path / file.name).read_bytes() == file.read_bytes() for file in shipped.values())


def test_help_and_pairs_do_not_wait_for_torch(tmp_path: Path) -> None:
    """In a home without a database, which would be asked for pairs that people have named."""
    code = (
        "import sys\nfrom fsd_core.cli.commands import main\n"
        "for arguments in (['run', '--help'], ['pairs'], ['tasks']):\n"
        "    try: main(arguments)\n    except SystemExit: pass\n"
        "print(sorted({'torch', 'transformers', 'mlflow', 'scipy', 'sqlalchemy'} & set(sys.modules)))"
    )
    environment = os.environ | {"FSD_HOME": str(tmp_path)}
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    ).stdout
    assert out.splitlines()[-1] == "[]"


def test_a_terminal_that_lacks_a_character_gets_another(home: Path) -> None:
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "FSD_HOME": str(home)}
    command = [sys.executable, "-m", "fsd_core", "pairs"]
    out = subprocess.run(command, capture_output=True, check=True, env=environment).stdout.decode("ascii")
    assert "bundled" in out
    assert "?" in out  # for a line of the table


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("run", "--pair", "nope"), "Known pairs: "),
        (("run", "--task", "nope"), "expected one of arithmetic"),
        (("run", "--limit", "601"), "a limit from 1 to 600"),
        (("run", "--pair", "smollm2-135m", "--limit", "81"), "The task 'everyday' has 80 prompts"),
        (("run", "--pair", "smollm2-135m-math", "--limit", "201"), "The task 'short-problems' has 200 prompts"),
        (("sweep", "--thresholds", "0.1", "--pair", "qwen2.5-7b", "--limit", "81"), "'everyday' has 80 prompts"),
        (("bench", "--pair", "hub:a/b+c/d", "--limit", "81"), "The task 'everyday' has 80 prompts"),
        (("run", "--pair", "qwen2.5-7b", "--task", "arithmetic", "--limit", "601"), "a limit from 1 to 600"),
        (("run", "--limit", "0"), "--limit is 0: expected at least 1."),
        (("run", "--seed", "-1"), "--seed is -1: expected at least 0."),
        (("run", "--acceptance", "nope"), "expected one of autoregressive, draft-only, speculative"),
        (("run", "--divergence", "nope"), "expected one of kl"),
        (("run", "--drafter", "nope"), "expected one of draft-model"),
        (("run", "--acceptance", "spec-hub", "--drafts", "3"), "couples 2 drafts, not 3"),
        (("run", "--acceptance", "rrs", "--batch", "4"), "choose a batch of 1"),
        (
            ("run", "--topology", "bush"),
            "--topology 'bush' is not known: expected one of chain, dynamic-tree, search-tree.",
        ),
        (("run", "--tree-tokens", "9"), "--tree-tokens does not apply to the shape 'chain'"),
        (
            ("run", "--topology", "dynamic-tree", "--drafter", "prompt-lookup"),
            "need a drafter with a distribution of its own",
        ),
        (("run", "--topology", "dynamic-tree", "--batch", "2"), "A tree is drafted for one text at a time"),
        (("run", "--drafter", "eagle", "--batch", "2"), "The drafter 'eagle' drafts for one text at a time"),
        (("run", "--drafter", "eagle", "--pair", "smollm2-1.7b"), "this pair has none"),
        (("sweep", "--thresholds", "0.1", "--drafter", "eagle", "--pair", "smollm2-1.7b"), "this pair has none"),
        (("sweep", "--thresholds", "0.1", "--topology", "chain", "--tree-top-k", "2"), "--tree-top-k does not apply"),
        (("train", "trigrams", "--texts", "1", "--out", "/proc/none"), "'/proc/none' cannot be used (No such file or"),
        (("train", "eagle-head", "--target", "gemma2-9b"), "No EAGLE head can be trained for 'gemma2-9b'"),
        (("train", "eagle-head", "--generation", "2"), "Heads are of generation 1 (EAGLE, EAGLE-2) or 3 (EAGLE-3)"),
        (("runs", "--limit", "0"), "--limit is 0: expected from 1 to 1000."),
        (("bench", "--threads", "0"), "--threads is 0: expected at least 1."),
        (("bench", "--synthetic", "llama-8b/1b", "--probability", "nan"), "expected from 0 to 1."),
        (("bounds", "12345"), "'12345' is too short"),
        (("bounds", "123456", "--positions", "1"), "--positions is 1: expected from 2 to 10000."),
        (("run", "--dtype", "int8"), "expected one of auto"),
        (("run", "--threshold", "-1"), "expected a number from 0 to 0.6931"),
        (("run", "--threshold", "nan"), "'nan' is not a number: expected one such as 0.1"),
        (("run", "--divergence", "tv", "--threshold", "1.01"), "beyond the range of the divergence 'tv'"),
        (("run", "--acceptance", "speculative", "--threshold", "0.1"), "--threshold does not apply"),
        (("run", "--temperature", "-0.5"), "--temperature is -0.5"),
        (("run", "--top-p", "0"), "--top-p is 0.0"),
        (("run", "--max-new-tokens", "0"), "--max-new-tokens is 0"),
        (("run", "--max-ngram", "2"), "--max-ngram does not apply to the drafter 'draft-model'"),
        (("generate", "x", "--divergence-top-k", "9"), "--divergence-top-k does not apply to the divergence 'js'"),
        (("run", "--drafter", "prompt-lookup", "--divergence", "ag"), "choose kl, js or tv"),
        (("generate", "x", "--pair", "path:/nowhere/[bold]"), "/nowhere/[bold] holds no model pair"),
        (("generate", "two\nlines\udcff"), "not valid UTF-8"),
        (("sweep", "--thresholds", "0:9:3"), "beyond the range"),
        (("sweep", "--thresholds", "0.1", "--acceptance", "speculative"), "--thresholds does not apply"),
        (("sweep", "--thresholds", "0.1", "--seed", "0", "--seed", "-1"), "--seed is -1: expected at least 0."),
        (("sweep", "--thresholds", "0.1", "--acceptance", "fsd", "--no-guard"), "--no-guard does not apply"),
        (
            ("resume", "12345"),
            "expected at least its first 6 characters. `runs` lists the ids of runs and experiments.",
        ),
        (("bench", "--threshold", "-1"), "expected a number from 0"),
        (("bench", "--draft-length", "0"), "--draft-length is 0"),
        (
            ("calibrate", "--within", "0.2"),
            "takes at least 2609 prompts beside the 64 that choose, 2673 in all, and the task 'arithmetic' has 600: "
            "take a task with 2673 prompts or more and raise --limit to 2673, or raise --within.",
        ),
        (
            ("calibrate", "--limit", "2"),
            "takes at least 245 prompts beside the 64 that choose, 309 in all, and the task 'arithmetic' has 600, of "
            "which 2 may be used: raise --limit to 309 or more (at most 600), or raise --within.",
        ),
        (("calibrate", "--limit", "280"), "or lower --choosing to 27 or less, or raise --within."),
        (("calibrate", "--task", "everyday"), "scores nothing, so no accuracy can be promised: choose --accepted or"),
        (("calibrate", "--accepted", "90"), "is 90.0: expected less than 1, for it is a share, such as 0.9 for 90 %."),
        (("calibrate", "--within", "21"), "--within is 21.0: expected at most 20"),
        (("calibrate", "--within", "1", "--fastest"), "are different goals: give one of them"),
        (("calibrate", "--accepted", "1"), "--accepted is 1.0: expected less than 1"),
        (("calibrate", "--minutes", "0"), "--minutes is 0.0: expected more than 0"),
        (("calibrate", "--limit", "601"), "a limit from 1 to 600"),
        (("calibrate", "--acceptance", "draft-only"), "drafts nothing, so a calibration cannot choose it"),
        (("calibrate", "--task", "nope"), "There is no task 'nope'"),
    ],
)
def test_bad_input_is_one_sentence_and_status_two(
    call: Call, home: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    status, out, err = call(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert err.endswith(".\n")
    assert err.count("\n") == 1
    assert sentence in err
    assert not home.exists()  # nothing was written for it


@pytest.mark.parametrize("arguments", [("nope",), ("run", "--nope"), ("resume",), ("generate",)])
def test_misuse_is_status_two_and_points_to_help(call: Call, arguments: tuple[str, ...]) -> None:
    status, out, err = call(*arguments)
    assert (status, out) == (2, "")
    assert "--help" in err
    assert "Traceback" not in err


def test_a_bad_environment_variable_is_a_sentence(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSD_PORT", "many")
    status, _, err = call("run")
    assert status == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "port" in err


@pytest.mark.parametrize(
    ("command", "option", "value", "kind"),
    [
        (("sweep",), "--draft-length", "x", "whole number"),
        (("sweep",), "--limit", "2.5", "whole number"),
        (("sweep",), "--temperature", "hot", "number"),
        (("sweep",), "--seed", "x", "whole number"),
        (("calibrate",), "--within", "lots", "number"),
        (("calibrate",), "--choosing", "2.5", "whole number"),
        (("runs",), "--limit", "all", "whole number"),
        (("bounds", "123456"), "--positions", "few", "whole number"),
        (("record", "new.gz"), "--top", "x", "whole number"),
        (("bench",), "--max-new-tokens", "x", "whole number"),
        (("train", "draft"), "--steps", "x", "whole number"),
    ],
)
def test_what_is_no_number_is_told_in_our_words(
    call: Call, command: tuple[str, ...], option: str, value: str, kind: str
) -> None:
    assert call(*command, option, value) == (2, "", f"error: {option} is '{value}': expected a {kind}.\n")


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
    assert (status, "note: Prompt: question. Reference: answer. Scorer: Number" in err) == (0, True)
    (unnamed := tmp_path / "unnamed.json").write_text('[{"n": 1, "m": 2}]')
    assert "with --prompt-field, one of 'n', 'm'" in call("task", "check", str(unnamed))[2]
    named = "--prompt-field", "question", "--reference-field", "answer", "--id-field", "number", "--scorer", "number"
    note = "note: Fields that are not used: 'level' (1 row).\nnote: To be sure of 2 points"
    status, out, err = call("task", "check", str(file), *named)
    assert (status, out, err.startswith(note)) == (0, f"{file} has 1 prompt, scored by number.\n", True)
    status, out, err = call("task", "add", str(file), *named)
    assert (status, out.startswith("sums@"), err.startswith(note)) == (0, True, True)
    assert call("task", "show", "sums")[1].splitlines()[1] == '{"id": "7", "prompt": "1 + 1?", "reference": "2"}'


def test_files_as_people_have_them_are_added_and_their_fields_told(call: Call, tmp_path: Path) -> None:
    csv = "\ufeffQuestion;Answer\r\n7 / 2 = ?;3,5\r\n"
    (table := tmp_path / "halves.csv.gz").write_bytes(gzip.compress(csv.encode()))
    status, out, err = call("task", "add", str(table), "--name", "halves")
    assert (status, out.partition(" ")[2]) == (0, "has 1 prompt, scored by number. Measure with --task halves.\n")
    assert "note: Prompt: Question. Reference: Answer. Scorer: Number, since every reference is a number." in err
    assert "note: Numbers have a decimal comma: 3,5 is read as 3.5." in err
    assert call("task", "show", "halves")[1].splitlines()[1] == '{"prompt": "7 / 2 = ?", "reference": "3.5"}'
    with zipfile.ZipFile(two := tmp_path / "two.zip", "w") as archive:
        archive.writestr("a.csv", csv)
        archive.writestr("b.csv", csv)
    status, _, err = call("task", "check", str(two))
    assert (status, "The zip holds 'a.csv', 'b.csv': expected one file." in err) == (2, True)


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
    bad.write_text("{\n" * 60)
    assert call("task", "check", str(bad))[2].splitlines()[-2] == "And 10 more."


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("check", "nowhere.jsonl"),
            "error: There is no file nowhere.jsonl: expected one of CSV, TSV, XLSX, Parquet, JSON or",
        ),
        (("check", "."), "error: . is a folder: expected one of CSV, TSV, XLSX, Parquet, JSON or JSON Lines."),
        (("add", "FILE", "--name", "../evil"), "error: The task name '../evil' cannot be used"),
        (("add", "FILE", "--name", "arithmetic"), "error: The name 'arithmetic' is that of a task of the program"),
        (("add", "FILE", "--scorer", "bleu"), "error: --scorer 'bleu' is not known: expected one of number, choice"),
        (("check", "FILE", "--scorer", ""), "error: --scorer '' is not known: expected one of number, choice, exact"),
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
    assert first.startswith("warning: broken.jsonl has 1 problem. The file is no JSON")
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
