"""Texts as clients give them: what every door does to them before anything else reads them."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator

from fsd_core.errors import HALF_OR_NUL, Malformed, UnknownName

LONGEST_ID = 200


def whole(value: Any) -> Any:
    """Return the value with U+FFFD for each NUL and each half of a surrogate pair, in its texts at any depth.

    No database stores these, and no answer in UTF-8 can hold the halves.
    """
    if isinstance(value, str):
        return value if value.isascii() and "\0" not in value else HALF_OR_NUL.sub("\ufffd", value)
    if isinstance(value, dict):
        return {whole(key): whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [whole(item) for item in value]
    return tuple(map(whole, value)) if type(value) is tuple else value


def _id(text: str) -> str:
    """Return an id. Raises ``UnknownName`` for what none can be: ids name locks and files."""
    if len(text) > LONGEST_ID or not re.fullmatch(r"[\w@.:+-]*", text) or text.startswith("."):
        raise UnknownName(f"There is nothing with the id {text[:40]!r}: a list of them says which there are.")
    return text


Id = Annotated[str, AfterValidator(_id)]
"""id of a run, an experiment, a setting, a use, a proposal, a report or a view"""


def checked_key(key: str) -> str:
    """Return the key of an act, or an empty text for none. Raises ``Malformed``."""
    if key and not re.fullmatch("[0-9a-f]{32}", key):
        raise Malformed(f"The key {key[:40]!r} cannot be used: expected 32 hexadecimal digits, new ones for each act.")
    return key


Key = Annotated[str, AfterValidator(checked_key)]
"""what a caller chooses for an act, and sends again with it"""
