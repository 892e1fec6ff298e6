"""Texts at the border: as clients give them, and numbers and addresses as they are shown.

Addresses as they may be shown, redirected to or logged: without who signs in there, and without secrets. Also which
of them the whole internet reaches.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Any, NamedTuple

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
Secret = Annotated[Callable[[], str], "secret"]
"""returns a secret once it is called: a command asks for it without echo, or reads a line of standard input"""

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""hosts that nobody else reaches"""
_UNICAST = ipaddress.ip_network("2000::/3")
_SPECIAL = [ipaddress.ip_network(text) for text in ("192.0.0.0/24", "192.88.99.0/24", "2002::/16", "3fff::/20")]
"""for protocols, relays, 6to4 and documents, which Python's versions tell differently"""
_HOST = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?", re.IGNORECASE | re.ASCII)
_NUMBER_LAST = re.compile(r"(.*\.)?(\d+|0x[0-9a-f]*)\.?", re.IGNORECASE)
_LONGEST_HOST = 253
_USER = re.compile(r"(?<=://)(?:[^/?#\s]*@|[^/?#\s@\[]*:(?!\d*(?:[/?#]|$))\S*@)")
"""the second form: an unquoted ``/``, ``?`` or ``#`` in a password, which makes a port that is no number"""
_SECRET = re.compile(r"(?<=[?&;])([^=&;#]*(?:passw|secret|token|key|credential)[^=&;#]*=)[^&;#]*", re.IGNORECASE)


def without_secrets(address: str) -> str:
    """Return an address without its user information, and with ``***`` as the values of secret parameters."""
    return _SECRET.sub(r"\1***", _USER.sub("", address))


def is_public(address: str) -> bool:
    """Whether an IP address is one that the whole internet reaches: not private, loopback, link-local or multicast, and
    none that stands for an IPv4 address, which may be any of these."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    is_special = any(ip in network for network in _SPECIAL) or (ip.version == 6 and ip not in _UNICAST)
    return ip.is_global and not ip.is_multicast and not is_special


def is_plain_host(host: str) -> bool:
    """Whether a host is spelled in the one way that all programs read alike: a name in ASCII, an IPv4 address as four
    decimal numbers, or an IPv6 address."""
    if ":" not in host and not _NUMBER_LAST.fullmatch(host):
        return len(host) <= _LONGEST_HOST and _HOST.fullmatch(host) is not None
    try:
        return "%" not in host and bool(ipaddress.ip_address(host))
    except ValueError:
        return False


MINUS = "\N{MINUS SIGN}"
DASH = "–"
ROUGH_MARK = "≈ "
"""before a figure without the interval that others of its kind have, so that it does not look exact beside them"""
NO_INTERVAL = "No 95 % interval: too few prompts, or prompts that say too little"
"""explains the mark"""
MOST_DECIMALS = 6


def slug(text: str, longest: int) -> str:
    """Return a text as small letters, digits and hyphens between them, at most ``longest``; empty if it has none."""
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")[:longest].strip("-")


def markdown_html(text: str, anchors: bool = False) -> str:
    """Return Markdown as HTML, with ``anchors`` of its headings. HTML in the text is text, and a picture is a link, so
    that nothing is fetched."""
    from markdown_it import MarkdownIt  # of the pages, and of figures in the library

    markdown = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable(["image"])
    tokens = markdown.parse(text)
    for opening, heading in pairwise(tokens) if anchors else ():
        if opening.type == "heading_open":
            opening.attrSet("id", slug(heading.content, len(heading.content)))
    return markdown.renderer.render(tokens, markdown.options, {})


def decimals(value: float, low: float | None, high: float | None) -> int:
    """Return how many decimals to show: the last is the first digit that the interval leaves in doubt. At least 0.

    Without an interval, or with one of zero width, three significant digits are shown. A value that rounds to 0 at
    ``MOST_DECIMALS`` decimals gets none.
    """
    if max(abs(end) for end in (value, low or 0.0, high or 0.0)) < 10.0**-MOST_DECIMALS / 2:
        return 0  # 0, up to rounding
    half = (high - low) / 2 if low is not None and high is not None else 0.0
    scale = half if half > 0 and math.isfinite(half) else abs(value) / 100
    if scale <= 0 or not math.isfinite(scale):
        return 0
    return min(max(0, -math.floor(math.log10(scale))), MOST_DECIMALS)


def number_text(value: float | None, digits: int, signed: bool = False, times: float = 1) -> str:
    """Return ``value``, ``times`` so much, with a true minus sign, and a plus sign if ``signed``. A rounded zero has no
    sign.

    What is no finite number, or unknown, is a dash.
    """
    if value is None or not math.isfinite(value := value * times):
        return DASH
    text = f"{abs(value):,.{digits}f}"
    if not text.strip("0.,"):
        return text
    return (MINUS if value < 0 else "+" if signed else "") + text


class Written(NamedTuple):
    """A value and the ends of its 95 % interval as text, with the same digits. Unknown ends are empty."""

    value: str
    low: str = ""
    high: str = ""
    mark: str = ""
    """``ROUGH_MARK`` where the interval is missing"""

    def with_ends(self, form: str) -> str:
        """Return the marked value, followed by the interval in ``form``, such as `` [{}, {}]``, if there is one."""
        return self.mark + self.value + (form.format(self.low, self.high) if self.low else "")


def written(
    value: float,
    low: float | None = None,
    high: float | None = None,
    *,
    points: bool = False,
    digits: int | None = None,
    rough: bool = False,
) -> Written:
    """Return a value with the digits that its interval supports.

    Without an interval, it gets ``digits`` decimals or three significant digits. ``points``: the value is in per cent;
    only all of it reads ``100`` and only none of it ``0``, whatever the digits. ``rough``: whether its kind has an
    interval, so that it is marked without one.
    """
    ends = [] if low is None or high is None else [low, high]
    precision = digits if digits is not None and not ends else decimals(value, low, high)
    texts = [number_text(end, precision) for end in ends]
    figure = (
        Written(_points(value, precision), *map(_whole, texts))
        if points
        else Written(number_text(value, precision), *texts)
    )
    return figure._replace(mark=ROUGH_MARK) if rough and not ends else figure


def percent(share: float | None, low: float | None = None, high: float | None = None, digits: int = 1) -> str:
    """Return a share from 0 to 1 in per cent, such as ``91.3 %`` or ``100 %``; a dash for no value.

    ``digits`` is the number of decimals without an interval.
    """
    if share is None or not math.isfinite(share):
        return DASH
    ends = (None, None) if low is None or high is None else (100 * low, 100 * high)
    return f"{written(100 * share, *ends, points=True, digits=digits).value} %"


def _points(value: float, digits: int) -> str:
    """Return a percentage with enough digits that only all reads ``100`` and only none reads ``0``."""
    while digits < MOST_DECIMALS and _whole(number_text(value, digits)) in ("0", "100") and value not in (0.0, 100.0):
        digits += 1
    return _whole(number_text(value, digits))


def _whole(text: str) -> str:
    """Return ``100`` for ``100.0`` and ``0`` for ``0.00``; any other text unchanged."""
    return f"{float(text):.0f}" if text.replace(".", "").strip("0") in ("", "1") and float(text) in (0, 100) else text


def p_value(p: float) -> str:
    """Return a p-value as it is usually reported."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}" if p < 0.995 else "p = 1"


def count(n: float, noun: str) -> str:
    """Return a number with its noun: ``1 run``, ``0.5 points``, ``1,200 runs``."""
    return f"{n:{',' if isinstance(n, int) else ',.10g'}} {noun}{'' if n == 1 else 's'}"


def upper_first(text: str) -> str:
    """Return a text with its first letter in upper case."""
    return text[:1].upper() + text[1:]
