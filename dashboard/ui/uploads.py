"""Files that people choose on a page: sent as base64 in an act, and stored on no disk."""

from __future__ import annotations

import base64
import binascii

from dashboard.ui.question import Act
from dashboard.ui.templates import script
from fsd_core.errors import NotGiven, OutOfRange, Unreadable

LARGEST_UPLOAD = 1_000_000
"""bytes; in base64 below the limit of a body (fsd_core/auth/middleware/bodies.py). The command line takes more."""
UPLOAD = script("ui/upload.js", LARGEST=LARGEST_UPLOAD)
"""``js_on_load`` of a file field with buttons, whose click leaves the file in ``window.fsd.file``"""


def uploaded(act: Act, expected: str, larger: str) -> bytes:
    """Return the bytes of the uploaded file. ``expected``: what to choose. ``larger``: what takes larger files.

    Raises ``InvalidSetting``.
    """
    size, data = act["size"], act["data"]
    if not act["file"]:
        raise NotGiven(f"No file is chosen: choose {expected} first.")
    if not size.isdecimal():
        raise Unreadable("The file could not be read: choose it again.")
    if max(int(size), len(data) * 3 // 4 - 2) > LARGEST_UPLOAD:
        raise OutOfRange(
            f"The file has {int(size):,} bytes: expected at most {LARGEST_UPLOAD:,} here. {larger} larger ones."
        )
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error:
        raise Unreadable("The file arrived damaged: choose it again.") from None
