"""An imitation of ZeroGPU's package ``spaces`` (0.51.3) on a machine without a GPU, for tests of the app.

As there: a decorated generator function runs in a process that is forked at the first call and kept for the next;
arguments and answers travel by pickle; it runs ahead of whoever reads its answers; whoever stops reading is noticed at
the next answer; of an exception the name of its class arrives; a process that dies ends the call as aborted. Whom a
call is charged to is found in Gradio's request. Each call is a line of ``calls`` in the folder ``IMITATION``.

For tests: while there is a file ``refuse`` in that folder, no GPU is lent, for the reason in it. A file ``abort`` has
the process killed after as many answers to a slice as it says, once.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Generator
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
from gradio.context import LocalContext

FOLDER = Path(os.environ["IMITATION"])
_fork = multiprocessing.get_context("fork")


class _Process:
    """One that was forked, with what it is asked and what it answers."""

    def __init__(self, task: Callable[..., Generator[Any]]) -> None:
        self.asked: SimpleQueue[Any] = SimpleQueue(ctx=_fork)
        self.answered: SimpleQueue[Any] = SimpleQueue(ctx=_fork)
        self.stop = _fork.Event()
        self.process = _fork.Process(target=self._serve, args=(task,), daemon=True)
        self.process.start()

    def _serve(self, task: Callable[..., Generator[Any]]) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while True:
            arguments = self.asked.get()
            self.stop.clear()
            try:
                answers = task(*arguments)
                for answer in answers:
                    if self.stop.is_set():
                        answers.close()
                        break
                    self.answered.put(("answer", answer))
                self.answered.put(("end", os.getpid()))
            except Exception as error:
                self.answered.put(("error", type(error).__name__))

    def next(self) -> tuple[str, Any]:
        while not self.answered._reader.poll(0.02):  # type: ignore[attr-defined]
            if not self.process.is_alive() and not self.answered._reader.poll(0):  # type: ignore[attr-defined]
                return "error", "GPU task aborted"
        return self.answered.get()


def _hold() -> None:
    while True:
        try:
            left = int((FOLDER / "hold").read_text())
        except FileNotFoundError:
            left = None
        if left != 0:
            (FOLDER / "held").unlink(missing_ok=True)
            if left is not None:
                (FOLDER / "hold").write_text(str(left - 1))
            return
        (FOLDER / "held").touch()
        time.sleep(0.02)


def GPU(task: Any = None, *, duration: int | None = None) -> Any:
    if task is None:
        return functools.partial(GPU, duration=duration)
    idle: list[_Process] = []

    @functools.wraps(task)
    def lent(*arguments: Any) -> Generator[Any]:
        request = LocalContext.request.get(None)
        token = request.headers.get("x-ip-token") if request is not None else None
        if (FOLDER / "refuse").exists():
            raise gr.Error((FOLDER / "refuse").read_text(), title="ZeroGPU quota exceeded", print_exception=False)
        one = idle.pop() if idle else _Process(task)
        call = {"pid": one.process.pid, "parent": os.getpid(), "duration": duration, "token": token}
        with (FOLDER / "calls").open("a") as calls:
            calls.write(json.dumps(call | {"call": type(arguments[0]).__name__}) + "\n")
        one.asked.put(arguments)
        left = int((FOLDER / "abort").read_text()) if (FOLDER / "abort").exists() else None
        while True:
            kind, value = one.next()
            if kind == "error":
                raise gr.Error(value, title="ZeroGPU worker error", print_exception=False)
            if kind == "end":
                idle.append(one)
                return
            if type(arguments[0]).__name__ == "RunSlice":
                _hold()
            try:
                yield value
            except GeneratorExit:
                one.stop.set()
                while one.next()[0] == "answer":
                    pass
                idle.append(one)
                raise
            if left is not None and type(arguments[0]).__name__ == "RunSlice":
                left -= 1
                if left == 0:
                    (FOLDER / "abort").unlink()
                    one.process.kill()
                    one.process.join()

    return lent


def disable_gradio_auto_wrap() -> None:
    (FOLDER / "auto-wrap-off").touch()


def gradio_auto_wrap(task: Any) -> Any:
    return task


zero = SimpleNamespace(startup=lambda: (FOLDER / "started").touch())
