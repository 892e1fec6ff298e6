"""What happens in reviews reaches a webhook and mailboxes, signed, once each, and to nowhere else."""

from __future__ import annotations

import email
import hashlib
import hmac
import json
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.policy import default
from pathlib import Path

import pytest
import typer
from sqlalchemy import update

from fsd_core.errors import Misconfigured, NotDelivered, Refused, UnknownChoice
from fsd_core.review.history import WaitingCount, waiting_for
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.settings import Settings
from fsd_core.storage.messages import NoticeContent, OutboxMessage
from fsd_core.storage.records import RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Commented, Requirements
from fsd_core.storage.tables import OutboxRow, ReviewEventRow
from fsd_core.worker.supervisor import Supervisor
from fsd_plugins.notices.commands import try_channels
from fsd_plugins.notices.notifier import (
    MOST_ATTEMPTS,
    Channels,
    MailChannel,
    Notifier,
    WebhookChannel,
    body_of,
    configured_channels,
    mail_of,
)
from tests.tools.plausible import add_finished, new_repository
from tests.tools.receivers import Hook, Mailbox, mail_receiver, webhook_receiver

ANN, BOB, CAT = Person("Ann", "author"), Person("Bob", "reviewer"), Person("Cat", "admin")
SECRET = "a secret of some length"


@pytest.fixture(scope="module")
def hook() -> Iterator[Hook]:
    with webhook_receiver() as hook:
        yield hook


@pytest.fixture(scope="module")
def box() -> Iterator[Mailbox]:
    with mail_receiver() as box:
        yield box


@pytest.fixture(autouse=True)
def nothing_arrived(hook: Hook, box: Mailbox) -> None:
    hook.posts.clear()
    box.mails.clear()
    hook.status, box.refuse = 204, ""


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = new_repository(tmp_path)
    add_finished(repository, limit=24)
    return repository


@pytest.fixture
def runs(repository: Repository) -> list[RunView]:
    (experiment,) = repository.experiments()
    return list(repository.experiment(experiment.id).runs)


@pytest.fixture
def service(repository: Repository) -> ReviewService:
    return ReviewService(repository)


def by_webhook(hook: Hook) -> Channels:
    return Channels(WebhookChannel(f"{hook.url}/hook?room=1", SECRET, private=True), None)


def by_mail(box: Mailbox, to: str) -> Channels:
    return Channels(None, MailChannel("127.0.0.1", box.port, "none", "lab@example.org", to))


def begun(repository: Repository, channels: Channels, url: str = "") -> Notifier:
    notifier = Notifier(repository, channels, url)
    notifier.begin()
    return notifier


def send_all(notifier: Notifier, at: datetime | None = None) -> None:
    notifier.queue(at)
    while notifier.send_one():
        pass


def proposed(service: ReviewService, runs: list[RunView], which: int = 3, **options: object) -> str:
    uses = service.uses()
    use = uses[0].id if uses else service.describe(ANN, "Support chat", "", Requirements(margin=20), days=3).id
    return service.propose(ANN, use, [runs[which].id], [runs[0].id], "Fast", **options)  # pyright: ignore[reportArgumentType]


def judge(service: ReviewService, person: Person, proposal: str, verdict: str, comment: str = "") -> None:
    review = service.review(proposal)
    service.submit_review(person, review, verdict, comment, review.use.sequence)  # pyright: ignore[reportArgumentType]


def told(hook: Hook) -> list[tuple[str, str]]:
    bodies = [json.loads(body) for _, body in hook.posts]
    return [(body["kind"], body["text"]) for body in bodies]


def due_now(repository: Repository) -> None:
    with repository._database.session() as session:
        session.execute(update(OutboxRow).values(due_at=datetime.now(UTC) - timedelta(seconds=1)))


@pytest.mark.wide
def test_everything_that_is_promised_is_posted_once_and_signed(
    repository: Repository, service: ReviewService, runs: list[RunView], hook: Hook
) -> None:
    before = proposed(service, runs, 4)  # before anything was configured
    notifier = begun(repository, by_webhook(hook), "https://lab.example.org/lab/")
    id = proposed(service, runs, reviewers=["Bob"])
    service.comment(BOB, service.review(id), "More prompts?\nPlease.")
    judge(service, BOB, id, "request changes", "More prompts.")
    judge(service, BOB, id, "approve")
    service.roll_back(CAT, "support-chat", "It repeats itself.", service.use("support-chat").sequence)
    judge(service, BOB, before, "decline", "No.")
    for _ in range(2):
        send_all(notifier)
    send_all(begun(repository, by_webhook(hook)))  # another process
    label = service.labels(service.uses())[runs[3].setting_id]
    named = f"{label} for Support chat"
    assert told(hook) == [
        ("review-requested", f"Ann asks Bob to review {named}."),
        ("commented", f"Bob comments on {named}."),
        ("changes-requested", f"Bob asks for changes to {named}."),
        ("approved", f"Bob approves {named}. It is the approved setting now."),
        ("rolled-back", f"Cat takes back the approval of {label} for Support chat: nothing is approved now."),
        ("declined", f"Bob declines {service.labels(service.uses())[runs[4].setting_id]} for Support chat."),
    ]
    headers, body = hook.posts[1]
    content = json.loads(body)
    assert content["words"] == "More prompts?\nPlease."
    assert (content["use"], content["proposal"]) == ("support-chat", id)
    assert content["page"] == f"https://lab.example.org/lab/review?proposal={id}"
    assert (headers["fsd-message"], headers["fsd-kind"]) == (content["id"], "commented")
    signed = hmac.new(SECRET.encode(), headers["fsd-timestamp"].encode() + b"." + body, hashlib.sha256).hexdigest()
    assert headers["fsd-signature"] == f"v1={signed}"
    assert len({json.loads(body)["id"] for _, body in hook.posts}) == len(hook.posts)


@pytest.mark.wide
def test_a_message_waits_for_a_receiver_that_is_down_and_keeps_its_id(
    repository: Repository, service: ReviewService, runs: list[RunView], caplog: pytest.LogCaptureFixture
) -> None:
    with webhook_receiver() as down:
        channels, port = by_webhook(down), int(down.url.rpartition(":")[2])
    notifier = begun(repository, channels)
    proposed(service, runs)
    send_all(notifier)
    (waiting,) = repository.unsent_messages()
    assert (waiting.attempts, waiting.error) == (1, "http://127.0.0.1 did not take the message: Connection refused.")
    assert not notifier.send_one()  # not before it is due
    with webhook_receiver(port) as up:
        up.status = 500
        due_now(repository)
        assert notifier.send_one()
        up.status = 200
        due_now(repository)
        assert begun(repository, channels).send_one()  # of a process that was started anew
        ids = [json.loads(body)["id"] for _, body in up.posts]
        assert (ids, up.posts[0][1]) == ([waiting.id] * 2, up.posts[1][1])
    assert repository.unsent_messages() == []
    assert "answered with status 500" not in caplog.text  # the first failure and the last are logged
    assert SECRET not in caplog.text


def test_a_sender_that_was_killed_leaves_the_message_to_the_next(
    repository: Repository, service: ReviewService, runs: list[RunView], hook: Hook
) -> None:
    channels = by_webhook(hook)
    notifier = begun(repository, channels)
    proposed(service, runs)
    notifier.queue()
    killed = repository.claim_message(["webhook"], timedelta(minutes=5))
    assert killed is not None
    assert not notifier.send_one()  # its lease holds
    due_now(repository)
    assert notifier.send_one()
    repository.message_failed(killed, "It came back.", None)  # what it says is not heard any more
    assert repository.unsent_messages() == []
    assert [json.loads(body)["id"] for _, body in hook.posts] == [killed.id]


@pytest.mark.wide
def test_two_senders_at_once_send_each_message_once(
    repository: Repository, service: ReviewService, runs: list[RunView], hook: Hook
) -> None:
    channels = by_webhook(hook)
    notifiers = [begun(repository, channels) for _ in range(2)]
    id = proposed(service, runs)
    for number in range(5):
        service.comment(BOB, service.review(id), f"Comment {number}")
    threads = [threading.Thread(target=send_all, args=[notifier]) for notifier in notifiers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = [json.loads(body)["id"] for _, body in hook.posts]
    assert (len(ids), len(set(ids))) == (6, 6)


def test_an_approval_that_expires_is_told_once(
    repository: Repository, service: ReviewService, runs: list[RunView], hook: Hook
) -> None:
    notifier = begun(repository, by_webhook(hook))
    judge(service, BOB, proposed(service, runs), "approve")
    send_all(notifier)
    hook.posts.clear()
    now = datetime.now(UTC)
    send_all(notifier, now + timedelta(days=2))
    assert told(hook) == []
    for days in (4, 5):
        send_all(notifier, now + timedelta(days=days))
    send_all(begun(repository, by_webhook(hook)), now + timedelta(days=6))
    ((kind, text),) = told(hook)
    assert (kind, text.endswith("for Support chat has expired: have it reviewed again.")) == ("approval-expired", True)


@pytest.mark.wide
def test_mail_reaches_those_whom_it_concerns_and_holds_no_header_that_somebody_wrote(
    repository: Repository, service: ReviewService, runs: list[RunView], box: Mailbox
) -> None:
    to = "ann=ann@example.org,BOB=bob@example.org,eve=eve@example.org,*=team@example.org"
    notifier = begun(repository, by_mail(box, to))
    id = proposed(service, runs, reviewers=["Bob"])
    send_all(notifier)
    assert sorted(recipient for _, (recipient,), _ in box.mails) == ["bob@example.org", "team@example.org"]
    box.mails.clear()
    service.comment(BOB, service.review(id), "Fine.\r\n.\r\nBcc: eve@example.org\r\n\r\n<script>")
    send_all(notifier)
    assert sorted(recipient for _, (recipient,), _ in box.mails) == ["ann@example.org", "team@example.org"]
    mail = email.message_from_string(box.mails[0][2], policy=default)
    assert mail["Bcc"] is None
    assert mail["Auto-Submitted"] == "auto-generated"
    assert "Bcc: eve@example.org" in mail.get_content()
    assert f"review?proposal={id}" in mail.get_content()
    box.mails.clear()
    box.refuse = "550 who is that?"
    service.comment(BOB, service.review(id), "Again.")
    send_all(notifier)
    assert {message.error for message in repository.unsent_messages()} == {
        f"127.0.0.1:{box.port} did not take the mail: it refuses the recipient."
    }


def test_a_name_cannot_write_headers_of_a_mail() -> None:
    content = NoticeContent(
        kind="commented", at="2026-01-01T00:00:00+00:00", use="x", who="x", words="y",
        use_name="Chat\r\nBcc: eve@example.org\r\n\r\nBuy", text="Ann\nBcc: eve@example.org\x00 \u2028 comments.",
    )  # fmt: skip
    mail = mail_of(OutboxMessage("a" * 32, "mail", "bob@example.org", content, datetime.now(UTC)), "lab@example.org")
    parsed = email.message_from_bytes(mail.as_bytes(), policy=default)
    assert sorted(parsed.keys()) == sorted(
        ["From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "Content-Type", "Content-Transfer-Encoding",
         "MIME-Version"]
    )  # fmt: skip
    assert parsed["Subject"] == "FSD Lab: Ann Bcc: eve@example.org comments."


@pytest.mark.wide
def test_a_message_that_nobody_takes_is_given_up(
    repository: Repository, service: ReviewService, runs: list[RunView], hook: Hook
) -> None:
    hook.status = 302  # redirects are not followed
    notifier = begun(repository, by_webhook(hook))
    proposed(service, runs)
    notifier.queue()
    for _ in range(MOST_ATTEMPTS):
        due_now(repository)
        assert notifier.send_one()
    due_now(repository)
    assert not notifier.send_one()
    (message,) = repository.unsent_messages()
    assert (message.given_up, message.attempts) == (True, MOST_ATTEMPTS)
    assert {headers["fsd-message"] for headers, _ in hook.posts} == {message.id}
    assert len(hook.posts) == MOST_ATTEMPTS


def test_nothing_is_sent_without_being_configured(
    repository: Repository, service: ReviewService, runs: list[RunView], hook: Hook
) -> None:
    proposed(service, runs)
    send_all(begun(repository, Channels(None, None)))
    assert repository.unsent_messages() == []
    configured = begun(repository, by_webhook(hook))
    send_all(configured)
    assert hook.posts == []  # what was before is not told
    service.comment(ANN, service.review(proposed(service, runs, 4)), "Well.")
    configured.queue()
    assert len(repository.unsent_messages()) == 2
    begun(repository, Channels(None, None))  # the configuration is taken back
    assert repository.unsent_messages() == []
    send_all(begun(repository, by_webhook(hook)))
    assert hook.posts == []


def test_a_message_that_cannot_be_read_holds_up_no_other(
    repository: Repository, service: ReviewService, runs: list[RunView], hook: Hook
) -> None:
    notifier = begun(repository, by_webhook(hook))
    id = proposed(service, runs)
    notifier.queue()
    with repository._database.session() as session:
        session.execute(update(OutboxRow).values(content={"kind": "of the future"}))
    service.comment(BOB, service.review(id), "Now.")
    notifier.queue()
    assert not notifier.send_one()
    assert notifier.send_one()
    (message,) = repository.unsent_messages()
    assert (message.given_up, "cannot be read" in message.error, "cannot be read" in message.content.text) == (
        True,
    ) * 3
    assert [json.loads(body)["words"] for _, body in hook.posts] == ["Now."]


def test_what_an_import_brings_is_not_told(
    repository: Repository, service: ReviewService, runs: list[RunView], hook: Hook
) -> None:
    notifier = begun(repository, by_webhook(hook))
    id = proposed(service, runs)
    last = service.use("support-chat").sequence
    with repository._database.session() as session:
        session.add(
            ReviewEventRow(
                use_id="support-chat", sequence=last + 1, at=datetime.now(UTC) - timedelta(days=2), who="Bob",
                role="reviewer", kind="remarked", act=Commented(proposal=id, words="Long ago.").as_json(),
            )
        )  # fmt: skip
    service.comment(BOB, service.review(id), "Now.")
    send_all(notifier)
    assert [json.loads(body)["words"] for _, body in hook.posts] == ["Fast", "Now."]


def test_no_other_process_is_given_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FSD_WEBHOOK_SECRET", "FSD_SMTP_PASSWORD", "OAUTH_CLIENT_SECRET"):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("FSD_WEBHOOK_URL", "https://example.org/hook")
    environment = Supervisor(Settings(home=tmp_path)).worker.environment
    assert environment["FSD_WEBHOOK_URL"] == "https://example.org/hook"
    assert not [name for name, value in environment.items() if SECRET in value or "***" in value]


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "10.1.2.3",
        "169.254.169.254",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "[2002:7f00:1::]",
        "[64:ff9b::7f00:1]",
        "192.88.99.1",
        "192.0.0.9",
    ],
)
def test_private_addresses_are_posted_to_only_where_the_operator_allows_it(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setattr(
        "fsd_plugins.notices.notifier.socket.create_connection", lambda *_: pytest.fail("it was posted")
    )
    channel = WebhookChannel(f"https://{host}:9/hook?key=hidden", SECRET)
    with pytest.raises(NotDelivered, match="is at a private or loopback address") as refused:
        channel.send(_message())
    assert "hidden" not in str(refused.value)


def test_the_address_that_was_checked_is_the_one_that_is_posted_to(monkeypatch: pytest.MonkeyPatch, hook: Hook) -> None:
    """A name that leads elsewhere when it is looked up again."""
    port = int(hook.url.rpartition(":")[2])
    looked_up: list[str] = []

    def look_up(name: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        looked_up.append(name)
        address = "127.0.0.1" if len(looked_up) == 1 else "192.0.2.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    channel = WebhookChannel(f"http://hook.example.org:{port}/", SECRET, private=True)
    with monkeypatch.context() as patch:
        patch.setattr("fsd_plugins.notices.notifier.socket.getaddrinfo", _for(look_up, "hook.example.org"))
        channel.send(_message())
    assert looked_up == ["hook.example.org"]
    assert hook.posts[0][0]["host"] == f"hook.example.org:{port}"


def _for(look_up, name: str):
    """Look one name up in another way."""
    real = socket.getaddrinfo
    return lambda host, *rest, **more: look_up(host) if host == name else real(host, *rest, **more)


def _message() -> OutboxMessage:
    content = NoticeContent(kind="test", at="", use="", use_name="", who="", text="A test.")
    return OutboxMessage("a" * 32, "webhook", "", content, datetime.now(UTC))


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"webhook_url": "https://example.org/"}, "without a secret"),
        ({"webhook_secret": SECRET}, "FSD_WEBHOOK_URL is not"),
        ({"webhook_url": "https://example.org/", "webhook_secret": "short"}, "shorter than 16"),
        ({"webhook_url": "http://example.org/", "webhook_secret": SECRET}, "does not begin with https"),
        ({"webhook_url": "file:///etc/passwd", "webhook_secret": SECRET}, "is no address"),
        ({"webhook_url": "https://0177.0.0.1/", "webhook_secret": SECRET}, "is no address"),
        ({"webhook_url": "https://2130706433/", "webhook_secret": SECRET}, "is no address"),
        ({"webhook_url": "https://a:b@example.org/", "webhook_secret": SECRET}, "name or password"),
        ({"webhook_url": "https://exa mple.org/\r\nX: y", "webhook_secret": SECRET}, "is no address"),
        ({"webhook_url": "https://example.org/", "webhook_secret": SECRET, "webhook_secret_file": "/x"}, "both set"),
        ({"webhook_url": "https://example.org/", "webhook_secret_file": "/nowhere"}, "cannot be read"),
        ({"smtp_host": "localhost"}, "FSD_MAIL_FROM is not"),
        ({"smtp_host": "localhost", "mail_from": "a@example.org", "mail_to": "nobody"}, "FSD_MAIL_TO cannot be read"),
        (
            {"smtp_host": "localhost", "mail_from": "a@example.org", "mail_to": "a=b@example.org\r\nBcc: c@d.org"},
            "FSD_MAIL_TO has",
        ),
        (
            {
                "smtp_host": "localhost", "mail_from": "a@example.org", "mail_to": "*=a@example.org", "smtp_user": "a",
                "smtp_password": SECRET, "smtp_security": "none",
            },
            "for all to read",
        ),
    ],
)  # fmt: skip
def test_a_configuration_that_cannot_work_is_refused_in_a_sentence(variables: dict[str, str], reason: str) -> None:
    with pytest.raises(Misconfigured, match=reason) as refused:
        configured_channels(Settings.model_validate(variables))
    assert SECRET not in str(refused.value)


def test_secrets_are_read_from_files_and_shown_nowhere(tmp_path: Path, hook: Hook) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}\n", encoding="utf-8")
    by_file = Settings(webhook_url=hook.url, webhook_private=True, webhook_secret_file=tmp_path / "secret")
    channels = configured_channels(by_file)
    assert channels.webhook is not None
    channels.webhook.send(_message())
    headers, body = hook.posts[0]
    assert body == body_of(_message())
    signed = hmac.new(SECRET.encode(), headers["fsd-timestamp"].encode() + b"." + body, hashlib.sha256).hexdigest()
    assert headers["fsd-signature"] == f"v1={signed}"
    by_variable = Settings.model_validate({"webhook_secret": SECRET, "smtp_password": SECRET})
    assert SECRET not in repr(by_variable) + str(by_variable.model_dump()) + str(by_variable.without_secrets)
    assert "webhook_secret" not in by_variable.without_secrets


def test_who_is_asked_has_it_waiting_until_the_verdict(
    repository: Repository, service: ReviewService, runs: list[RunView]
) -> None:
    for name, role in (("Ann", "author"), ("Bob", "reviewer"), ("Cat", "admin")):
        repository.add_user(name, role, "hash", by="test")
    count = WaitingCount(repository)
    id = proposed(service, runs, reviewers=["bob", "BOB"])
    assert list(service.review(id).proposal.reviewers) == ["Bob"]
    assert (count(BOB), count(CAT), count(ANN)) == (1, 0, 0)
    ((use, proposal, _),) = waiting_for(service.uses(), BOB)
    assert (use.id, proposal.id) == ("support-chat", id)
    judge(service, BOB, id, "request changes", "More.")
    assert count(BOB) == 0
    service.ask_reviewers(ANN, service.review(id), ["Cat"])
    service.ask_reviewers(ANN, service.review(id), ["Bob", "Cat"])  # asked anew
    assert (count(BOB), count(CAT)) == (1, 1)
    assert count(Person("bot", "reviewer", owner="Bob")) == 0
    with pytest.raises(Refused):
        service.ask_reviewers(CAT, service.review(id), ["ann"])
    with pytest.raises(UnknownChoice, match="Zoe"):
        service.ask_reviewers(ANN, service.review(id), ["Zoe"])
    service.withdraw(ANN, service.review(id))
    assert (count(BOB), count(CAT)) == (0, 0)


def test_the_configuration_is_tried_by_a_command(
    monkeypatch: pytest.MonkeyPatch, hook: Hook, box: Mailbox, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = Settings.model_validate(
        {
            "webhook_url": hook.url, "webhook_private": True, "webhook_secret": SECRET, "smtp_host": "127.0.0.1",
            "smtp_port": box.port, "smtp_security": "none", "mail_from": "lab@example.org",
            "mail_to": "ann=ann@example.org,*=ann@example.org",
        }
    )  # fmt: skip
    monkeypatch.setattr("fsd_plugins.notices.commands.get_settings", lambda: settings)
    try_channels()
    assert capfd.readouterr().out.splitlines() == [
        "webhook: http://127.0.0.1 has taken the message.", "mail ann@example.org: 127.0.0.1 has taken the message."
    ]  # fmt: skip
    assert (told(hook), len(box.mails)) == ([("test", "This is a test of FSD Lab's messages.")], 1)
    hook.status = 410
    with pytest.raises(typer.Exit):
        try_channels()
    assert "webhook: http://127.0.0.1 answered with status 410: expected one from 200" in capfd.readouterr().err
    monkeypatch.setattr("fsd_plugins.notices.commands.get_settings", Settings)
    with pytest.raises(Misconfigured):
        try_channels()


@pytest.mark.parametrize("author", [ANN, Person("Ann/bot", "author", owner="Ann")], ids=lambda person: person.name)
@pytest.mark.parametrize("act", ["comment", "choose", "ask", "propose"])
def test_after_a_request_for_changes_it_waits_for_the_author_and_then_for_who_asked(
    service: ReviewService, repository: Repository, runs: list[RunView], hook: Hook, author: Person, act: str
) -> None:
    service.describe(ANN, "Support chat", "", Requirements(margin=20))
    id = service.propose(author, "support-chat", [runs[3].id], [runs[0].id])
    notifier, count = begun(repository, by_webhook(hook)), WaitingCount(repository)
    judge(service, BOB, id, "request changes", "More prompts, please.")
    assert (count(ANN), count(BOB), count(author) if author.is_program else 0) == (1, 0, 0)
    assert [waits for *_, waits in waiting_for(service.uses(), ANN)] == ["changes"]
    service.comment(CAT, service.review(id), "So say I.")  # says nothing for the author
    assert dict(service.review(id).proposal.waits_for) == {"Ann": "changes"}
    notifier.queue()
    told = sorted((message.content for message in repository.unsent_messages()), key=lambda content: content.at)
    asking, said = told
    assert (asking.kind, asking.words, asking.waits_for) == ("changes-requested", "More prompts, please.", ("Ann",))
    mail = mail_of(OutboxMessage("a" * 32, "mail", "ann@example.org", said, datetime.now(UTC)), "lab@example.org")
    assert "It waits for Ann." in mail.get_content()
    if act == "comment":
        service.comment(author, service.review(id), "They are measured.")
    elif act == "choose":
        service.choose_evidence(author, service.review(id), [runs[3].id], [runs[1].id])
    elif act == "ask":
        service.ask_reviewers(author, service.review(id), ["Cat"])
    else:
        service.propose(author, "support-chat", [runs[4].id], [runs[0].id])
    waits = {"Cat": "verdict"} if act == "ask" else {}
    waits |= {} if act == "propose" else {"Bob": "verdict"}
    assert dict(service.review(id).proposal.waits_for) == waits
    assert (count(ANN), count(BOB)) == (0, act != "propose")
    judge(service, BOB, id, "approve")
    assert dict(service.review(id).proposal.waits_for) == {}


def test_everything_that_is_said_to_a_proposal_is_told(
    service: ReviewService, repository: Repository, runs: list[RunView], hook: Hook
) -> None:
    id = proposed(service, runs, reviewers=["Bob"])
    notifier = begun(repository, by_mail_to_all())
    service.choose_evidence(ANN, service.review(id), [runs[3].id], [runs[1].id], "A better baseline.")
    service.waive(BOB, service.review(id), "margin", "A toy.")
    service.withdraw(ANN, service.review(id), "A better one is measured.")
    notifier.queue()
    told = [
        (message.recipient, message.content.kind, message.content.words) for message in repository.unsent_messages()
    ]
    assert sorted(told) == sorted([
        ("bob@example.org", "evidence-chosen", "A better baseline."),
        ("ann@example.org", "waived", "A toy."),
        ("bob@example.org", "withdrawn", "A better one is measured."),
    ])  # fmt: skip


def by_mail_to_all() -> Channels:
    to = "ann=ann@example.org,bob=bob@example.org"
    return Channels(None, MailChannel("127.0.0.1", 9, "none", "lab@example.org", to))
