"""Sending messages by mail, one to each address."""

from __future__ import annotations

import re
import smtplib
import ssl
from collections.abc import Iterable
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Literal

from fsd_core.errors import Misconfigured, NotDelivered
from fsd_core.roles import same_name
from fsd_core.storage.outbox_message import OutboxMessage

_SECONDS = 15.0
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
                server = smtplib.SMTP_SSL(host, port, domain, timeout=_SECONDS, context=context)
            else:
                server = smtplib.SMTP(host, port, domain, timeout=_SECONDS)
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
            raise NotDelivered(f"{host}:{port} did not take the mail: {_reason(error)}.") from None


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


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return "it refuses the recipient"
    if isinstance(error, smtplib.SMTPResponseException):
        told = error.smtp_error.decode("utf-8", "replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        return f"it answered {error.smtp_code} {_one_line(told)}"
    return str(getattr(error, "strerror", None) or type(error).__name__)
