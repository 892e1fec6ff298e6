"""The place where missing tasks are fetched: what it offers, what it says of them, and what a click asks for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import update

from dashboard.experiments.custom_tasks_panel import fetches, more_tasks_html, request
from fsd_core.errors import UnknownName
from fsd_core.storage.messages import FetchJob
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import JobRow, now
from fsd_core.tasks import get_task
from fsd_core.tasks.download import origin
from fsd_plugins.code import sandbox

LICENCES = {
    "gsm8k": "MIT", "csqa": "MIT", "humaneval": "MIT", "mbpp": "CC BY 4.0", "mmlu": "MIT", "truthfulqa": "Apache 2.0",
    "aime-2024": "MIT", "aime-2025": "MIT", "gpqa-diamond": "CC BY 4.0",
    **{f"livecodebench-v{version}": "CC" for version in (1, 2, 3, 4, 5, 6, "1-v6")},
}  # fmt: skip


@pytest.fixture(autouse=True)
def data(data_folder: Path) -> Path:
    """A fresh installation."""
    return data_folder


def html(repository: Repository) -> str:
    return more_tasks_html(fetches(repository), repository.worker())


def names(repository: Repository) -> list[str]:
    return [fetch.task.name for fetch in fetches(repository)]


def gsm8k(data: Path) -> None:
    (data / "gsm8k").mkdir()
    for split in ("train", "test"):
        row = {"question": "How many?", "answer": "#### 1"}
        (data / "gsm8k" / f"{split}.jsonl").write_text((json.dumps(row) + "\n") * 5)


def test_every_task_of_the_hub_is_offered_with_its_size_licence_and_source(repository: Repository) -> None:
    assert sorted(names(repository)) == sorted(LICENCES)
    page = html(repository)
    for name, licence in LICENCES.items():
        where, told = origin(name)
        assert told == licence
        assert f"{get_task(name).published:,} prompts, licence {licence}, " in page
        assert f'href="{where}"' in page
    assert page.count(">Fetch</button>") == len(LICENCES)
    assert "AddSub, SingleEq, MultiArith, SVAMP, MT-Bench, Spec-Bench and SPEED-Bench come from their authors" in page


def test_what_cannot_be_scored_here_is_not_offered(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "refusal", lambda: "No Landlock.")
    programs = {"humaneval", "mbpp"} | {name for name in LICENCES if name.startswith("livecodebench")}
    assert set(names(repository)) == set(LICENCES) - programs


def test_how_much_is_downloaded_is_told_before(repository: Repository, data: Path) -> None:
    page = html(repository)
    assert "LiveCodeBench v6 (until April 2025)" in page
    assert "175 prompts, licence CC, 134.3 MB, from " in page
    assert "1,055 prompts, licence CC, 4.5 GB, from " in page
    (data / "livecodebench").mkdir()
    (data / "livecodebench" / "test.jsonl").write_text("{}")
    assert "1,055 prompts, licence CC, 3.2 GB, from " in html(repository)


def test_a_click_leaves_one_job_however_often_it_is_made(repository: Repository) -> None:
    for _ in range(2):
        request(repository, "gsm8k")
    (job,) = repository.latest_jobs("fetch")
    assert (FetchJob.read(job.payload), job.status) == (FetchJob("gsm8k"), "queued")
    assert html(repository).count(" disabled>Fetch") == 1
    with pytest.raises(UnknownName):
        request(repository, "addsub")
    assert len(repository.latest_jobs("fetch")) == 1


def test_it_tells_how_far_a_task_is(repository: Repository, database_url: str, data: Path) -> None:
    request(repository, "gsm8k")
    assert "Waiting: nothing fetches now. The head of this page says what is missing." in html(repository)
    repository.report_worker(1, "here", "cpu", "Fetching gsm8k/test.jsonl of openai/gsm8k: file 1 of 2")
    assert "The worker will begin shortly." in html(repository)
    job = repository.claim(("fetch",), 60)
    assert job is not None
    assert job.claim_token is not None
    assert "Fetching gsm8k/test.jsonl of openai/gsm8k: file 1 of 2." in html(repository)
    repository.finish_job(job.id, job.claim_token, "failed", "The hub <b>does not</b> answer.")
    assert "The hub &lt;b&gt;does not&lt;/b&gt; answer." in html(repository)
    assert " disabled>" not in html(repository)  # it may be tried again

    request(repository, "gsm8k")
    job = repository.claim(("fetch",), 60)
    assert job is not None
    assert job.claim_token is not None
    gsm8k(data)
    repository.finish_job(job.id, job.claim_token, "finished")
    assert "GSM8K is in the list of tasks." in html(repository)
    assert html(repository).count(">Fetch</button>") == len(LICENCES) - 1
    with repository._database.session() as session:
        session.execute(update(JobRow).values(finished_at=now().replace(year=2020)))
    assert "gsm8k" not in names(repository)  # that is no news any more


def test_a_job_that_is_damaged_is_left_aside(repository: Repository) -> None:
    request(repository, "csqa")
    with repository._database.session() as session:
        session.execute(update(JobRow).values(payload={"task": 3}))
    assert sorted(names(repository)) == sorted(LICENCES)
    assert " disabled>" not in html(repository)
