"""Questions as the hub has them become the files that the tasks read. The library is the real one, the hub a folder."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest
from datasets import Dataset

from fsd_core.errors import InvalidSetting, ModelUnavailable, UnknownName
from fsd_core.storage.messages import FetchJob
from fsd_core.tasks import TASKS, Example, HubFile, Score, Split, Task, as_lines, get_task, judged
from fsd_core.tasks.base import rows as records
from fsd_core.tasks.download import fetch
from tests.tools.live_problems import ADD, ADD_TESTS, row
from tests.tools.sizes import some
from tests.tools.worker_process import Home

pytestmark = pytest.mark.processes

Call = Callable[..., tuple[int, str, str]]
NOBODY = "http://127.0.0.1:9"
"""where nobody answers"""
GSM = [
    {"question": f"What is {i} + 1?", "answer": f"{i} + 1 = <<{i}+1={i + 1}>>{i + 1}\n#### {i + 1}"} for i in range(6)
]
CSQA = [
    {"id": f"q{i}", "question": "Where?", "question_concept": "place", "answerKey": "B",
     "choices": {"label": ["A", "B"], "text": ["here", "there"]}}
    for i in range(4)
]  # fmt: skip
CODE = [
    {"task_id": "HumanEval/0", "prompt": "def one():\n", "canonical_solution": "    return 1\n", "entry_point": "one",
     "test": "def check(f):\n    assert f() == 1\n"},
]  # fmt: skip
MBPP = [
    {"task_id": i, "text": "Write one.", "code": "def one(): return 1", "test_list": ["assert one() == 1"],
     "test_setup_code": "", "challenge_test_list": []}
    for i in range(1, 975)
]  # fmt: skip
MBPP_PARTS = {"prompt": slice(10), "test": slice(10, 510), "validation": slice(510, 600), "train": slice(600, None)}
MMLU = [
    {"question": f"What of {i}?", "subject": f"subject_{i % 57:02d}", "choices": ["this", "that", "both", "none"],
     "answer": i % 4}
    for i in range(114)
]  # fmt: skip
AIME = [{"ID": "2024-I-4", "Problem": "Find x.", "Answer": 33}]
GPQA = [
    {"Record ID": "rec1", "Question": "Which?", "Correct Answer": "this", "High-level domain": "Physics",
     **{f"Incorrect Answer {i}": f"that {i}" for i in (1, 2, 3)}},
]  # fmt: skip
TRUE = [
    {"type": "Adversarial", "category": "Law", "question": "May one?", "best_answer": "No", "correct_answers": ["No"],
     "incorrect_answers": ["Yes; often", "Always"], "source": "https://example.org"},
]  # fmt: skip


def _live_file(file: Split | HubFile, hub: str) -> HubFile:
    """Return the file as one of a local folder, which is written."""
    assert isinstance(file, HubFile)
    content = json.dumps(row(ADD | {"question_content": f"Add what {file.path} asks."}, ADD_TESTS)) + "\n"
    path = Path(hub) / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return replace(file, repo=hub, size=len(content), sha256=sha256(content.encode()).hexdigest())


@pytest.fixture
def hub(tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Datasets as folders of parquet files, and an empty data folder."""
    known = {"gsm8k": GSM, "csqa": CSQA, "humaneval": CODE, "mbpp": MBPP, "mmlu": MMLU, "truthfulqa": TRUE}
    known |= {"aime-2024": AIME, "aime-2025": AIME, "gpqa-diamond": GPQA}
    live_hub = str(tmp_path / "hub" / "live")
    for name in [name for name in TASKS if name.startswith("livecodebench")]:
        monkeypatch.setattr(TASKS[name], "hub", tuple(_live_file(file, live_hub) for file in TASKS[name].hub))
    for name, rows in known.items():
        for split in {split.split for split in TASKS[name].hub if isinstance(split, Split)}:
            for part in split.split("+"):
                some = rows if "+" not in split else rows[MBPP_PARTS[part]]
                (tmp_path / "hub" / name / "data").mkdir(parents=True, exist_ok=True)
                Dataset.from_list(some).to_parquet(tmp_path / "hub" / name / "data" / f"{part}-00000-of-00001.parquet")
        local = tuple(replace(split, repo=str(tmp_path / "hub" / name), name=None) for split in TASKS[name].hub)
        monkeypatch.setattr(TASKS[name], "hub", local)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    return data_folder


@pytest.mark.parametrize("name", some((name for name, task in TASKS.items() if task.hub), "gsm8k", "livecodebench-v6"))
def test_a_task_reads_what_was_fetched(hub: Path, name: str) -> None:
    subjects = [f"subject_{i:02d}" for i in range(57)] if name == "mmlu" else [""]
    wanted = [hub / file.replace("<subject>", part) for file in TASKS[name].files for part in subjects]
    assert fetch(name, hub) == wanted
    examples = get_task(name).all_examples()
    assert examples
    assert all(example.prompt for example in examples)
    assert "huggingface.co/datasets" in (wanted[0].parent / "SOURCE.txt").read_text()
    assert fetch(name, hub) == []  # what is there is not fetched again


def test_the_files_are_those_of_the_authors(hub: Path) -> None:
    for name in ("gsm8k", "csqa", "truthfulqa"):
        fetch(name, hub)
    assert [json.loads(line) for line in (hub / "gsm8k" / "test.jsonl").read_text().splitlines()] == GSM
    first = json.loads((hub / "csqa" / "dev_rand_split.jsonl").read_text().splitlines()[0])
    assert first["question"]["choices"] == [{"label": "A", "text": "here"}, {"label": "B", "text": "there"}]
    with (hub / "truthfulqa" / "TruthfulQA.csv").open(newline="") as file:
        header, row = csv.reader(file)
    assert dict(zip(header, row, strict=True))["Incorrect Answers"] == "Yes; often; Always"
    assert not list(hub.rglob("*.part"))
    fetch("mmlu", hub)
    with (hub / "mmlu" / "subject_03_test.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [
            [f"What of {i}?", "this", "that", "both", "none", "ABCD"[i % 4]] for i in (3, 60)
        ]


class Sums(Task):
    """A task of another package."""

    name, title, files = "sums", "Sums", ("sums/test.jsonl",)

    def __init__(self, repo: Path) -> None:
        self.hub = (Split(self.files[0], str(repo), "MIT", None, "test", as_lines),)

    def all_examples(self) -> tuple[Example, ...]:
        return tuple(Example(row["question"], row["question"], row["answer"]) for row in records(self.files[0]))

    def score_answer(self, text: str, example: Example, stop_reason: str) -> Score:
        return judged(text, example, stop_reason)


def test_a_task_of_another_package_is_fetched_as_it_says(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS._things, "sums", Sums(hub.parent / "hub" / "gsm8k"))
    assert fetch("sums", hub) == [hub / "sums" / "test.jsonl"]
    assert [example.prompt for example in get_task("sums").all_examples()] == [row["question"] for row in GSM]


def test_a_release_is_fetched_as_it_is(hub: Path) -> None:
    window = "livecodebench-v5-v6:2024-10-01.."  # made by its name: its files are those of the true hub
    assert get_task(window).files == ("livecodebench/test5.jsonl", "livecodebench/test6.jsonl")
    assert fetch("livecodebench-v6", hub) == [hub / "livecodebench" / "test6.jsonl"]
    fetch("livecodebench-v5", hub)
    assert fetch(window, hub) == []
    assert get_task(window).size == 2
    live = hub / "livecodebench"
    assert live.joinpath("test6.jsonl").read_bytes() == (hub.parent / "hub" / "live" / "test6.jsonl").read_bytes()
    assert "commit 0fe84c3912ea" in live.joinpath("SOURCE.txt").read_text()
    assert sorted(path.name for path in live.iterdir()) == ["SOURCE.txt", "test5.jsonl", "test6.jsonl"]


def test_a_file_with_other_content_is_not_kept(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (hub.parent / "hub" / "live" / "test6.jsonl").write_text("{}")
    with pytest.raises(ModelUnavailable, match=r"test6\.jsonl"):
        fetch("livecodebench-v6", hub)
    assert list((hub / "livecodebench").iterdir()) == []
    monkeypatch.setattr("shutil.disk_usage", lambda path: shutil._ntuple_diskusage(10, 9, 1))
    with pytest.raises(InvalidSetting, match=r"0\.0 GB are left and 0\.0 GB are needed\): set FSD_DATA_DIR"):
        fetch("livecodebench-v6", hub)
    assert not get_task("livecodebench-v6").available


def test_what_cannot_be_fetched_is_told(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownName):
        fetch("specbench", hub)
    gone = (replace(TASKS["humaneval"].hub[0], repo=str(hub / "nowhere")),)
    monkeypatch.setattr(TASKS["humaneval"], "hub", gone)
    with pytest.raises(ModelUnavailable, match=r"humaneval/HumanEval\.jsonl\.gz"):
        fetch("humaneval", hub)
    assert not (hub / "humaneval").exists()
    hub.rmdir()
    hub.write_text("a file")
    with pytest.raises(InvalidSetting, match="set FSD_DATA_DIR to a folder that can"):
        fetch("gsm8k", hub)


def test_fetching_can_be_stopped_before_each_file(hub: Path) -> None:
    def on_file(what: str, done: int, total: int) -> None:
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("gsm8k", hub, on_file)
    assert [file.name for file in (hub / "gsm8k").glob("*.jsonl")] == ["test.jsonl"]
    assert not get_task("gsm8k").available
    assert fetch("gsm8k", hub) == [hub / "gsm8k" / "train.jsonl"]  # what was there is kept
    assert get_task("gsm8k").available


def test_a_hub_that_does_not_answer_is_told_at_once(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the library begins, which would try again for half a minute."""
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", NOBODY)
    begun: list[tuple[object, ...]] = []
    monkeypatch.setattr("datasets.load_dataset", lambda *asked, **_: begun.append(asked))
    with pytest.raises(ModelUnavailable, match="openai/openai_humaneval"):
        fetch("humaneval", data_folder)
    assert begun == []
    assert not (data_folder / "humaneval").exists()
    with pytest.raises(ModelUnavailable, match="livecodebench/code_generation_lite"):
        fetch("livecodebench-v6", data_folder)
    assert list((data_folder / "livecodebench").iterdir()) == []


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Home]:
    """A home for workers of its own."""
    home = Home(tmp_path, forked=True)
    yield home
    home.close()


def without_a_network() -> None:
    from huggingface_hub import constants

    constants.ENDPOINT = NOBODY


def with_a_folder_as_hub(repo: str) -> None:
    task = TASKS["humaneval"]
    task.hub = (replace(task.hub[0], repo=repo),)


@pytest.mark.wide
def test_a_worker_without_a_network_says_so_and_goes_on(served: Home) -> None:
    served.worker(first=without_a_network)
    job = served.repository.enqueue(FetchJob("gsm8k"))
    assert served.until_done(job) == "failed"
    assert (served.repository.job(job).error or "").startswith(
        "The dataset openai/gsm8k could not be fetched from the Hugging Face hub (Conn"
    )
    assert not (served.settings.data_folder / "gsm8k").exists()
    again = served.repository.enqueue(FetchJob("nothing"))
    assert served.until_done(again) == "failed"
    assert (served.repository.job(again).error or "").startswith("'nothing' cannot be fetched: expected one of gsm8k")


@pytest.mark.wide
def test_a_worker_fetches_between_two_prompts(hub: Path, tmp_path: Path, served: Home) -> None:
    experiment = served.repository.create_experiment(served.sweep(limit=2))
    served.held_worker(1, first=partial(with_a_folder_as_hub, str(tmp_path / "hub" / "humaneval")))
    job = served.repository.enqueue(FetchJob("humaneval"), priority=5)
    served.turnstile.allow(2)
    assert served.until_done(job) == "finished"
    served.turnstile.until_held()
    assert served.prompts_done(experiment) == 2  # it went before the rest
    assert (hub / "humaneval" / "HumanEval.jsonl.gz").exists()


def test_the_command_tells_what_it_wrote(hub: Path, call: Call) -> None:
    status, out, err = call("fetch", "gsm8k")
    about, *written = out.splitlines()
    assert (status, written) == (0, [str(hub / "gsm8k" / "test.jsonl"), str(hub / "gsm8k" / "train.jsonl")])
    assert about.startswith("GSM8K, licence MIT, from https://huggingface.co/datasets/")
    assert [line.partition(" of ")[0] for line in err.splitlines()] == [
        "Fetching gsm8k/test.jsonl", "Fetching gsm8k/train.jsonl",
    ]  # fmt: skip
    assert err.endswith(": file 2 of 2.\n")
    assert call("fetch", "gsm8k")[1].splitlines()[1:] == ["All files of gsm8k are there already."]
    status, out, err = call("fetch", "nothing")
    assert (status, out) == (2, "")
    assert err.startswith("error: 'nothing' cannot be fetched")
