"""Questions of a task become files from a hub: stopped and continued, and nothing half kept."""

from __future__ import annotations

import csv
import json
import resource
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from urllib.request import urlopen

import pytest
from datasets import Dataset

from fsd_core.errors import Cancelled, InvalidSetting, ModelUnavailable, UnknownName
from fsd_core.models import hub_files
from fsd_core.settings import Settings
from fsd_core.storage.messages import FetchJob
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.repository import Repository
from fsd_core.tasks import TASKS, Example, HubFile, Score, Split, Task, as_lines, get_task, judged
from fsd_core.tasks.base import rows as records
from fsd_core.tasks.download import fetch
from fsd_core.worker.worker import Worker
from tests.tools.live_problems import ADD, ADD_TESTS, row
from tests.tools.sizes import PATIENCE, some
from tests.tools.stand_in_hub import Repo, StandInHub, stand_in_hub, use_hub
from tests.tools.worker_process import Home, until

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


@pytest.mark.processes
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


@pytest.mark.processes
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


@pytest.mark.processes
def test_a_task_of_another_package_is_fetched_as_it_says(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS._things, "sums", Sums(hub.parent / "hub" / "gsm8k"))
    assert fetch("sums", hub) == [hub / "sums" / "test.jsonl"]
    assert [example.prompt for example in get_task("sums").all_examples()] == [row["question"] for row in GSM]


@pytest.mark.processes
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


@pytest.mark.processes
def test_a_file_with_other_content_is_not_kept(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (hub.parent / "hub" / "live" / "test6.jsonl").write_text("{}")
    with pytest.raises(ModelUnavailable, match=r"test6\.jsonl"):
        fetch("livecodebench-v6", hub)
    assert list((hub / "livecodebench").iterdir()) == []
    monkeypatch.setattr("shutil.disk_usage", lambda path: shutil._ntuple_diskusage(10, 9, 1))
    with pytest.raises(InvalidSetting, match=r"0\.0 GB are left and 0\.0 GB are needed\): set FSD_DATA_DIR"):
        fetch("livecodebench-v6", hub)
    assert not get_task("livecodebench-v6").available


@pytest.mark.processes
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


@pytest.mark.processes
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


@pytest.mark.processes
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


@pytest.mark.processes
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


@pytest.mark.processes
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


@pytest.mark.processes
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


TASK, NAME = "livecodebench-v6", "test6.jsonl"
LINES = "".join(json.dumps({"question_id": i, "padding": "x" * 10_000}) + "\n" for i in range(300)).encode()


@pytest.fixture
def fetch_hub(tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInHub]:
    """A hub that has the task's file."""
    folder = tmp_path / "hub"
    folder.mkdir()
    (folder / NAME).write_bytes(LINES)
    repo = Repo(folder)
    file = HubFile(f"livecodebench/{NAME}", "me/live", "CC", NAME, repo.commit, len(LINES), sha256(LINES).hexdigest())
    monkeypatch.setattr(TASKS[TASK], "hub", (file,))
    monkeypatch.setattr(hub_files, "_PAUSE", 0.0)
    with stand_in_hub() as hub:
        use_hub(hub.url, monkeypatch)
        hub.repos["me/live"] = repo
        yield hub


def kept(data_folder: Path) -> list[str]:
    return sorted(path.name for path in (data_folder / "livecodebench").iterdir())


def test_a_fetch_goes_on_in_the_middle_of_a_file(fetch_hub: StandInHub, data_folder: Path) -> None:
    told: list[int] = []

    def stop(done: int, size: int) -> None:
        assert size == len(LINES)
        told.append(done)
        if done > size // 2:
            raise Cancelled("Enough.")

    with pytest.raises(Cancelled):
        fetch(TASK, data_folder, on_size=stop)
    assert kept(data_folder) == [f"{NAME}.part"]
    fetch_hub.cut_at, fetch_hub.cuts = len(LINES) * 3 // 4, 1  # and the connection breaks once more
    (path,) = fetch(TASK, data_folder)
    assert fetch_hub.firsts(NAME) == [0, told[-1], fetch_hub.cut_at]
    assert path.read_bytes() == LINES
    assert kept(data_folder) == ["SOURCE.txt", NAME]
    assert fetch(TASK, data_folder) == []


def test_a_cut_is_for_requests_that_come_afterwards(fetch_hub: StandInHub) -> None:
    """One that was given up may still be sent when a test wants the next one cut, and would take the cut."""
    fetch_hub.held_from = len(LINES) // 2
    with closing(urlopen(f"{fetch_hub.url}/me/live/resolve/main/{NAME}", timeout=PATIENCE)) as earlier:
        fetch_hub.held_from, fetch_hub.cut_at, fetch_hub.cuts = None, len(LINES) * 3 // 4, 1
        fetch_hub.go_on.set()
        assert earlier.read() == LINES
    assert fetch_hub.cuts == 1


def test_what_cannot_be_whole_is_told(fetch_hub: StandInHub, data_folder: Path) -> None:
    fetch_hub.cut_at = len(LINES) // 2
    with pytest.raises(ModelUnavailable, match=r"1\.5"):
        fetch(TASK, data_folder)
    assert kept(data_folder) == [f"{NAME}.part"]
    fetch_hub.cut_at, fetch_hub.damaged = None, True
    (data_folder / "livecodebench" / f"{NAME}.part").unlink()
    with pytest.raises(ModelUnavailable, match="as the hub has it"):
        fetch(TASK, data_folder)
    assert kept(data_folder) == []
    del fetch_hub.repos["me/live"]
    with pytest.raises(ModelUnavailable, match="RepositoryNotFoundError"):
        fetch(TASK, data_folder)
    assert kept(data_folder) == []


def test_a_full_disk_keeps_nothing(fetch_hub: StandInHub, data_folder: Path) -> None:
    """A file of this process may not grow beyond a limit, so the real write fails in the middle."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(LINES) // 2, limits[1]))
    try:
        with pytest.raises(InvalidSetting, match=r"test6\.jsonl cannot be written .* has room for it"):
            fetch(TASK, data_folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert kept(data_folder) == []


@pytest.mark.wide
def test_a_worker_is_stopped_in_a_file_and_the_next_job_goes_on(
    fetch_hub: StandInHub, data_folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsd_core.worker.job_executor.PROGRESS", 0.0)  # every piece is told, and may be the last
    settings = Settings(
        home=home, data_dir=data_folder, mlflow_uri="http://127.0.0.1:9", mlflow_ui=False, threads=1, device="cpu"
    )
    settings.make_folders()
    upgrade(settings.resolved_database_url)
    database = open_database(settings.resolved_database_url)
    repository, worker = Repository(database), Worker(settings)
    fetch_hub.held_from = len(LINES) // 2
    job = repository.enqueue(FetchJob(TASK))
    thread = threading.Thread(target=worker.run_as_thread)
    thread.start()
    try:
        partial = data_folder / "livecodebench" / f"{NAME}.part"
        until(lambda: partial.exists() and partial.stat().st_size > len(LINES) // 4, "some bytes")
        until(lambda: (seen := repository.worker()) and " of 3 MB" in seen.activity, "the bytes on the pages")
        repository.request_cancel(job)
        fetch_hub.go_on.set()
        until(lambda: repository.job(job).status == "cancelled", "the end of the fetch")
        assert partial.exists()
        second = repository.enqueue(FetchJob(TASK))
        until(lambda: repository.job(second).status == "finished", "the end of the fetch")
    finally:
        worker.stop()
        thread.join()
        database.close()
    assert fetch_hub.firsts(NAME)[1] > len(LINES) // 4
    assert (data_folder / "livecodebench" / NAME).read_bytes() == LINES
