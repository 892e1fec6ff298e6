"""A hub of models and datasets on this machine: a real server with the addresses that the library asks, over folders.

Large files are sent in pieces, of which a test may hold back those from some byte on, or cut them off there. What was
asked for is kept, with the first byte that was wanted.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

PIECE = 1 << 16
_REVISION = re.compile(r"/api/(?:models|datasets)/(?P<repo>[^/]+/[^/]+)(/revision/(?P<revision>.+))?")
_FILE = re.compile(r"/(?:datasets/)?(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<name>.+)")


@dataclass
class Repo:
    """A model: its files, and who may have them."""

    folder: Path
    gated: bool = False
    revisions: tuple[str, ...] = ("main",)
    downloads: int = 0
    lies: dict[str, Any] = field(default_factory=dict)
    """what the hub says in place of the truth"""

    @property
    def files(self) -> list[Path]:
        return sorted(path for path in self.folder.rglob("*") if path.is_file())

    @property
    def commit(self) -> str:
        content = b"".join(file.name.encode() + file.read_bytes() for file in self.files)
        return hashlib.sha1(content).hexdigest()

    def about(self, name: str) -> dict[str, Any]:
        """What the hub says of it."""
        siblings = []
        for file in self.files:
            content = file.read_bytes()
            blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            about: dict[str, Any] = {"rfilename": str(file.relative_to(self.folder)), "size": len(content)}
            if file.suffix == ".safetensors":
                sha256 = hashlib.sha256(content).hexdigest()
                about["lfs"] = {"size": len(content), "sha256": sha256, "pointerSize": 130}
            siblings.append(about | {"blobId": blob})
        weights = sum(file.stat().st_size for file in self.folder.glob("*.safetensors"))
        return {
            "id": name, "sha": self.commit, "siblings": siblings, "downloads": self.downloads, "private": False,
            "gated": "manual" if self.gated else False, "tags": [], "safetensors": {"parameters": {}, "total": weights},
        } | self.lies  # fmt: skip


@dataclass
class StandInHub:
    """The server's address, its models by name, and what a test makes of it."""

    url: str
    repos: dict[str, Repo] = field(default_factory=dict)
    held_from: int | None = None
    """bytes of a large file from this one on are sent when ``go_on`` is set"""
    cut_at: int | None = None
    """a large file's connection is closed before this byte"""
    cuts: int = 1 << 30
    """how many times that happens"""
    go_on: threading.Event = field(default_factory=threading.Event)
    asked: list[tuple[str, int]] = field(default_factory=list)
    """files with their first bytes, in the order of the requests"""
    damaged: bool = False
    """the first byte of every large file is another one"""

    def firsts(self, name: str) -> list[int]:
        """The first bytes that were wanted of files of this name."""
        return [first for file, first in self.asked if file == name]


class _Handler(BaseHTTPRequestHandler):
    hub: ClassVar[StandInHub]
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        path, query = unquote(address.path), parse_qs(address.query)
        if path == "/api/models":
            self._answer([repo.about(name) for name, repo in self._matching(query)])
        elif match := _REVISION.fullmatch(path):
            if (repo := self._repo(match["repo"], match["revision"] or "main")) is not None:
                self._answer(repo.about(match["repo"]))
        elif match := _FILE.fullmatch(path):
            if (repo := self._repo(match["repo"], match["revision"])) is not None:
                self._send(repo, match["name"])
        else:
            self._refuse(404, "EntryNotFound")

    def _matching(self, query: dict[str, list[str]]) -> list[tuple[str, Repo]]:
        wanted, author = query.get("search", [""])[0].lower(), query.get("author", [""])[0]
        found = [
            (name, repo)
            for name, repo in self.hub.repos.items()
            if wanted in name.lower() and name.startswith(f"{author}/" if author else "")
        ]
        return sorted(found, key=lambda pair: -pair[1].downloads)[: int(query.get("limit", ["100"])[0])]

    def _repo(self, name: str, revision: str) -> Repo | None:
        repo = self.hub.repos.get(name)
        if repo is None:
            self._refuse(401, "RepoNotFound")
        elif revision not in (*repo.revisions, repo.commit):
            self._refuse(404, "RevisionNotFound")
        else:
            return repo
        return None

    def _send(self, repo: Repo, name: str) -> None:
        # What a test makes of the hub holds for requests that come afterwards: one that was given up may still be sent.
        cut_at, held_from = self.hub.cut_at, self.hub.held_from
        file = repo.folder / name
        if repo.gated:
            self._refuse(403, "GatedRepo")
            return
        if not file.is_file():
            self._refuse(404, "EntryNotFound")
            return
        content, is_large = file.read_bytes(), file.suffix in (".safetensors", ".jsonl")
        if self.hub.damaged and is_large:
            content = bytes([content[0] ^ 1]) + content[1:]
        first = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(content) - first))
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        self.send_header("X-Repo-Commit", repo.commit)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.end_headers()
        if self.command == "HEAD":
            return
        self.hub.asked.append((name, first))
        for start in range(first, len(content), PIECE):
            end = start + PIECE
            if is_large and self.hub.cuts and cut_at is not None and end > cut_at:
                self.hub.cuts -= 1
                self.wfile.write(content[start:cut_at])
                self.wfile.flush()
                self.close_connection = True
                return
            if is_large and held_from is not None and end > held_from:
                self.hub.go_on.wait(60)
            self.wfile.write(content[start:end])

    def _answer(self, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing is said of clients that left in the middle: they are what is tested."""


@contextmanager
def stand_in_hub() -> Iterator[StandInHub]:
    """A hub that answers during the block."""
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {}))
    hub = StandInHub(f"http://127.0.0.1:{server.server_address[1]}")
    server.RequestHandlerClass.hub = hub  # pyright: ignore[reportAttributeAccessIssue]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()


def use_hub(url: str, patch: pytest.MonkeyPatch | None = None) -> None:
    """Let this process ask the hub at ``url``, as HF_ENDPOINT does for one that has not loaded the library yet."""
    from huggingface_hub import constants

    template = f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    for name, value in (("ENDPOINT", url), ("HUGGINGFACE_CO_URL_TEMPLATE", template), ("HF_HUB_OFFLINE", False)):
        (patch or pytest.MonkeyPatch()).setattr(constants, name, value)
