"""Real receivers of messages on loopback: a webhook's HTTP server, and a mail server."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Hook:
    """What was posted, and how the next posts are answered."""

    url: str = ""
    status: int = 204
    posts: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    """headers, their names in lower case, and body"""
    arrived: threading.Condition = field(default_factory=threading.Condition)

    def wait_for(self, count: int, seconds: float = 300) -> None:
        """Wait until so many posts have arrived."""
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.posts) >= count, seconds), self.posts


@contextmanager
def webhook_receiver(port: int = 0) -> Iterator[Hook]:
    """An HTTP server that keeps what is posted to it."""
    hook = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with hook.arrived:
                hook.posts.append(({name.lower(): value for name, value in self.headers.items()}, body))
                hook.arrived.notify_all()
            self.send_response(hook.status)
            if 300 <= hook.status < 400:
                self.send_header("Location", f"{hook.url}/elsewhere")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        hook.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=[0.05])
        thread.start()
        try:
            yield hook
        finally:
            server.shutdown()
            thread.join()


@dataclass
class Mailbox:
    """What a mail server took: sender, recipients and the text as it was sent."""

    port: int = 0
    refuse: str = ""
    """answer to RCPT in place of the usual one"""
    mails: list[tuple[str, list[str], str]] = field(default_factory=list)
    greeted: list[str] = field(default_factory=list)


@contextmanager
def mail_receiver() -> Iterator[Mailbox]:
    """A mail server without TLS and without names, as RFC 5321 has it."""
    box = Mailbox()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            sender, recipients = "", list[str]()
            self._say("220 here")
            while line := self.rfile.readline().decode().strip():
                word = line.upper()
                if word.startswith(("EHLO", "HELO")):
                    box.greeted.append(line)
                    self._say("250 here")
                elif word.startswith("MAIL FROM:"):
                    sender, recipients = line[10:].split()[0].strip("<>"), []
                    self._say("250 ok")
                elif word.startswith("RCPT TO:"):
                    recipients.append(line[8:].strip().strip("<>"))
                    self._say(box.refuse or "250 ok")
                elif word == "DATA":
                    self._say("354 go on")
                    box.mails.append((sender, recipients, self._data()))
                    self._say("250 taken")
                elif word == "QUIT":
                    self._say("221 bye")
                    return
                else:
                    self._say("250 ok" if word == "RSET" else "502 not here")

        def _say(self, text: str) -> None:
            self.wfile.write(f"{text}\r\n".encode())

        def _data(self) -> str:
            lines = []
            while (line := self.rfile.readline().decode()) and line != ".\r\n":
                lines.append(line.removeprefix(".") if line.startswith("..") else line)
            return "".join(lines)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        box.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=[0.05])
        thread.start()
        try:
            yield box
        finally:
            server.shutdown()
            thread.join()
