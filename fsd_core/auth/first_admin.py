"""The first admin of an installation where people sign in with a password."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from fsd_core.auth import credentials
from fsd_core.errors import InvalidSetting, Misconfigured

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository

FIRST_ADMIN = "admin"


def ensure_admin(repository: Repository, password_file: Path | None) -> str | None:
    """Add the user ``admin`` if there is no user yet. Return the password if it was made here, or else ``None``.

    The password is the first line of ``password_file``. Without a file it is random. Raises ``InvalidSetting`` for a
    file that cannot be used.
    """
    if repository.users():
        return None
    password = secrets.token_urlsafe(16) if password_file is None else _first_line(password_file)
    try:
        credentials.add_user(repository, FIRST_ADMIN, "admin", password)
    except InvalidSetting as error:
        if repository.users():  # another process of the installation was first
            return None
        raise Misconfigured(f"{error} Change the first line of {password_file}.") from None
    return password if password_file is None else None


def _first_line(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as lines:
            return lines.readline(credentials.LONGEST_PASSWORD + 2).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise Misconfigured(
            f"The file {file} cannot be read ({reason}): FSD_ADMIN_PASSWORD_FILE names a file whose first line is the "
            "first admin's password."
        ) from None
