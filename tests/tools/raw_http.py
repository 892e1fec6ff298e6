"""One request on a connection of its own, with whatever headers an attacker likes."""

from __future__ import annotations

import http.client
import socket
from typing import Any
from urllib.parse import urlsplit

from tests.tools.sizes import PATIENCE


def send_request(
    url: str, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and the beginning of the answer's body. An iterator of bytes is sent in chunks.

    ``path`` follows ``url``, whose own path it may have; ``unix:PATH`` is a socket.
    """
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc or "localhost", timeout=PATIENCE)
    try:
        if parts.scheme == "unix":
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(PATIENCE)
            connection.sock.connect(parts.path)
        else:
            path = parts.path + path
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named, encode_chunked=not isinstance(body, bytes | str | None))
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read(1_000_000)
    finally:
        connection.close()
