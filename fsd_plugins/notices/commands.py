"""The group of commands ``notify``."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

import typer

from fsd_core.cli import common, output
from fsd_core.errors import Misconfigured, NotDelivered
from fsd_core.settings import get_settings
from fsd_core.worker import run_actions

notices = typer.Typer(help="Messages on reviews, to a webhook and by mail.", **common.TYPER_OPTIONS)


@notices.command("test")
def try_channels() -> None:
    """Send a test message to the webhook and to each mail address, at once. Exits with 1 if one is not taken."""
    from fsd_core.storage.messages import NoticeContent, OutboxMessage
    from fsd_plugins.notices.notifier import configured_channels

    channels, at = configured_channels(get_settings()), datetime.now(UTC)
    if not channels.names:
        raise Misconfigured("Nothing is configured: set FSD_WEBHOOK_URL, or FSD_SMTP_HOST, as docs/usage.md says.")
    content = NoticeContent(
        kind="test", at=at.isoformat(), use="", use_name="", who="", text="This is a test of FSD Lab's messages."
    )
    failed = False
    for name in channels.names:
        channel = channels.named(name)
        recipients = channels.mail.all_recipients if name == "mail" and channels.mail else [""]
        for recipient in recipients:
            told = " ".join(filter(None, (name, recipient)))
            try:
                channel.send(OutboxMessage(secrets.token_hex(16), name, recipient, content, at))
                print(f"{told}: {channel.place} has taken the message.")
            except NotDelivered as error:
                failed = True
                output.say(f"{told}: {error}")
    if failed:
        raise typer.Exit(1)


@notices.command("list")
def list_unsent() -> None:
    """List the messages that wait to be sent, and those that were given up, with why."""
    messages = run_actions.open_repository(get_settings()).unsent_messages()
    rows = [
        (
            f"{message.created_at:%Y-%m-%d %H:%M}",
            " ".join(filter(None, (message.channel, message.recipient))),
            message.content.text,
            "given up" if message.given_up else f"{message.attempts} attempts",
            message.error,
        )
        for message in messages
    ]
    if rows:
        output.print_table(("Since", "To", "What", "State", "Why"), rows, figures=False)
    else:
        output.say("No message waits to be sent.")


def add_to(app: typer.Typer) -> None:
    """Add the group to the command line."""
    app.add_typer(notices, name="notify")
