"""How a running engine is told which rule to judge its drafts by: over HTTP, or by a command that restarts it.

The protocol is in docs/engines.md. Another engine has a knob if it answers as our plug-in for vLLM does
(:class:`PluginKnob`), or if a command can start it with one (:class:`RestartKnob`).
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, Any, Protocol, Self

from fsd_core.config.vllm_plugin import OFF_KIND, SERVED_RULES, told_options
from fsd_core.engines.engine_client import EngineClient
from fsd_core.engines.engine_connection import key_of
from fsd_core.engines.engine_load import EngineLoad
from fsd_core.engines.engine_messages import MessageReader, shortened
from fsd_core.errors import EngineUnavailable, Malformed, NotCalibratable, UnfitEngine
from fsd_core.rules import ENGINE_TITLES, Rule, Served

START_SECONDS = 1800.0
"""within which a restarted engine must answer"""
_METHOD = "fsd_lab_rule"
"""of the workers: with a rule it puts it in force; it answers the rule in force"""
_STOP_SECONDS = 30.0
_PLACE = re.compile(r"\{(rule|kind|knob)\}")


class EngineKnob(Protocol):
    """A way to tell an engine its rule."""

    by_restart: bool
    """whether telling takes so long that settings do their prompts one after the other, and not in turns"""

    def tell(self, load: EngineLoad, served: Served) -> None:
        """Have the engine use ``served.rule`` from now on; if it does already, do nothing that matters.

        Raises ``EngineUnavailable``, and ``FsdError`` for a rule that the engine refuses.
        """
        ...

    def check(self, load: EngineLoad, served: Served) -> None:
        """Raise ``EngineUnavailable`` if the engine says that another rule is in force."""
        ...


def is_told(served: Served) -> bool:
    """Whether an engine of this kind can be told a rule while it runs."""
    return served.engine == "vllm"


def check_told(served: Served) -> None:
    """Raise ``EngineUnavailable`` for an engine that is told no rule while it runs."""
    if not is_told(served):
        raise EngineUnavailable(
            f"{ENGINE_TITLES[served.engine]} is told no rule while it runs: have it restarted by a command, with "
            "`calibrate --endpoint … --restart …`."
        )


class PluginKnob:
    """``POST /collective_rpc`` of a vLLM development server with our plug-in's worker extension."""

    by_restart: bool = False

    def tell(self, load: EngineLoad, served: Served) -> None:
        check_told(served)
        self._hold(served, load.call(lambda client: client.ask_workers(_METHOD, told_options(served.rule))))

    def check(self, load: EngineLoad, served: Served) -> None:
        self._hold(served, load.call(lambda client: client.ask_workers(_METHOD)))

    def _hold(self, served: Served, told: Sequence[Any]) -> None:
        """Hold what the workers say against what they were told."""
        rule, expected = served.rule, told_options(served.rule)
        needed = {"kind"} | ({rule.knob.field} if rule is not None and rule.knob is not None else set())
        for answer in told:
            known = answer if isinstance(answer, dict) else {}
            if needed - known.keys() or any(known[name] != expected[name] for name in known.keys() & expected.keys()):
                raise EngineUnavailable(
                    f"The engine at {served.url} was told the rule {json.dumps(expected)} and says that "
                    f"{shortened(json.dumps(answer))} is in force: it ignores its knob, or somebody else turns it. Let "
                    "one program at a time use it."
                )


class RestartKnob:
    """A command that starts or restarts the engine, from a template. It is run without a shell. To be closed.

    A command that goes on is the engine, and is stopped before the next start and at the end. One that ends with 0 has
    restarted the engine elsewhere.
    """

    by_restart: bool = True

    def __init__(self, command: str, rules: Sequence[Rule], key_variable: str = "") -> None:
        """``command``: words as a shell reads them, with ``{rule}``, ``{kind}`` or ``{knob}``. ``rules``: all that will
        be told. ``key_variable``: see :class:`EngineClient`. Raises ``InvalidSetting``."""
        self._key_variable = key_variable
        self._words, self._strict = template_words(command), _strict_rule(rules)
        self._process: subprocess.Popen[bytes] | None = None
        self._told: Rule | None = None
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 — closed by __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        self._output.close()

    def tell(self, load: EngineLoad, served: Served) -> None:
        """See :meth:`EngineKnob.tell`. Waits until the engine answers."""
        rule = served.rule
        if rule == self._told and (self._process is None or self._process.poll() is None):
            return
        self._stop()
        was_there = self._answers(served)
        self._output.truncate(0)
        words = filled(self._words, rule, self._strict)
        try:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT, start_new_session=True
            )
        except (OSError, ValueError) as error:
            raise EngineUnavailable(f"The command '{shortened(words[0])}' cannot be run: {error}.") from None
        self._wait(self._process, served, was_there)
        self._told = rule

    def check(self, load: EngineLoad, served: Served) -> None:
        """Raise ``EngineUnavailable`` if the engine that was started has ended."""
        if self._process is not None and self._process.poll() not in (None, 0):
            raise EngineUnavailable(f"The engine that the command started has ended. {self._last_words()}")

    def _wait(self, process: subprocess.Popen[bytes], served: Served, was_there: bool) -> None:
        """Wait until the new engine answers; the one that was there before is not taken for it."""
        begun = time.monotonic()
        while time.monotonic() - begun < START_SECONDS:
            status = process.poll()
            if status:
                busy = f" Something else answers at {served.url}: stop it." if was_there else ""
                raise EngineUnavailable(f"The command ended with {status}.{busy} {self._last_words()}")
            if (status == 0 or not was_there) and self._answers(served):
                return
            time.sleep(0.2)
        self._stop()
        raise EngineUnavailable(
            f"The command was started, and no new engine answered at {served.url} within {START_SECONDS:g} seconds. "
            f"{self._last_words()}"
        )

    def _answers(self, served: Served) -> bool:
        """Whether an engine is there, asked once."""
        load = EngineLoad(lambda: EngineClient(served, self._key_variable, deadline=5.0, waits=()))
        try:
            load.call(EngineClient.check)
        except EngineUnavailable:
            return False
        finally:
            load.close()
        return True

    def _stop(self) -> None:
        """End what the command started, and all that this started."""
        process, self._process, self._told = self._process, None, None
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)

    def _last_words(self) -> str:
        self._output.seek(max(0, self._output.seek(0, os.SEEK_END) - 2000))
        lines = self._output.read().decode("utf-8", "replace").strip().splitlines()
        reader = MessageReader(key_of(self._key_variable))
        return f"Its last line: {reader.shortened(lines[-1])}" if lines else "It printed nothing."


def template_words(command: str) -> list[str]:
    """Return the words of a command's template. Raises ``InvalidSetting``."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise Malformed(f"The command cannot be read ({error}): quote it as for a shell.") from None
    if not any(_PLACE.search(word) for word in words):
        raise UnfitEngine(
            "The command has no place for the rule: write {rule} where its JSON belongs, or {knob} where its value "
            "does."
        )
    return words


def filled(words: Sequence[str], rule: Rule | None, strict: Rule) -> list[str]:
    """Return a command. A value stays inside of its word, whatever it holds. ``strict`` stands for no rule."""
    rule = strict if rule is None or rule.lossless else rule
    options = told_options(None) if rule is strict else told_options(rule)
    value = rule.knob_value
    values = {"rule": json.dumps(options), "kind": rule.kind, "knob": OFF_KIND if value is None else f"{value:g}"}
    return [_PLACE.sub(lambda place: values[place[1]], word) for word in words]


def _strict_rule(rules: Sequence[Rule]) -> Rule:
    """Return the rule whose knob stands at its strict value. Raises ``InvalidSetting`` unless there is one."""
    lossy = [rule for rule in rules if not rule.lossless]
    kinds = list(dict.fromkeys(rule.kind for rule in lossy))
    knob = lossy[0].knob if len(kinds) == 1 else None
    if knob is None or not knob.is_off:
        raise NotCalibratable(
            "A command that restarts the engine turns the knob of one rule that can be strict: name one with "
            f"--acceptance, such as {SERVED_RULES[1]}, and not {' and '.join(kinds) or 'none'}."
        )
    return lossy[0].model_copy(update={knob.field: knob.strict})
