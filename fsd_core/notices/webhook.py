"""Posting messages to a webhook, signed, to no address but a checked one."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import socket
import ssl
import threading
import time
from urllib.parse import SplitResult, urlsplit

from fsd_core.addresses import is_plain_host, is_public
from fsd_core.errors import Misconfigured, NotDelivered
from fsd_core.storage.outbox_message import OutboxMessage

_SECONDS = 10.0
"""for each step of a delivery"""
MOST_SECONDS = 30.0
"""for all of it"""
LEAST_SECRET = 16
"""characters"""


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """Return the header ``FSD-Signature``: ``v1=`` and the HMAC-SHA256 of the timestamp, a full stop and the body."""
    return f"v1={hmac.new(secret, timestamp.encode() + b'.' + body, hashlib.sha256).hexdigest()}"


def body_of(message: OutboxMessage) -> bytes:
    """Return the JSON that is posted. It is the same at every attempt."""
    return json.dumps({"id": message.id, **message.content.as_json()}, ensure_ascii=False, sort_keys=True).encode()


class WebhookChannel:
    """One address that gets every message. Redirects are not followed, and proxies of the environment not used."""

    def __init__(self, url: str, secret: str, *, private: bool = False) -> None:
        """Check the address and the secret. Raises ``InvalidSetting``, which tells neither.

        ``private`` allows private and loopback addresses, and ``http``.
        """
        self._parts, self._secret, self._private = _checked(url, private=private), secret.encode(), private
        if len(secret) < LEAST_SECRET:
            raise Misconfigured(
                f"FSD_WEBHOOK_SECRET is shorter than {LEAST_SECRET} characters, so messages could be forged: set a "
                "long random one, or name its file in FSD_WEBHOOK_SECRET_FILE."
            )
        self.place = f"{self._parts.scheme}://{self._parts.hostname}"
        """without path and query, which may hold a key"""

    def send(self, message: OutboxMessage) -> None:
        """Post a message. Raises ``NotDelivered`` unless the answer has a status from 200 to 299."""
        body, timestamp = body_of(message), str(int(time.time()))
        headers = {
            "Content-Type": "application/json", "User-Agent": "FSD-Lab", "FSD-Message": message.id,
            "FSD-Kind": message.content.kind, "FSD-Timestamp": timestamp,
            "FSD-Signature": signature(self._secret, timestamp, body),
        }  # fmt: skip
        connection = self._connection(self._address())
        end = threading.Timer(MOST_SECONDS, _shut, [connection])
        end.daemon = True
        end.start()
        try:
            connection.request("POST", self._target(), body, headers)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            raise NotDelivered(f"{self.place} did not take the message: {_reason(error)}.") from None
        finally:
            end.cancel()
            connection.close()
        if not 200 <= status < 300:
            raise NotDelivered(f"{self.place} answered with status {status}: expected one from 200 to 299.")

    def _target(self) -> str:
        return (self._parts.path or "/") + (f"?{self._parts.query}" if self._parts.query else "")

    def _address(self) -> str:
        """Return an address of the host. Where one of them may not be posted to, none is."""
        host, port = str(self._parts.hostname), self._port
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise NotDelivered(f"The name {host} has no address: check FSD_WEBHOOK_URL and the network.") from None
        addresses = [str(entry[4][0]) for entry in found]
        if not self._private and not all(map(is_public, addresses)):
            raise NotDelivered(
                f"{host} is at a private or loopback address, which nothing is posted to unless FSD_WEBHOOK_PRIVATE "
                "is true."
            )
        return addresses[0]

    @property
    def _port(self) -> int:
        return self._parts.port or (443 if self._parts.scheme == "https" else 80)

    def _connection(self, address: str) -> http.client.HTTPConnection:
        host = str(self._parts.hostname)
        if self._parts.scheme == "https":
            return _CheckedTls(host, self._port, address)
        return _Checked(host, self._port, address)


class _Checked(http.client.HTTPConnection):
    """Connects to the address that was checked, whatever the name leads to by now."""

    def __init__(self, host: str, port: int, address: str) -> None:
        super().__init__(host, port, timeout=_SECONDS)
        self._address = address

    def connect(self) -> None:
        self.sock = socket.create_connection((self._address, self.port), _SECONDS)


class _CheckedTls(_Checked):
    """The same over TLS, with a certificate for the name."""

    default_port = 443

    def connect(self) -> None:
        super().connect()
        self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self.host)


def _checked(url: str, *, private: bool) -> SplitResult:
    try:
        parts = urlsplit(url)
        usable = is_plain_host(parts.hostname or "") and (parts.port is None or parts.port > 0)
    except ValueError:
        raise Misconfigured("FSD_WEBHOOK_URL is no address: expected one such as https://example.org/hook.") from None
    if not usable or not url.isascii() or any(character <= " " or character == "\x7f" for character in url):
        raise Misconfigured("FSD_WEBHOOK_URL is no address: expected one such as https://example.org/hook.")
    if parts.username is not None:
        raise Misconfigured("FSD_WEBHOOK_URL has a name or password in it: leave them out, messages are signed.")
    if parts.scheme not in (("https", "http") if private else ("https",)):
        raise Misconfigured(
            "FSD_WEBHOOK_URL does not begin with https://: only FSD_WEBHOOK_PRIVATE=true allows http:// as well."
        )
    return parts


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid ({error.verify_message})"
    return str(getattr(error, "strerror", None) or type(error).__name__)


def _shut(connection: http.client.HTTPConnection) -> None:
    if connection.sock is not None:
        try:
            connection.sock.shutdown(socket.SHUT_RDWR)
        except OSError:  # it has just ended
            return
