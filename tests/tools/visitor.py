"""A visit of a page as a browser makes it: the page, what it runs when it opens, its clocks, its sign of life."""

from __future__ import annotations

import http.client
import json
import re
import secrets
import socket
import time
from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit

PATIENCE = 60  # seconds
IDLE = 3  # seconds; uvicorn keeps an idle connection for five
_ASKS = re.compile(
    r"window\.fsd\.ask\((\d+), "
)  # the page's own question (dashboard/ui/view.js), among the event's inputs
_PRESSES = re.compile(r'window\.fsd\.act\("([^"]+)", values\b')  # dashboard/ui/press.js
_CONFIG = re.compile(r"window\.gradio_config = (.*?);</script>", re.DOTALL)


class Visitor:
    """One session on one page, a context manager; at its end the connections are cut, as closing the tab does."""

    def __init__(self, url: str, page: str = "", headers: Mapping[str, str] | None = None, **query: str) -> None:
        self.begun = self.used = time.monotonic()
        self.address = urlsplit(url).netloc
        self.origin = f"http://{self.address}"
        self.query, self.headers = urlencode(query), dict(headers or {})
        self.session = secrets.token_hex(6)
        self.questions, self.acts = 0, []
        self.connection = http.client.HTTPConnection(self.address, timeout=PATIENCE)
        self.config = self._page(f"/{page}")
        self.values = {c["id"]: _shown(c) for c in self.config["components"]}
        self.running = {c["id"] for c in self.config["components"] if c["props"].get("active")}
        self.alive = http.client.HTTPConnection(self.address, timeout=PATIENCE)
        self.alive.request("GET", f"/gradio_api/heartbeat/{self.session}", headers=self.headers)
        self.alive.getresponse()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def open(self) -> float:
        """What the page runs when it is opened, then what follows from that; seconds of the visit between the two."""
        due = [event for event in self.events if any(name == "load" for _, name in event["targets"])]
        seconds = 0.0
        while due:
            changed = {component for event in due for component in self._changed_by(event)}
            seconds = seconds or time.monotonic() - self.begun
            due = [
                event for event in self.events
                if any(name == "change" and component in changed for component, name in event["targets"])
            ]  # fmt: skip
        return seconds

    @property
    def clocks(self) -> dict[int, float]:
        """The clocks of the page that run, with the seconds between two ticks."""
        return {c["id"]: c["props"]["value"] for c in self.config["components"] if c["id"] in self.running}

    def tick(self, only: int | None = None) -> list[Any]:
        """Every clock of the page that runs, or ``only`` one, once; what the server sent for each of their outputs."""
        ticking = self.running if only is None else {only}
        sent = []
        for event in self.events:
            if any(name == "tick" and clock in ticking for clock, name in event["targets"]):
                sent += self._call(event)["data"]
        return sent

    def act(self, name: str, data: Any) -> str:
        """Does what a button or a script of the page does, with these values; all that the server sent for it."""
        (asking,) = [event for event in self.events if _ASKS.search(event["js"] or "")]
        self.acts = [{"key": secrets.token_hex(16), "name": name, "data": data}]
        try:
            return " ".join(map(str, self._call(asking)["data"]))
        finally:
            self.acts = []

    @property
    def act_names(self) -> list[str]:
        """What the buttons of the page are called."""
        return [found[1] for event in self.config["dependencies"] for found in _PRESSES.finditer(event["js"] or "")]

    def lose_heartbeat(self) -> None:
        """What happens to a page whose computer sleeps."""
        _cut(self.alive)

    def leave(self) -> None:
        """Closes the tab."""
        _cut(self.alive)
        _cut(self.connection)

    @property
    def events(self) -> list[dict[str, Any]]:
        """What the page may ask the server for."""
        return [event for event in self.config["dependencies"] if event["backend_fn"]]

    def _page(self, path: str) -> dict[str, Any]:
        self.connection.request("GET", f"{path}?{self.query}", headers=self.headers)
        answer = self.connection.getresponse()
        text = answer.read().decode()
        found = _CONFIG.search(text)
        assert answer.status == 200, text[:500]
        assert found is not None, text[:500]
        return json.loads(found[1])

    def _changed_by(self, event: dict[str, Any]) -> list[int]:
        """Runs one event, and returns the components whose values differ then."""
        before = {component: self.values.get(component) for component in event["outputs"]}
        self._call(event)
        return [component for component, value in before.items() if self.values.get(component) != value]

    def _call(self, event: dict[str, Any]) -> dict[str, Any]:
        """Runs one event."""
        body = {
            "data": self._asked(event),
            "event_data": None,
            "fn_index": event["id"],
            "trigger_id": None,
            "session_hash": self.session,
        }
        headers = {"Content-Type": "application/json", "Origin": self.origin, "Sec-Fetch-Site": "same-origin"}
        if time.monotonic() - self.used > IDLE:
            self.connection.close()  # the server has ended it, or is about to; the request opens another
        self.connection.request(
            "POST", f"/gradio_api/run/predict?{self.query}", json.dumps(body), headers | self.headers
        )
        answer = self.connection.getresponse()
        text = answer.read()
        self.used = time.monotonic()
        assert answer.status == 200, text[:500]
        output = json.loads(text)
        self._take(event, output)
        return output

    def _asked(self, event: dict[str, Any]) -> list[Any]:
        """What an event's inputs hold, with what the page's script says beside them."""
        values = [self.values.get(component) for component in event["inputs"]]
        if asks := _ASKS.search(event["js"] or ""):
            place = int(asks[1])
            self.questions += 1
            shown = json.loads(values[place] or "{}").get("shown", {})
            question = {"number": self.questions, "shown": shown, "address": dict(parse_qsl(self.query))}
            question["acts"] = self.acts
            values[place] = json.dumps(question)
        return values

    def _take(self, event: dict[str, Any], output: dict[str, Any]) -> None:
        for component, value in zip(event["outputs"], output["data"], strict=True):
            if isinstance(value, dict) and value.get("__type__") == "update":
                if "active" in value:
                    (self.running.add if value["active"] else self.running.discard)(component)
                value = value.get("value", self.values.get(component))
            self.values[component] = value
        if asks := _ASKS.search(event["js"] or ""):
            fields = list(event["inputs"])
            answer = fields.pop(int(asks[1]))
            self.values |= {fields[int(i)]: value for i, value in json.loads(self.values[answer])["fill"].items()}


def _shown(component: dict[str, Any]) -> Any:
    """A component's value as the browser has it once it is drawn."""
    value = component["props"].get("value")
    return "" if value is None and component["type"] == "textbox" else value


def _cut(connection: http.client.HTTPConnection) -> None:
    if isinstance(connection.sock, socket.socket):
        connection.sock.close()
    connection.close()
