"""Which requests are of our own pages, as browsers and proxies tell it."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from fsd_core.middleware import SameOrigin


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"origin": "http://lab.example", "host": "lab.example"}, True),
        ({"origin": "http://lab.example:81", "host": "lab.example"}, False),
        ({"origin": "null", "host": "lab.example"}, False),
        ({"origin": "null", "host": "lab.example", "sec-fetch-site": "cross-site"}, False),
        ({"origin": "null", "host": "lab.example", "sec-fetch-site": "none"}, False),
        # Behind a proxy with `Referrer-Policy: no-referrer`, a browser names no origin for our own forms.
        ({"origin": "null", "host": "lab.example", "sec-fetch-site": "same-origin"}, True),
    ],
)
def test_a_form_is_our_own(headers: dict[str, str], allowed: bool) -> None:
    async def app(*_: object) -> None: ...

    assert SameOrigin(app)._allowed("POST", Headers(headers)) is allowed
