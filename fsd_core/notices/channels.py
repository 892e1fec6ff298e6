"""The channels that the operator has configured. Without any, nothing is sent."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pydantic import SecretStr

from fsd_core.errors import Misconfigured
from fsd_core.notices.mail import MailChannel
from fsd_core.notices.webhook import WebhookChannel
from fsd_core.settings import Settings

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
