"""Programs with the token of an admin at every door that is a person's, and a person at one of them."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

from fsd_core import accounts
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.settings import Settings
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from tests.tools.plausible import add_finished, new_repository
from tests.tools.raw_http import send_request
from tests.tools.served import served
from tests.tools.visitor import Visitor
from tests.tools.worker_process import Home, until

PASSWORD = "correct horse battery"
ANN = Person("Ann", "author")
FOR_PEOPLE = {
    "judged", "waived", "voted", "use-described", "alias-moved", "withdrawn", "evidence-chosen",
}  # fmt: skip


def programs_as_people(folder: Path) -> str:
    """Presses everything on every page, and calls what is for people, as a program; then one button as a person."""
    repository = new_repository(folder)
    for name, role in (("Bob", "reviewer"), ("Cat", "admin")):
        accounts.add_user(repository, name, role, PASSWORD)
    experiment = add_finished(repository)
    baseline, *_, run = repository.experiment(experiment).runs
    service = ReviewService(repository)
    service.describe(ANN, "Chat", requirements=Requirements(margin=None))
    proposal = service.propose(ANN, "chat", [run.id], [baseline.id])
    headers = {"Authorization": f"Bearer {accounts.add_token(repository, 'nightly', 'admin', 'Cat')}"}
    everything, person_of, token = {"kind": "experiment", "id": experiment}, {"id": "Bob"}, {"id": "nightly"}
    # The pages with something for people alone, and what their scripts do beside the buttons.
    doors: list[tuple[str, dict[str, str], dict[str, Any]]] = [
        ("review", {}, {}),
        ("review", {"use": "chat"}, {}),
        ("review", {"proposal": proposal}, {}),
        ("experiments", {}, {"delete": everything}),
        ("runs", {"experiment": experiment}, {"delete": everything}),
        ("runs", {"run": run.id}, {"delete": {"kind": "run", "id": run.id}}),
        (
            "people", {},
            {"revoke-token": token, "new-password": person_of, "disable-person": person_of, "enable-person": person_of},
        ),
    ]  # fmt: skip
    before, pressed = _state(repository, experiment), 0
    with served(folder, FSD_ACCESS="password") as (url, _):
        for path, query, scripted in doors:
            with Visitor(url, path, headers, **query) as program:
                program.open()
                buttons = {name: [proposal] * 8 for name in program.act_names} if path in ("review", "people") else {}
                for name, data in (buttons | scripted).items():
                    program.act(name, data)
                    pressed += 1
        calls: dict[str, dict[str, Any]] = {
            "change_use": {"use": "chat", "version": 1, "requirements": {"margin": 9}},
            "delete": {"kind": "experiment", "id": experiment},
            "withdraw": {"proposal": proposal},
            "choose_evidence": {
                "proposal": proposal,
                "runs": [run.id],
                "baselines": [baseline.id],
                "evidence": "0" * 16,
            },
        }
        for name, told in calls.items():
            status, _, body = send_request(url, "POST", f"/api/v1/calls/{name}", json.dumps(told), **headers)
            assert status == 403, (name, body)
        for path in ("/password", "/logout"):
            form = {"Content_Type": "application/x-www-form-urlencoded", **headers}
            send_request(url, "POST", path, "current=x&new=y&again=y&everywhere=yes", **form)
        assert _state(repository, experiment) == before
        signed_in = accounts.sign_in(repository, "Bob", PASSWORD, "127.0.0.1")
        cookie = {"Cookie": f"{Settings(home=folder).session_cookie}={signed_in}"}
        with Visitor(url, "review", cookie, proposal=proposal) as person:
            person.open()
            review = service.review(proposal)
            person.act("approve", [f"{review.use.sequence} {review.hash}", "Good."])
    assert service.use("chat").named("approved") == run.setting_id, "the same button does nothing for a person either"
    return f"{pressed} acts on {len(doors)} pages and {len(calls)} calls changed nothing; a person's verdict counted"


def disabled_at_work(folder: Path) -> str:
    """Somebody is disabled while the experiment that they started runs; then they ask again."""
    with closing(Home(folder)) as home:
        accounts.add_user(home.repository, "Ann", "author", PASSWORD)
        accounts.add_user(home.repository, "Cat", "admin", PASSWORD)
        token = {"Authorization": f"Bearer {accounts.add_token(home.repository, 'nightly', 'author', 'Ann')}"}
        ask = json.dumps({"settings": [{"acceptance": "speculative"}], "limit": 40})
        doors = ("/api/v1/calls/start_experiment", ask), ("/api/v1/calls/experiments", "{}")
        with served(home.settings.home, FSD_ACCESS="password") as (url, _):
            status, _, body = send_request(url, "POST", *doors[0], **token)
            assert status == 200, body
            experiment = json.loads(body)["experiment"]
            home.worker()
            until(lambda: home.prompts_done(experiment) >= 2, "two prompts")
            home.repository.set_disabled("Ann", True, "Cat")
            for door in doors:
                status, _, body = send_request(url, "POST", *door, **token)
                assert status == 401, body
            assert home.until_done(home.job_of(experiment)) == "finished"
    return "their token was refused at once; the experiment, which is the team's, was done"


def _state(repository: Repository, experiment: str) -> tuple[object, ...]:
    """What only people change."""
    log = [logged for logged in repository.review_log() if logged.event.kind in FOR_PEOPLE and logged.who == "nightly"]
    tokens = [(token.name, token.role) for token in repository.tokens()]
    return log, repository.users(), tokens, [run.id for run in repository.experiment(experiment).runs]
