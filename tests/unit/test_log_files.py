"""The review log as a file: every act, in words and as JSON, and no formula for a spreadsheet."""

from __future__ import annotations

import codecs
import csv
import io
import json

from fastapi import FastAPI
from fastapi.testclient import TestClient

from dashboard.review.review_page import links_html, log_routes
from fsd_core.roles import Person
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import AliasMoved, Commented, Proposed, Requirements, UseDescribed, read_event
from tests.tools.tracking_examples import run_config

FORMULA = '=HYPERLINK("http://evil.example", "é")'


def test_the_log_of_a_use_as_csv_and_json_lines(repository: Repository) -> None:
    described = UseDescribed(name="Support", description=FORMULA)
    remark = Commented(proposal="a" * 32, words="line\nline, “quoted”")
    repository.append_events("support", Person("=Ann", "admin"), [described, remark], 0)
    repository.append_events("code", Person("nightly", "author", owner="Bob"), [UseDescribed(name="Code")], 0)
    app = FastAPI()
    app.include_router(log_routes(repository))
    client = TestClient(app)
    answer = client.get("/export/review.jsonl?use=support")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="review-support.jsonl"'
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [(line["who"], line["sequence"], read_event(line["act"])) for line in lines] == [
        ("=Ann", 1, described), ("=Ann", 2, remark),
    ]  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(client.get("/export/review.csv?use=support").content.decode("utf-8-sig"))))
    assert [(row["who"], row["kind"], row["words"]) for row in rows] == [
        ("'=Ann", "use-described", f"'{FORMULA}"), ("'=Ann", "remarked", remark.words),
    ]  # fmt: skip
    assert rows[1]["proposal"] == "a" * 32
    assert json.loads(rows[1]["act"])["words"] == remark.words
    everything = list(csv.DictReader(io.StringIO(client.get("/export/review.csv").content.decode("utf-8-sig"))))
    assert [row["owner"] for row in everything] == ["", "", "Bob"]
    assert {row["pair"] for row in rows} == {""}
    assert client.get("/export/review.csv").content.startswith(codecs.BOM_UTF8)  # by which Excel reads “ and γ
    missing = client.get("/export/review.csv?use=none%0d%0aX-Evil:1")
    assert missing.status_code == 404
    assert "X-Evil" not in missing.headers
    assert 'href="export/review.csv?use=support" download' in links_html("support")


def test_each_line_about_a_setting_names_its_pair(repository: Repository) -> None:
    run = repository.run(repository.create_run(run_config()))
    proposed = Proposed(
        proposal="b" * 32, setting=run.setting_id, requirements=Requirements(), runs=(run.id,), baselines=("c" * 32,)
    )
    moved = AliasMoved(alias="candidate", setting=run.setting_id, former=None)
    events = [UseDescribed(name="Support"), proposed, Commented(proposal="b" * 32, words="Good."), moved]
    repository.append_events("support", Person("Ann", "admin"), events, 0)
    app = FastAPI()
    app.include_router(log_routes(repository))
    client = TestClient(app)
    rows = list(csv.DictReader(io.StringIO(client.get("/export/review.csv").text)))
    assert [row["pair"] for row in rows] == ["", "bundled", "bundled", "bundled"]
    lines = [json.loads(line) for line in client.get("/export/review.jsonl?use=support").text.splitlines()]
    assert [line.get("pair") for line in lines] == [None, "bundled", "bundled", "bundled"]
