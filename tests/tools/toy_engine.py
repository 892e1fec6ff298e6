"""A served engine over HTTP with our own loop behind it: real texts, counters that are true, and faults on request.

It speaks as OpenAI's API does, and counts as vLLM does: rounds that drafted, tokens drafted and accepted, tokens
written. A fault replaces one answer. With ``has_knob`` it is told its rule as vLLM is with our plug-in.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fsd_core.config import DecodingConfig
from fsd_core.config.vllm_plugin import rule_options, served_rule
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.errors import InvalidSetting
from fsd_core.evaluation.harness import written
from fsd_core.models.loading import LoadedPair
from fsd_core.rules import Served, Speculative

MODEL, VERSION = "toy-model", "9.8.7"


class ToyEngine:
    """A server on a port of its own, for a ``with`` block."""

    def __init__(
        self,
        pair: LoadedPair,
        decoding: DecodingConfig,
        certificate: tuple[Path, Path] | None = None,
        port: int = 0,
    ) -> None:
        """``certificate``: files of certificate and key, for https. ``port``: 0 takes a free one."""
        self.pair, self.lock = pair, threading.Lock()
        self.counts = dict.fromkeys(("drafts", "drafted", "accepted", "generated"), 0)
        self.open = 0
        self.reset(decoding)
        self._server = ThreadingHTTPServer(("127.0.0.1", port), type("Handler", (Request,), {"engine": self}))
        self._server.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'http' if certificate is None else 'https'}://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def reset(self, decoding: DecodingConfig) -> None:
        """Serve this method without a fault, as if nothing had been asked; what it has counted goes on."""
        self.decoding = decoding
        self.faults: list[Callable[[Request], None]] = []
        """each answers one prompt in its turn, in place of the engine"""
        self.pages: dict[str, tuple[int, str, str]] = {}
        """status, type and text of addresses that answer otherwise"""
        self.usage, self.metrics = True, True
        self.has_knob, self.obeys, self.admits = False, True, False
        """whether it is told rules, follows them, and says so if it does not"""
        self.told: dict[str, Any] = {"kind": "off"}
        self.turns = 0
        """how often it was told a rule"""
        self.asked: list[dict[str, Any]] = []
        self.authorizations: list[str | None] = []
        self.most_open = 0
        self.together: threading.Barrier | None = None
        """for as many prompts as must be asked at once before any is answered"""

    def __enter__(self) -> ToyEngine:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait(self) -> None:
        """Serve until the process is ended."""
        self._thread.join()

    def served(self, endpoint: str = "toy", **changed: Any) -> Served:
        return Served(**{"engine": "vllm", "endpoint": endpoint, "url": self.url, "model": MODEL} | changed)

    def turn(self, body: dict[str, Any]) -> dict[str, Any]:
        """Take a call of the plug-in's method, and return the rule in force."""
        assert body["method"] == "fsd_lab_rule"
        in_force = {"kind": "off"} if self.admits else self.told
        if not body["args"]:
            return in_force
        rule, self.turns = served_rule(*body["args"]), self.turns + 1
        self.told = {"kind": "off"} if rule is None else rule_options(rule)
        if self.obeys:
            method = {"acceptance": rule or Speculative()}
            self.decoding = self.decoding.model_copy(update=method)
        return {"kind": "off"} if self.admits else self.told

    def count(self, **more: int) -> None:
        with self.lock:
            for name, number in more.items():
                self.counts[name] += number

    def page_of_metrics(self) -> str:
        names = {"drafts": "num_drafts", "drafted": "num_draft_tokens", "accepted": "num_accepted_tokens"}
        lines = [
            f'vllm:spec_decode_{name}_total{{engine="0",model_name="{MODEL}"}} {self.counts[key]:.1f}'
            for key, name in names.items()
        ]
        return "\n".join([*lines, f'vllm:generation_tokens_total{{model_name="{MODEL}"}} {self.counts["generated"]}'])


class Request(BaseHTTPRequestHandler):
    """One request."""

    engine: ToyEngine
    body: dict[str, Any]
    flooded = 0
    """bytes of an answer that has no end"""
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    """or each second part of an answer waits for the client to acknowledge the first, which may take 40 ms"""

    def handle(self) -> None:
        """Serve a connection until the other side closes it, be it in the middle of an answer."""
        with suppress(ConnectionError):
            super().handle()

    def log_message(self, *_: Any) -> None:
        """Say nothing: what is asked is in ``asked``."""

    def do_GET(self) -> None:
        pages = {
            "/health": '{"status": "ok"}',
            "/version": json.dumps({"version": VERSION}),
            "/v1/models": json.dumps({"data": [{"id": MODEL}]}),
        }
        if self.engine.metrics:
            pages["/metrics"] = self.engine.page_of_metrics()
        answers = {path: (200, "application/json", page) for path, page in pages.items()} | self.engine.pages
        self.page(*answers.get(self.path, (404, "application/json", '{"detail": "Not Found"}')))

    def do_POST(self) -> None:
        engine, body = self.engine, json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.body = body
        if engine.has_knob and self.path == "/collective_rpc":
            try:
                self.page(200, "application/json", json.dumps({"results": [engine.turn(body)]}))
            except InvalidSetting as error:
                self.page(500, "application/json", json.dumps({"error": {"message": str(error)}}))
            return
        if self.path not in ("/v1/completions", "/v1/chat/completions"):
            self.page(404, "application/json", '{"detail": "Not Found"}')
            return
        with engine.lock:
            engine.asked.append(body)
            engine.authorizations.append(self.headers["Authorization"])
            fault = engine.faults.pop(0) if engine.faults else None
            engine.open, self.is_open = engine.open + 1, True
            engine.most_open = max(engine.most_open, engine.open)
        try:
            (fault or Request.answer)(self)
        finally:
            self.count_closed()

    def count_closed(self) -> None:
        """Count the request as answered: before its last bytes, for whoever has these may ask again at once."""
        with self.engine.lock:
            self.engine.open, self.is_open = self.engine.open - self.is_open, False

    def answer(self) -> None:
        """Write the answer to the prompt."""
        engine, body = self.engine, self.body
        if engine.together is not None:
            engine.together.wait()
        self.begin()
        tokens: list[int] = []
        sent, sent_tokens = "", 0
        decoder = PairDecoder(engine.pair, engine.decoding.model_copy(update={"max_new_tokens": body["max_tokens"]}))
        with decoder.session(self.ids(body["prompt"]), body["seed"]) as session:
            while session.stop_reason is None:
                with engine.lock:
                    record = session.run_round()
                tokens += record.emitted
                engine.count(
                    drafts=bool(record.drafted), drafted=len(record.drafted), accepted=record.accepted,
                    generated=len(record.emitted),
                )  # fmt: skip
                text = written(engine.pair, tokens)
                if not text.endswith("�"):  # a part of a character
                    self.event(text=text[len(sent) :], token_ids=tokens[sent_tokens:])
                    sent, sent_tokens = text, len(tokens)
            reason = "length" if session.stop_reason == "length" else "stop"
        rest = written(engine.pair, tokens)[len(sent) :]
        self.event(text=rest, token_ids=tokens[sent_tokens:], finish_reason=reason)
        if engine.usage:
            usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": len(tokens)}
            self.send({"model": MODEL, "choices": [], "usage": usage})
        self.end()

    def ids(self, prompt: str | Sequence[int]) -> list[int]:
        return self.engine.pair.tokenizer(prompt)["input_ids"] if isinstance(prompt, str) else list(prompt)

    def begin(self, kind: str = "text/event-stream; charset=utf-8", status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def event(self, model: str = MODEL, **choice: Any) -> None:
        self.send({"model": model, "choices": [{"index": 0, "finish_reason": None, **choice}]})

    def send(self, event: dict[str, Any]) -> None:
        self.chunk(f"data: {json.dumps(event)}\n\n")

    def chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def end(self) -> None:
        self.count_closed()
        self.chunk("data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def page(self, status: int, kind: str, text: str, **headers: str) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def break_off(self) -> None:
        """Close the connection in the middle."""
        self.close_connection = True
        self.wfile.flush()
        self.connection.close()
