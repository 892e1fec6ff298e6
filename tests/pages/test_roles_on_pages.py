"""Every page opens for everybody, and what a role may not do is refused in a sentence, whatever a browser sends."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Table

from dashboard.compare.compared_runs import compare
from dashboard.tables.prompt_pairs import _marking
from dashboard.ui.components import LOOKS, refusal
from fsd_core import accounts
from fsd_core.config.model_names import name_of_models
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import NOBODY, ROLES, Person
from fsd_core.rules import Served
from fsd_core.storage.messages import PlaygroundJob
from fsd_core.storage.records import Edit
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from fsd_core.storage.tables import Base, Utc
from fsd_core.tasks.custom.custom_task import CustomTask, keep
from fsd_core.tasks.custom.reading import check
from fsd_plugins.reports.section import PARTS, frozen_comparison
from tests.tools.every_page import every_page
from tests.tools.plausible import add_finished, filled_file, sweep
from tests.tools.shown_page import Application, Read, ShownPage

ANN = Person("Ann", "author")
PEOPLE = {role: Person(name, role) for name, role in zip(("Eve", "Dan", "Bob", "Cat"), ROLES, strict=True)}
EVERYBODY = (*PEOPLE.values(), NOBODY)
RESULT = Path(__file__).resolve().parents[1] / "data" / "results" / "vllm-bench-serve.json"
TASK = b'{"scorer": "number"}\n{"prompt": "2 + 3 = ?", "reference": 5}\n'
REFUSED = (
    "needs the role (author|reviewer|admin), and (Eve|Dan|Bob) is|is for its author, Ann, and for admins|"
    "only they and admins may|has no token|are for admins"
)
ENDPOINT = {
    "Endpoint's name": "mine", "Runs on": "One CPU", "Address": "http://127.0.0.1:9/v1",
    "Model, as the engine calls it": "hen", "Ask the engine before it is added": False,
}  # fmt: skip


def upload(content: bytes, **more: Any) -> dict[str, Any]:
    return {"action": "add", "file": "x.jsonl", "size": len(content), "data": base64.b64encode(content).decode()} | more


class Deed(NamedTuple):
    """Something that can be done on a page: the page, the act, what is sent, and the role that it needs.

    Of a button, what is sent are the values of the fields, except those that are named here.
    """

    page: str
    act: str
    sent: Mapping[str, Any] = {}
    needs: str = "author"
    stored: bool = True
    """whether the database is another one afterwards, without a hub, an engine or a calibration"""

    @property
    def name(self) -> str:
        return f"{self.page} {self.act}"


def own(kind: str, id: str) -> dict[str, str]:
    return {"kind": kind, "id": id}


CHOSEN = {"limit": 2, "pair": "bundled", "task": "mine"}
DEEDS = [
    Deed("/playground", "stop", {"job": "{job}"}, "viewer"),
    Deed("/playground", "generate", {}, "viewer"),
    Deed("/playground", "keep prompt", {"job": "{job}", "task": "mine", "reference": "5"}),
    Deed("/experiments", "start", {"Name": "New"}),
    Deed("/experiments", "find", {"Name": "New"}),
    Deed("/experiments", "cancel", own("experiment", "{queued}")),
    Deed("/experiments", "resume", own("experiment", "{failed}")),
    Deed("/experiments", "delete", own("experiment", "{failed}"), "admin"),
    Deed("/experiments", "archive", own("experiment", "{failed}")),
    Deed("/experiments", "unarchive", own("experiment", "{archived}")),
    Deed("/experiments", "go-on", own("experiment", "{failed}"), stored=False),
    Deed("/experiments", "time-again", own("experiment", "{failed}"), stored=False),
    Deed("/experiments", "fetch", own("task", "gsm8k")),
    Deed("/experiments", "custom task", upload(TASK, identifier="new", **CHOSEN)),
    Deed("/experiments", "dropped file", upload(TASK, **CHOSEN)),
    Deed("/experiments", "check models", {"Target": "farm/Hen"}, stored=False),
    Deed("/experiments", "add models", {"Target": "farm/Hen", "Pair's name": "hens"}, stored=False),
    Deed("/experiments", "suggest drafts", {"Target": "farm/Hen"}, stored=False),
    Deed("/experiments", "search models", {"Search the hub": "hen"}, stored=False),
    Deed("/experiments", "use model", own("target", "farm/Hen"), "viewer", stored=False),
    Deed("/experiments", "fetch models", own("pair", "qwen2.5-7b")),
    Deed("/experiments", "cancel fetch", own("pair", "qwen2.5-14b"), stored=False),
    Deed("/experiments", "forget models", own("pair", "hens")),
    Deed("/experiments", "add endpoint", ENDPOINT, "admin", stored=False),
    Deed("/experiments", "check endpoint", own("endpoint", "here"), stored=False),
    Deed("/experiments", "forget endpoint", own("endpoint", "here"), "admin"),
    Deed("{compare}", "mark", {"run": "{run}", "position": "0", "verdict": "good"}),
    Deed("{compare}", "save report", {"Report title": "Mine"}),
    Deed("{compare}", "save view", {"Name of the view": "Mine"}),
    Deed("/compare", "rename-view", own("view", "{view}") | {"text": "Mine"}, "admin"),
    Deed("/compare", "delete-view", own("view", "{view}"), "admin"),
    *(
        Deed(page, "sort", own("order", order), "viewer", stored=False)
        for page, order in (
            ("/runs", "oldest"),
            ("/settings", "runs"),
            ("/reports", "by"),
            ("{use_page}", "who"),
            ("/people", "role"),
        )
    ),
    Deed("/runs", "save view", {"Name of the view": "Mine", "Search": "js"}),
    Deed("/runs", "rename-view", own("view", "{runs_view}") | {"text": "Mine"}, "admin"),
    Deed("/runs", "delete-view", own("view", "{runs_view}"), "admin"),
    Deed("/runs", "import results", upload(RESULT.read_bytes(), file="bench.json")),
    Deed("{run_page}", "annotate run", {"Note": "Mine"}),
    Deed("{run_page}", "try reading", {"Regular expression for the answer": "x"}, "viewer", stored=False),
    Deed("{run_page}", "score again", {"Regular expression for the answer": "x"}, stored=False),
    Deed("/runs?experiment={failed}", "annotate experiment", {"Note": "Mine"}),
    Deed("/runs?experiment={queued}", "cancel", own("experiment", "{queued}")),
    Deed("/runs?experiment={failed}", "resume", own("experiment", "{failed}")),
    Deed("/runs?run={run}", "delete", own("run", "{run}"), "admin"),
    Deed("/runs?run={run}", "archive", own("run", "{run}")),
    Deed("/runs?experiment={archived}", "unarchive", own("experiment", "{archived}")),
    Deed("/runs?experiment={failed}", "go-on", own("experiment", "{failed}"), stored=False),
    Deed("/runs?experiment={failed}", "time-again", own("experiment", "{failed}"), stored=False),
    Deed("/review", "make a use", {"Name": "Mine"}),
    Deed("{use_page}", "change the use", {"Speed": 1.7}, "admin"),
    Deed("/review?use={approved}", "roll back", {"Why the approval is taken back": "It repeats itself."}, "admin"),
    Deed("{propose}", "propose", {"Use": "{approved}", "Rationale": "Mine"}),
    *(Deed("{proposal}", f"vote {choice}") for choice in ("Left", "Right", "Tie", "Both bad")),
    Deed("{proposal}", "stop voting"),
    Deed("{proposal}", "mark", {"run": "{run}", "position": "0", "verdict": "good"}),
    Deed("{proposal}", "choose evidence", {"Evidence": ["a" * 32], "Baselines": ["b" * 32]}, "admin", stored=False),
    Deed("{approvable}", "approve", {}, "reviewer"),
    Deed("{proposal}", "request changes", {"Comment on the verdict": "More prompts"}, "reviewer"),
    Deed("{proposal}", "decline", {"Comment on the verdict": "No"}, "reviewer"),
    Deed("{proposal}", "withdraw", {"Comment on the verdict": "No"}, "admin"),
    Deed("{proposal}", "waive", {"Why that is acceptable": "A toy"}),
    Deed("{proposal}", "ask for verdicts", {"Reviewers": ["Bob"]}),
    Deed("{proposal}", "comment", {"Comment": "Why?"}),
    Deed("{proposal}", "comment on", {"run": "{lenient}", "position": "0", "words": "Why?"}),
    Deed("/reports?report={report}", "delete-report", own("report", "{report}"), "admin"),
    Deed("/theory", "measure bounds"),
    Deed("/people", "make a token", {"Name of the token": "mine"}, "viewer"),
    Deed("/people", "add a person", {"Name of the person": "Fay"}, "admin"),
    Deed("/people", "change a role", {"Name of the person": "Eve", "Role of the person": "author"}, "admin"),
    Deed("/people", "revoke-token", own("token", "nightly"), "admin"),
    Deed("/people", "new-password", own("person", "Eve"), "admin"),
    Deed("/people", "disable-person", own("person", "Eve"), "admin"),
    Deed("/people", "enable-person", own("person", "Gil"), "admin"),
]


def first_of_each(deeds: Iterable[Deed]) -> list[Any]:
    """Each act once in the gate, and on the other pages, or with another choice, in ``make test-all``."""
    first = {deed.act.partition(" ")[0] if deed.act.startswith("vote") else deed.act: deed for deed in reversed(DEEDS)}
    return [deed if deed in first.values() else pytest.param(deed, marks=pytest.mark.wide) for deed in deeds]


def lived_in(repository: Repository) -> dict[str, str]:
    """Fills a database with something to do for every button. Returns what addresses and acts name."""
    for name, role in (("Ann", "author"), ("Bob", "reviewer"), ("Cat", "admin"), ("Eve", "viewer"), ("Gil", "viewer")):
        accounts.add_user(repository, name, role, "long enough a password")
    repository.set_disabled("Gil", True, "Cat")
    accounts.add_token(repository, "nightly", "viewer", "Ann")
    failed = repository.create_experiment(sweep("Failed", limit=3))
    job = repository.claim(("experiment",), 600)
    assert job is not None
    repository.finish_job(job.id, str(job.claim_token), "failed", "The worker was lost.")
    archived = repository.create_experiment(sweep("Archived", limit=3), enqueue=False)
    repository.annotate("experiment", archived, Edit(archived=True), ANN)
    repository.add_engine(
        Served.checked(endpoint="here", engine="vllm", url=ENDPOINT["Address"], model="hen"), "", "Ann"
    )
    keep(
        repository,
        CustomTask.of("mine", check(b'{"scorer": "number"}\n{"prompt": "1 + 1 = ?", "reference": 2}')),
        "Ann",
    )
    queued = repository.create_experiment(sweep("Queued", limit=3))
    repository.add_pair("hens", name_of_models({"target": "farm/Hen-7B"}), "Ann")
    runs = repository.experiment(add_finished(repository, limit=8)).runs
    pages = every_page(repository)
    asked = PlaygroundJob.of("bundled", "2 + 3 = ?", 0, [runs[2].decoding], None)
    report, view, runs_view = ("1" * 32, "2" * 32, "3" * 32)
    comparison = compare(repository, [run.id for run in runs], None)
    repository.add_report(report, frozen_comparison(comparison, "Ann's", "", list(PARTS)), "Ann")
    repository.save_view(view, "compare", "Ann's", f"runs={runs[0].id}", ANN)
    repository.save_view(runs_view, "runs", "Ann's", "sort=oldest", ANN)
    service = ReviewService(repository)
    anything = service.describe(ANN, "Anything goes", "", Requirements(margin=None)).id
    first = service.review(service.propose(ANN, anything, [runs[3].id], [runs[0].id]))
    service.submit_review(PEOPLE["reviewer"], first, "approve", "", first.use.sequence)
    approvable = service.propose(ANN, anything, [runs[2].id], [runs[0].id])
    names = {"failed": failed, "archived": archived, "queued": queued, "run": runs[3].id, "report": report}
    names |= {"view": view, "runs_view": runs_view, "approved": anything, "job": repository.enqueue(asked)}
    names |= {"compare": pages["compare"], "run_page": pages["run"], "use_page": pages["use"]}
    names |= {"propose": pages["propose"], "proposal": pages["proposal"], "lenient": pages["run"].partition("=")[2]}
    return names | {"approvable": f"/review?proposal={approvable}"}


class Lived(NamedTuple):
    file: Path
    names: dict[str, str]


@pytest.fixture(scope="session")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Lived:
    """The file of a database in which everything can be done, and what is in it."""
    return Lived(*filled_file(tmp_path_factory.mktemp("lived"), lived_in))


@pytest.fixture
def repository(application: Application, lived: Lived) -> Repository:
    """A database in which everything can be done, which the pages show."""
    return application.show(lived.file)


@pytest.fixture(scope="module")
def opened(application: Application, lived: Lived) -> dict[Any, ShownPage]:
    """Pages that are open already, by their address and who looks: what is refused changes none."""
    application.show(lived.file)
    return {}


def stored(repository: Repository) -> dict[str, list[Any]]:
    """All rows of all tables, without their times."""
    with repository._database.engine.connect() as connection:
        return {name: [*map(tuple, connection.exec_driver_sql(query))] for name, query in _QUERIES.items()}


def _query(table: Table) -> str:
    names = (f'"{column.name}"' for column in table.columns if not isinstance(column.type, Utc))
    return f"SELECT {', '.join(names)} FROM {table.name} ORDER BY rowid"


_QUERIES = {table.name: _query(table) for table in Base.metadata.sorted_tables if table.name != "traces"}
"""Traces come and go with their generations."""


def filled(value: Any, names: Mapping[str, str]) -> Any:
    """What is sent, with the ids of this database."""
    return value.format(**names) if isinstance(value, str) and value.startswith("{") and value.endswith("}") else value


def send(page: ShownPage, deed: Deed, names: Mapping[str, str]) -> None:
    """Send the act, whatever the page offers."""
    page.do(deed.act, page.sent(deed.act, {name: filled(value, names) for name, value in deed.sent.items()}))


def test_every_act_of_every_page_is_tried(application: Application, lived: Lived) -> None:
    offered = {(page.path, act) for page in application.pages.values() for act in page.acts}
    assert len(offered) > 60
    assert {
        (deed.page.format(**lived.names).removeprefix("/").partition("?")[0], deed.act) for deed in DEEDS
    } == offered


@pytest.mark.parametrize("person", EVERYBODY, ids=lambda person: person.name)
def test_every_page_opens_for_everybody_and_changes_nothing(
    application: Application, lived: Lived, person: Person
) -> None:
    repository = application.show(lived.file)
    before = stored(repository)
    for name, address in {**every_page(repository), "people": "/people"}.items():
        if name != "nothing":  # the server says that there is no such page
            page = application.open(address, person)
            assert len(page.text) > 150, name
            assert "Playground" in page.text, name
            if person is PEOPLE["admin"]:
                assert page.look() == set(), f"{name}: a second look draws nothing"
    assert stored(repository) == before


@pytest.mark.parametrize("person", [PEOPLE["viewer"], NOBODY], ids=lambda person: person.name)
def test_who_may_only_look_changes_nothing_whatever_they_send(
    application: Application, lived: Lived, person: Person
) -> None:
    repository = application.show(lived.file)
    before = stored(repository)
    sent = [deed for deed in DEEDS if deed.needs != "viewer"]
    for address in dict.fromkeys(deed.page for deed in sent):
        page = application.open(address.format(**lived.names), person)
        deeds = [deed for deed in sent if deed.page == address]
        told = [{name: filled(value, lived.names) for name, value in deed.sent.items()} for deed in deeds]
        page.do_all((deed.act, page.sent(deed.act, given)) for deed, given in zip(deeds, told, strict=True))
        assert page.told, address
    assert stored(repository) == before


@pytest.mark.parametrize("deed", [deed for deed in DEEDS if deed.needs != "viewer"], ids=lambda deed: deed.name)
def test_the_role_below_is_refused_in_a_sentence(
    application: Application, lived: Lived, opened: dict[Any, ShownPage], deed: Deed
) -> None:
    person = PEOPLE[ROLES[ROLES.index(deed.needs) - 1]]
    address = deed.page.format(**lived.names)
    page = opened.get((address, person)) or opened.setdefault((address, person), application.open(address, person))
    send(page, deed, lived.names)
    assert re.search(REFUSED, page.told), page.told


@pytest.mark.parametrize("deed", first_of_each(deed for deed in DEEDS if deed.stored), ids=lambda deed: deed.name)
def test_the_role_itself_does_it_once(
    application: Application, lived: Lived, repository: Repository, deed: Deed
) -> None:
    address, before = deed.page.format(**lived.names), stored(repository)
    page = application.open(address, PEOPLE[deed.needs], look=not deed.sent.keys() & {"kind", "action", "run", "job"})
    send(page, deed, lived.names)
    answered = page.answered.replace("Withdrawing it is for its author, Ann, and for admins.", "")
    for name, _ in page.built.view._buttons.values():  # why others are disabled
        answered = answered.replace(refusal(page.person, name, page.built.view._check_role) or "\0", "")
    assert not re.search(REFUSED, answered)
    assert (after := stored(repository)) != before
    page.again()
    assert stored(repository) == after


@pytest.mark.parametrize("person", EVERYBODY, ids=lambda person: person.name)
def test_who_may_not_do_a_thing_sees_it_disabled_with_the_reason(
    application: Application, lived: Lived, person: Person
) -> None:
    application.show(lived.file)
    seen = set()
    for address in dict.fromkeys(deed.page for deed in DEEDS):
        page = application.open(address.format(**lived.names), person)
        needs = {deed.act: deed.needs for deed in DEEDS if deed.page == address}
        for button, (act, _) in page.built.buttons.items():
            if act not in needs or act in ("withdraw", "choose evidence") or not page._is_visible(button):
                continue
            seen.add(act)
            reason = refusal(person, act, page.built.view._check_role)
            assert bool(reason) is not person.may(needs[act]), f"{act} on {address}"
            if reason:
                assert page._prop(button, "interactive") is False, f"{act} on {address}"
                assert reason in page.text, f"{act} on {address}"
        for one in page.elements("button"):
            if (act := str(one.attributes.get("data-act"))) in needs and not act.endswith(("view", "report")):
                seen.add(act)
                if not person.may(needs[act]):
                    assert "disabled" in one.attributes, f"{act} on {address}"
                    assert one.attributes["title"] == refusal(person, act), f"{act} on {address}"
        for fields in page.elements("fieldset"):
            if act := fields.attributes.get("data-needs"):
                seen.add(act)
                assert bool(page.barred.get(act)) is not person.may("author"), f"{act} on {address}"
    assert {"custom task", "dropped file", "import results", "save report"} < seen
    assert seen > {"roll back", "approve", "delete", "waive", "archive", "start", "forget endpoint", "change the use"}


@pytest.mark.parametrize("role", ROLES)
def test_who_may_not_mark_an_output_sees_it_disabled_with_the_reason(role: str) -> None:
    before = LOOKS.set(person := PEOPLE[role])
    buttons = [one for one in Read(_marking([], "Ann", True)).elements if one.tag == "button"]
    LOOKS.reset(before)
    assert len(buttons) == 4
    for one in buttons:
        act = "comment on" if one.text == "Comment on it" else "mark"
        assert ("disabled" in one.attributes) is not person.may("author")
        if reason := refusal(person, act):
            assert one.attributes["title"] == reason
