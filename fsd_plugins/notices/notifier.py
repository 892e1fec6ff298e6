"""Messages on reviews: from an event of the log to the channels that the operator has configured.

A thread of the web process that puts what happens in reviews into the outbox, and sends it.

The review log is what is never lost: whatever stands in it and not in the outbox yet is put there, with an id that
follows from what happened. Two processes therefore make the same messages, and a claim in the database lets one of them
send each. A message whose sender was killed is sent by the next one, with the same id.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import logging
import re
import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import SplitResult, urlsplit

from pydantic import SecretStr

from fsd_core.errors import FsdError, Misconfigured, NotDelivered
from fsd_core.review import history
from fsd_core.review.approvals import expiry_of
from fsd_core.review.history import Proposal, Use
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import same_name
from fsd_core.settings import Settings
from fsd_core.storage.messages import NoticeContent, NoticeKind, OutboxMessage, message_id
from fsd_core.storage.records import LoggedEvent
from fsd_core.storage.review_events import AliasMoved, Judged, Proposed, ReviewersAsked, Verdict, written_text
from fsd_core.texts import is_plain_host, is_public

if TYPE_CHECKING:
    from fsd_core.storage.repository import Repository
    from fsd_core.storage.reviews import OutboxCursor


_MAIL_SECONDS = 15.0
"""for each step of a delivery"""
_MOST_SUBJECT = 150
EVERYBODY = "*"


class MailChannel:
    """A mail server, the address that mail comes from, and the addresses of people."""

    def __init__(
        self, host: str, port: int, security: Literal["starttls", "tls", "none"], sender: str, addresses: str,
        user: str = "", password: str = "",
    ) -> None:  # fmt: skip
        """Check what is configured. Raises ``InvalidSetting``, which does not tell the password."""
        if user and security == "none":
            raise Misconfigured(
                "FSD_SMTP_USER is set and FSD_SMTP_SECURITY is none, so the password would be sent for all to read: "
                "set it to starttls or tls, or leave the user out."
            )
        if bool(user) != bool(password):
            raise Misconfigured("FSD_SMTP_USER and FSD_SMTP_PASSWORD (or its file) belong together: set both.")
        if not re.fullmatch(r"[A-Za-z0-9.:\[\]-]+", host):
            raise Misconfigured("FSD_SMTP_HOST is no host name: expected one such as smtp.example.org.")
        self._server, self._security, self._login = (host, port), security, (user, password)
        self._sender = _address(sender, "FSD_MAIL_FROM")
        self._addresses = read_addresses(addresses)
        self.place = host

    def recipients(self, people: Iterable[str]) -> list[str]:
        """Return the addresses of people, and the one that gets everything, each once."""
        names = [*people]
        found = [
            address
            for name, address in self._addresses.items()
            if name == EVERYBODY or any(same_name(name, person) for person in names)
        ]
        return list(dict.fromkeys(found))

    @property
    def all_recipients(self) -> list[str]:
        return list(dict.fromkeys(self._addresses.values()))

    def send(self, message: OutboxMessage) -> None:
        """Send a message. Raises ``NotDelivered`` if the server does not take it."""
        mail, (host, port) = mail_of(message, self._sender), self._server
        domain = self._sender.rpartition("@")[2]
        context = ssl.create_default_context()
        try:
            if self._security == "tls":
                server = smtplib.SMTP_SSL(host, port, domain, timeout=_MAIL_SECONDS, context=context)
            else:
                server = smtplib.SMTP(host, port, domain, timeout=_MAIL_SECONDS)
            with server:
                if self._security == "starttls":
                    server.starttls(context=context)
                if self._login[0]:
                    server.login(*self._login)
                server.send_message(mail, self._sender, [message.recipient])
        except smtplib.SMTPAuthenticationError:
            raise NotDelivered(f"{host} does not know the name and password: check FSD_SMTP_USER.") from None
        except smtplib.SMTPNotSupportedError:
            lacking = "STARTTLS" if self._security == "starttls" else "sign-in"
            raise NotDelivered(
                f"{host} offers no {lacking}: check FSD_SMTP_SECURITY, FSD_SMTP_PORT and FSD_SMTP_USER."
            ) from None
        except OSError as error:  # as all errors of smtplib are
            raise NotDelivered(f"{host}:{port} did not take the mail: {_mail_failure(error)}.") from None


def read_addresses(text: str) -> dict[str, str]:
    """Return mail addresses by name from ``ann=ann@example.org,*=team@example.org``. Raises ``InvalidSetting``."""
    parts = [part.rpartition("=") for part in text.split(",") if part.strip()]
    if not parts or not all(name.strip() for name, _, _ in parts):
        raise Misconfigured(
            "FSD_MAIL_TO cannot be read: expected names with addresses, such as ann=ann@example.org,*=team@example.org."
        )
    return {name.strip(): _address(address.strip(), "FSD_MAIL_TO") for name, _, address in parts}


def mail_of(message: OutboxMessage, sender: str) -> EmailMessage:
    """Return a message as a mail. What people wrote is text of the body, and cannot make a header."""
    content, mail = message.content, EmailMessage(policy=SMTP)
    mail["From"], mail["To"] = sender, message.recipient
    mail["Subject"] = _one_line(f"FSD Lab: {content.text}")
    mail["Date"] = format_datetime(message.created_at)
    mail["Message-ID"] = f"<{message.id}@{sender.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    waits = f"It waits for {', '.join(content.waits_for)}." if content.waits_for else ""
    parts = [content.text, content.words, waits, content.page]
    mail.set_content("\n\n".join(part for part in parts if part) + "\n")
    return mail


def _one_line(text: str) -> str:
    line = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return line if len(line) <= _MOST_SUBJECT else line[: _MOST_SUBJECT - 1].rstrip() + "…"


def _address(text: str, variable: str) -> str:
    try:
        address = Address(addr_spec=text)
        usable = bool(address.domain) and text.isascii() and text.isprintable() and len(text) <= 254
    except (HeaderParseError, ValueError, IndexError):
        usable = False
    if not usable:
        raise Misconfigured(f"{variable} has {text[:60]!r}: expected an address such as ann@example.org.")
    return text


def _mail_failure(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return "it refuses the recipient"
    if isinstance(error, smtplib.SMTPResponseException):
        told = error.smtp_error.decode("utf-8", "replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        return f"it answered {error.smtp_code} {_one_line(told)}"
    return str(getattr(error, "strerror", None) or type(error).__name__)


_WEBHOOK_SECONDS = 10.0
"""for each step of a delivery"""
MOST_SECONDS = 30.0
"""for all of it"""
LEAST_SECRET = 16
"""characters"""


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """Return the header ``FSD-Signature``: ``v1=`` and the HMAC-SHA256 of the timestamp, a full stop and the body."""
    return f"v1={hmac.new(secret, timestamp.encode() + b'.' + body, hashlib.sha256).hexdigest()}"


def body_of(message: OutboxMessage) -> bytes:
    """Return the JSON that is posted. It is the same at every attempt."""
    return json.dumps({"id": message.id, **message.content.as_json()}, ensure_ascii=False, sort_keys=True).encode()


class WebhookChannel:
    """One address that gets every message. Redirects are not followed, and proxies of the environment not used."""

    def __init__(self, url: str, secret: str, *, private: bool = False) -> None:
        """Check the address and the secret. Raises ``InvalidSetting``, which tells neither.

        ``private`` allows private and loopback addresses, and ``http``.
        """
        self._parts, self._secret, self._private = _checked(url, private=private), secret.encode(), private
        if len(secret) < LEAST_SECRET:
            raise Misconfigured(
                f"FSD_WEBHOOK_SECRET is shorter than {LEAST_SECRET} characters, so messages could be forged: set a "
                "long random one, or name its file in FSD_WEBHOOK_SECRET_FILE."
            )
        self.place = f"{self._parts.scheme}://{self._parts.hostname}"
        """without path and query, which may hold a key"""

    def send(self, message: OutboxMessage) -> None:
        """Post a message. Raises ``NotDelivered`` unless the answer has a status from 200 to 299."""
        body, timestamp = body_of(message), str(int(time.time()))
        headers = {
            "Content-Type": "application/json", "User-Agent": "FSD-Lab", "FSD-Message": message.id,
            "FSD-Kind": message.content.kind, "FSD-Timestamp": timestamp,
            "FSD-Signature": signature(self._secret, timestamp, body),
        }  # fmt: skip
        connection = self._connection(self._address())
        end = threading.Timer(MOST_SECONDS, _shut, [connection])
        end.daemon = True
        end.start()
        try:
            connection.request("POST", self._target(), body, headers)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            raise NotDelivered(f"{self.place} did not take the message: {_webhook_failure(error)}.") from None
        finally:
            end.cancel()
            connection.close()
        if not 200 <= status < 300:
            raise NotDelivered(f"{self.place} answered with status {status}: expected one from 200 to 299.")

    def _target(self) -> str:
        return (self._parts.path or "/") + (f"?{self._parts.query}" if self._parts.query else "")

    def _address(self) -> str:
        """Return an address of the host. Where one of them may not be posted to, none is."""
        host, port = str(self._parts.hostname), self._port
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise NotDelivered(f"The name {host} has no address: check FSD_WEBHOOK_URL and the network.") from None
        addresses = [str(entry[4][0]) for entry in found]
        if not self._private and not all(map(is_public, addresses)):
            raise NotDelivered(
                f"{host} is at a private or loopback address, which nothing is posted to unless FSD_WEBHOOK_PRIVATE "
                "is true."
            )
        return addresses[0]

    @property
    def _port(self) -> int:
        return self._parts.port or (443 if self._parts.scheme == "https" else 80)

    def _connection(self, address: str) -> http.client.HTTPConnection:
        host = str(self._parts.hostname)
        if self._parts.scheme == "https":
            return _CheckedTls(host, self._port, address)
        return _Checked(host, self._port, address)


class _Checked(http.client.HTTPConnection):
    """Connects to the address that was checked, whatever the name leads to by now."""

    def __init__(self, host: str, port: int, address: str) -> None:
        super().__init__(host, port, timeout=_WEBHOOK_SECONDS)
        self._address = address

    def connect(self) -> None:
        self.sock = socket.create_connection((self._address, self.port), _WEBHOOK_SECONDS)


class _CheckedTls(_Checked):
    """The same over TLS, with a certificate for the name."""

    default_port = 443

    def connect(self) -> None:
        super().connect()
        self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self.host)


def _checked(url: str, *, private: bool) -> SplitResult:
    try:
        parts = urlsplit(url)
        usable = is_plain_host(parts.hostname or "") and (parts.port is None or parts.port > 0)
    except ValueError:
        raise Misconfigured("FSD_WEBHOOK_URL is no address: expected one such as https://example.org/hook.") from None
    if not usable or not url.isascii() or any(character <= " " or character == "\x7f" for character in url):
        raise Misconfigured("FSD_WEBHOOK_URL is no address: expected one such as https://example.org/hook.")
    if parts.username is not None:
        raise Misconfigured("FSD_WEBHOOK_URL has a name or password in it: leave them out, messages are signed.")
    if parts.scheme not in (("https", "http") if private else ("https",)):
        raise Misconfigured(
            "FSD_WEBHOOK_URL does not begin with https://: only FSD_WEBHOOK_PRIVATE=true allows http:// as well."
        )
    return parts


def _webhook_failure(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid ({error.verify_message})"
    return str(getattr(error, "strerror", None) or type(error).__name__)


def _shut(connection: http.client.HTTPConnection) -> None:
    if connection.sock is not None:
        try:
            connection.sock.shutdown(socket.SHUT_RDWR)
        except OSError:  # it has just ended
            return


_LONGEST_SECRET = 10_000


class Channels(NamedTuple):
    """Channels for messages; ``None`` for one that is not configured."""

    webhook: WebhookChannel | None
    mail: MailChannel | None

    @property
    def names(self) -> list[str]:
        return [name for name, channel in zip(self._fields, self, strict=True) if channel is not None]

    def named(self, name: str) -> WebhookChannel | MailChannel:
        """Return a configured channel, by one of :attr:`names`."""
        channel = self.webhook if name == "webhook" else self.mail
        assert channel is not None, "only configured channels are asked for"
        return channel


def configured_channels(settings: Settings) -> Channels:
    """Return the configured channels. Raises ``InvalidSetting`` for one that cannot work."""
    return Channels(_webhook(settings), _mail(settings))


def _webhook(settings: Settings) -> WebhookChannel | None:
    secret = _secret(settings.webhook_secret, settings.webhook_secret_file, "FSD_WEBHOOK_SECRET")
    if not settings.webhook_url:
        if secret:
            raise Misconfigured("FSD_WEBHOOK_SECRET is set and FSD_WEBHOOK_URL is not: set both, or neither.")
        return None
    if not secret:
        raise Misconfigured(
            "FSD_WEBHOOK_URL is set without a secret, and every message is signed: set FSD_WEBHOOK_SECRET or "
            "FSD_WEBHOOK_SECRET_FILE."
        )
    return WebhookChannel(settings.webhook_url, secret, private=settings.webhook_private)


def _mail(settings: Settings) -> MailChannel | None:
    password = _secret(settings.smtp_password, settings.smtp_password_file, "FSD_SMTP_PASSWORD")
    if not settings.smtp_host:
        return None
    missing = [name for name in ("mail_from", "mail_to") if not getattr(settings, name)]
    if missing:
        raise Misconfigured(f"FSD_SMTP_HOST is set and FSD_{missing[0].upper()} is not: set it, or leave mail out.")
    return MailChannel(
        settings.smtp_host, settings.smtp_port, settings.smtp_security, settings.mail_from, settings.mail_to,
        settings.smtp_user, password,
    )  # fmt: skip


def _secret(value: SecretStr | None, file: Path | None, variable: str) -> str:
    if value is not None and file is not None:
        raise Misconfigured(f"{variable} and {variable}_FILE are both set: set one of them.")
    if file is None:
        return value.get_secret_value().strip() if value else ""
    try:
        with file.open(encoding="utf-8") as lines:
            secret = lines.readline(_LONGEST_SECRET).strip()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise Misconfigured(f"The file of {variable}_FILE cannot be read ({reason}): name another.") from None
    if not secret:
        raise Misconfigured(f"The first line of the file of {variable}_FILE is empty: write the secret there.")
    return secret


_VERDICTS: dict[Verdict, tuple[NoticeKind, str]] = {
    "approve": ("approved", "approves"),
    "request changes": ("changes-requested", "asks for changes to"),
    "decline": ("declined", "declines"),
}
_DEEDS: dict[str, tuple[NoticeKind, str]] = {
    "remarked": ("commented", "comments on"), "evidence-chosen": ("evidence-chosen", "chooses other evidence for"),
    "waived": ("waived", "answers for a requirement of"), "withdrawn": ("withdrawn", "withdraws"),
}  # fmt: skip
"""by the kind of the event"""


class Telling(NamedTuple):
    """A message for everybody whom it concerns."""

    content: NoticeContent
    people: tuple[str, ...]
    """names, but for whoever did it"""
    source: str
    """key of the event that it is about, always the same for one event"""


def of_event(use: Use, logged: LoggedEvent, labels: dict[str, str]) -> Telling | None:
    """Return the message on an event of a use, or ``None`` if it needs none. ``labels``: the settings' names, by their
    ids."""
    event = logged.event
    proposal = use.proposals.get(event.about or "")
    if isinstance(event, AliasMoved):
        return _rolled_back(use, logged, event, labels) if event.alias == "approved" and not event.proposal else None
    if proposal is None:
        return None
    named = f"{labels.get(proposal.setting, proposal.setting)} for {use.name}"
    if isinstance(event, Proposed | ReviewersAsked):
        new = tuple(name for name in event.reviewers if _asked_by(use, logged, name))
        if isinstance(event, ReviewersAsked) and not new:
            return None
        whom = ", ".join(new) or "somebody"
        text = f"{logged.who} asks {whom} to review {named}."
        return _telling(use, logged, "review-requested", text, proposal, new, new)
    deed = _VERDICTS[event.verdict] if isinstance(event, Judged) else _DEEDS.get(event.kind)
    if deed is None:
        return None
    kind, verb = deed
    more = " It is the approved setting now." if kind == "approved" and _moved(use, logged) else ""
    return _telling(use, logged, kind, f"{logged.who} {verb} {named}.{more}", proposal, _concerned(proposal))


def of_expiry(use: Use, labels: dict[str, str], at: datetime) -> tuple[Telling, datetime] | None:
    """Return the message on the expiry of the approval in force for a use, and its time."""
    expired = expiry_of(use)
    if expired is None or expired > at:
        return None
    moved = use.aliases["approved"].moved
    proposal = use.proposals[use.in_force[-1].proposal or ""]
    named = f"{labels.get(proposal.setting, proposal.setting)} for {use.name}"
    content = NoticeContent(
        kind="approval-expired", at=_text(expired), use=use.id, use_name=use.name, who="", proposal=proposal.id,
        setting=proposal.setting, text=f"The approval of {named} has expired: have it reviewed again.",
        page=f"review?proposal={proposal.id}",
    )  # fmt: skip
    return Telling(content, _concerned(proposal), f"expiry of event {moved.id} at {content.at}"), expired


def _rolled_back(use: Use, logged: LoggedEvent, event: AliasMoved, labels: dict[str, str]) -> Telling:
    proposals = [proposal for proposal in use.proposals.values() if proposal.setting == event.former]
    former = labels.get(event.former or "", event.former)
    now = labels.get(event.setting or "", event.setting) if event.setting else "nothing"
    content = NoticeContent(
        kind="rolled-back", at=_text(logged.at), use=use.id, use_name=use.name, who=logged.who, setting=event.setting,
        text=f"{logged.who} takes back the approval of {former} for {use.name}: {now} is approved now.",
        words=event.comment, page=f"review?use={use.id}",
    )  # fmt: skip
    people = tuple(name for proposal in proposals for name in _concerned(proposal))
    return Telling(content, _but(people, logged.who), _source(logged))


def _telling(
    use: Use, logged: LoggedEvent, kind: NoticeKind, text: str, proposal: Proposal, people: Iterable[str],
    reviewers: tuple[str, ...] = (),
) -> Telling:  # fmt: skip
    content = NoticeContent(
        kind=kind, at=_text(logged.at), use=use.id, use_name=use.name, who=logged.who, text=text,
        proposal=proposal.id, setting=proposal.setting, words=written_text(logged.event),
        reviewers=reviewers, page=f"review?proposal={proposal.id}", waits_for=tuple(proposal.waits_for),
    )  # fmt: skip
    return Telling(content, _but(people, logged.who), _source(logged))


def _concerned(proposal: Proposal) -> tuple[str, ...]:
    """Return the people whom a proposal concerns: for whom it waits, who made it, who is asked, and who said
    something."""
    return (
        *proposal.waits_for,
        proposal.owner or proposal.author,
        *proposal.reviewers,
        *(logged.who for logged in proposal.said),
    )


def _but(people: Iterable[str], who: str) -> tuple[str, ...]:
    """Return each name once, without one."""
    names: list[str] = []
    for name in people:
        if not same_name(name, who) and not any(same_name(name, other) for other in names):
            names.append(name)
    return tuple(names)


def _asked_by(use: Use, logged: LoggedEvent, name: str) -> bool:
    """Whether this event is the one that asked somebody, who was not asked right before."""
    before: tuple[str, ...] = ()
    for entry in use.about(logged.event.about or ""):
        if entry.sequence == logged.sequence:
            break
        if isinstance(entry.event, Proposed | ReviewersAsked):
            before = entry.event.reviewers
    return name not in before


def _moved(use: Use, logged: LoggedEvent) -> bool:
    """Whether a verdict moved the alias ``approved``. Both are stored at once."""
    after = [entry.event for entry in use.log if 0 < entry.sequence - logged.sequence <= 2]
    return any(
        isinstance(event, AliasMoved) and event.alias == "approved" and event.proposal == logged.event.about
        for event in after
    )


def _source(logged: LoggedEvent) -> str:
    return f"event {logged.id}"


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()


logger = logging.getLogger(__name__)

NOTICE_TICK = 2.0
"""seconds between two looks at the log"""
_LEASE = timedelta(minutes=5)
"""for which a claim holds: longer than any delivery takes"""
LOG_OVERLAP = timedelta(minutes=10)
"""The end of the log is read again for so long, since transactions may end in another order than their events' ids."""
TOLD_WITHIN = timedelta(days=1)
"""Older events are not told: they came with an import, or nothing has run for long."""
EXPIRIES_EVERY = timedelta(minutes=1)
MOST_ATTEMPTS = 10
OUTBOX_KEPT = timedelta(days=90)
_FIRST_WAIT, _LONGEST_WAIT = timedelta(seconds=10), timedelta(hours=6)
_BATCH = 200


class Notifier:
    """A context manager: the thread runs in it, if a channel is configured."""

    def __init__(self, repository: Repository, channels: Channels, public_url: str = "") -> None:
        self._repository, self._channels, self._base = repository, channels, public_url.rstrip("/")
        self._service = ReviewService(repository)
        self._queued: set[tuple[str, int]] = set()  # channels and events of the overlap that are in the outbox
        self._expiries_at = datetime.min.replace(tzinfo=UTC)  # when they were looked for
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="notifier", daemon=True)

    def __enter__(self) -> Notifier:
        # With no channel it runs once, for what an earlier configuration has left.
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the thread. A delivery under way is left to its end or to the next process."""
        self._stop.set()
        self._thread.join(timeout=1)

    def begin(self) -> dict[str, OutboxCursor]:
        """Begin for the configured channels, and forget those of an earlier configuration."""
        self._repository.prune_outbox(OUTBOX_KEPT)
        return self._repository.open_channels(self._channels.names)

    def _run(self) -> None:
        cursors, told = None, ""
        while not self._stop.is_set():
            try:
                if cursors is None:
                    cursors = self.begin()
                self.queue()
                while not self._stop.is_set() and self.send_one():
                    pass
                if not self._channels.names:
                    return
                told = ""
            except FsdError as error:  # such as a database that does not answer; told once
                if str(error) != told:
                    told = str(error)
                    logger.warning("Messages wait: %s", error)
            except Exception:  # no message may end the thread
                logger.exception("Messages wait: an unexpected error.")
            self._stop.wait(NOTICE_TICK)

    def queue(self, at: datetime | None = None) -> None:
        """Put what has happened since the channels were configured into the outbox, as of a moment, now by default."""
        moment = at or datetime.now(UTC)
        cursors = self._repository.outbox_cursors(self._channels.names)
        for channel, cursor in cursors.items():
            self._queue_events(channel, cursor, moment)
        if not cursors or moment - self._expiries_at < EXPIRIES_EVERY:
            return
        self._expiries_at = moment
        expired = [found for use in self._expiring() if (found := of_expiry(use, self._service.labels([use]), moment))]
        for channel, cursor in cursors.items():
            tellings = [told for told, when in expired if when > max(cursor.since, moment - OUTBOX_KEPT / 2)]
            if tellings:
                self._repository.queue_messages(self._messages(channel, tellings))

    def _queue_events(self, channel: str, cursor: OutboxCursor, moment: datetime) -> None:
        after, first = cursor.last_event, max(cursor.since, moment - TOLD_WITHIN)
        while events := self._repository.review_events(after, _BATCH):
            after = events[-1].id
            new = [logged for logged in events if (channel, logged.id) not in self._queued]
            recent = [logged for logged in new if logged.at >= first]
            old = [logged.id for logged in events if logged.at < moment - LOG_OVERLAP]
            if new or old:
                read = {channel: max(old)} if old else {}
                self._repository.queue_messages(self._messages(channel, self._of_events(recent)), read)
            self._queued |= {(channel, logged.id) for logged in new}
            self._queued -= {(channel, id) for id in old}

    def send_one(self) -> bool:
        """Send one message that is due. Returns whether there was one."""
        message = self._repository.claim_message(self._channels.names, _LEASE)
        if message is None:
            return False
        try:
            self._channels.named(message.channel).send(message)
        except NotDelivered as error:
            attempts = message.attempts + 1
            again = None if attempts >= MOST_ATTEMPTS else min(_FIRST_WAIT * 3 ** (attempts - 1), _LONGEST_WAIT)
            self._repository.message_failed(message, str(error), again)
            if again is None or attempts == 1:
                what = "is given up" if again is None else f"is tried again in {again.total_seconds():.0f} s"
                logger.warning("The message %s %s: %s", message.id, what, error)
        else:
            self._repository.message_sent(message)
        return True

    def _of_events(self, events: list[LoggedEvent]) -> list[Telling]:
        uses = {id: self._service.use(id) for id in {logged.use_id for logged in events}}
        labels = self._service.labels([*uses.values()])
        told = (of_event(uses[logged.use_id], logged, labels) for logged in events)
        return [telling for telling in told if telling is not None]

    def _expiring(self) -> list[Use]:
        return [use for use in history.uses_of(self._repository.review_log()) if use.days and use.named("approved")]

    def _messages(self, channel: str, tellings: Iterable[Telling]) -> Iterator[OutboxMessage]:
        """Return a message for each recipient, with an id that follows from what happened."""
        for telling in tellings:
            content = telling.content
            if self._base:
                content = content.model_copy(update={"page": f"{self._base}/{content.page}"})
            mail = self._channels.mail
            recipients = mail.recipients(telling.people) if channel == "mail" and mail else [""]
            for recipient in recipients:
                id = message_id(telling.source, channel, recipient)
                yield OutboxMessage(id, channel, recipient, content, datetime.now(UTC))


def service(settings: Settings) -> Callable[[Repository], Notifier]:
    """Return what sends messages beside the application, for its database. Raises ``InvalidSetting`` for channels that
    cannot be used."""
    channels = configured_channels(settings)
    return lambda repository: Notifier(repository, channels, settings.public_url)
