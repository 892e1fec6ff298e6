"""Error messages for people who are not signed in."""

from __future__ import annotations

import logging

from fsd_core.errors import FsdError, InvalidSetting, Refused

logger = logging.getLogger(__name__)


def told_to_strangers(error: FsdError) -> str:
    """Return the sentence of an error that is theirs; of others, such as a database's with its host, that there is one.

    The log has the whole sentence.
    """
    if isinstance(error, Refused | InvalidSetting):
        return str(error)
    logger.error("%s", error)
    return "Nobody can sign in now: whoever runs this application finds the reason in its log. Try again in a moment."
