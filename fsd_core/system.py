"""The operating system: files that appear whole, locks, signals.

Probe whether a folder can hold a database: two processes lock files in it in the ways that the program needs.

A mounted bucket or network folder may offer files without locks. Two processes would then write a SQLite file at once
and corrupt it.

An exclusive lock on a file. The kernel releases it when its holder dies, for whatever reason.

The holder writes its identity and current work into the file. The entry of a killed holder stays there, so the next
holder knows what was in progress.

Work in progress, recorded in a process's lock file. The next process reads there what a killed one was doing.

An entry is written before every prompt, at the cost of one system call and no transaction.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any
from weakref import WeakSet


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a path beside ``path`` to write to, which becomes ``path`` if the block succeeds and is removed otherwise.

    It reaches the disk first, so that a kill or a loss of power leaves what was there before or the new file, whole.
    Raises what the block or the system raises.
    """
    partial = path.with_name(f".{path.name}.part")
    try:
        yield partial
        flush(partial)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    with suppress(OSError):  # some file systems cannot flush a folder: the file is there and whole
        flush(path.parent)


def flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


PROBE_PATIENCE = 30.0  # seconds; a folder on another machine may be slow

Probe = Callable[[Path], str | None]
"""returns what a folder lacks, as the end of a sentence; ``None`` if it lacks nothing"""

# Code of the other process: for each kind of lock it prints whether it got the lock.
_OTHER = """
import fcntl, sqlite3, sys
folder = sys.argv[1]
def got(take):
    try: take()
    except (OSError, sqlite3.OperationalError): return "0"
    return "1"
one, two = open(folder + "/whole", "r+"), open(folder + "/range", "r+")
database = sqlite3.connect(folder + "/probe.db", timeout=0, isolation_level=None)
print(got(lambda: fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)),
      got(lambda: fcntl.lockf(two, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)),
      got(lambda: database.execute("BEGIN IMMEDIATE")))
"""


def lack_of(folder: Path) -> str | None:
    """Return the reason why ``folder`` cannot hold a database, or ``None``. Leaves nothing behind."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".probe-", dir=folder, ignore_cleanup_errors=True) as scratch:
            return _probe_locks(Path(scratch))
    except (OSError, sqlite3.Error, subprocess.SubprocessError) as error:
        return f"it cannot be used ({error})"


def is_writable(folder: Path) -> bool:
    """Whether a file can be created there. For a mounted folder, permissions alone do not tell."""
    with suppress(OSError), tempfile.TemporaryFile(dir=folder):
        return True
    return False


def _probe_locks(folder: Path) -> str | None:
    for name in ("whole", "range"):
        (folder / name).write_text("old")
    with (
        (folder / "whole").open("r+") as whole,
        (folder / "range").open("r+") as part,
        closing(sqlite3.connect(folder / "probe.db", isolation_level=None)) as database,
    ):
        database.execute("CREATE TABLE probe (x)")
        fcntl.flock(whole, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(part, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)
        database.execute("BEGIN IMMEDIATE")
        if (locked := _try_locks(folder)) != ["0", "0", "0"]:
            return f"another process gets what this one has locked ({', '.join(_wrong_kinds(locked, '1'))})"
        database.execute("COMMIT")
        fcntl.flock(whole, fcntl.LOCK_UN)
        fcntl.lockf(part, fcntl.LOCK_UN, 10, 5)
        if (unlocked := _try_locks(folder)) != ["1", "1", "1"]:
            return f"a lock that is given back stays taken ({', '.join(_wrong_kinds(unlocked, '0'))})"
    (folder / "new").write_text("new")
    os.replace(folder / "new", folder / "whole")
    if (folder / "whole").read_text() != "new" or (folder / "new").exists():
        return "a file that is renamed does not take the place of another"
    return None


def _try_locks(folder: Path) -> list[str]:
    command = [sys.executable, "-I", "-S", "-c", _OTHER, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PROBE_PATIENCE, check=True).stdout.split()


def _wrong_kinds(answers: list[str], wrong: str) -> list[str]:
    kinds = ("a whole file", "a part of a file", "a database")
    return [kind for kind, answer in zip(kinds, answers, strict=True) if answer == wrong]


_locks: WeakSet[Lock] = WeakSet()


class Lock:
    """A lock that this process holds."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.previous_metadata = _read(descriptor)
        """last metadata of the previous holder; ``{}`` if it ended properly or never wrote any"""
        os.ftruncate(descriptor, 0)
        _locks.add(self)

    def write_metadata(self, **metadata: Any) -> None:
        """Write metadata of the holder, ``pid`` at least, in one system call. A kill leaves either the old or the new
        entry."""
        size = os.fstat(self.descriptor).st_size
        os.pwrite(self.descriptor, json.dumps(metadata).encode().ljust(size), 0)

    def close(self) -> None:
        """Clear the metadata and release the lock."""
        _locks.discard(self)
        os.ftruncate(self.descriptor, 0)
        os.close(self.descriptor)


def _close_in_child() -> None:
    """Close inherited locks in a forked process. Otherwise a lock would outlive its holder."""
    for lock in list(_locks):
        with suppress(OSError):
            os.close(lock.descriptor)
    _locks.clear()


os.register_at_fork(after_in_child=_close_in_child)


def acquire(path: Path, patience: float = 1.0) -> Lock | None:
    """Lock the file, or return ``None`` while another process holds it.

    ``patience`` is in seconds, because a reader in :func:`holder` also has the lock for a moment.
    """
    deadline = time.monotonic() + patience
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_same_file(path, descriptor):
                return Lock(descriptor)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return None
            time.sleep(0.05)
        os.close(descriptor)


def holder(path: Path) -> dict[str, Any] | None:
    """Return the metadata of the lock's holder, ``{}`` before it wrote any, or ``None`` if nobody holds the lock."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(descriptor)
    finally:
        os.close(descriptor)
    return None


def _is_same_file(path: Path, descriptor: int) -> bool:
    """Whether the path still names the open file. The last holder may have removed it while others waited."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _read(descriptor: int) -> dict[str, Any]:
    """Return the metadata in the file, or ``{}`` if a crash of the machine has left something else."""
    try:
        metadata = json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0))
    except ValueError:
        return {}
    return metadata if isinstance(metadata, dict) else {}


Claims = Mapping[str, str]
"""claim tokens by job id"""
Prompts = Mapping[str, Sequence[int]]
"""positions of the prompts that were being written, by run id"""


class LockMetadata:
    """The metadata of the holder. Until :meth:`settle`, the entry of the previous holder is carried along."""

    def __init__(self, lock: Lock, **about: Any) -> None:
        self._lock, self._about = lock, about
        self._claims, self._prompts = _claims(lock.previous_metadata), _prompts(lock.previous_metadata)
        self._write()

    @property
    def inherited(self) -> tuple[Claims, Prompts]:
        """Claims and prompts of the previous holder when it was killed; empty if it ended properly."""
        return dict(self._claims), dict(self._prompts)

    def settle(self) -> None:
        """Drop the inherited entry once it is handled."""
        self._claims, self._prompts = {}, {}
        self._write()

    def idle(self) -> None:
        """Record that the worker is idle for the first time, with the first pair loaded."""
        if "idle" not in self._about:
            self._about["idle"] = True
            self._write()

    @contextmanager
    def working_on(self, job_id: str, token: str) -> Iterator[None]:
        """Record a claimed job during the block."""
        self._claims[job_id] = token
        self._write()
        try:
            yield
        finally:
            del self._claims[job_id]
            self._write()

    @contextmanager
    def writing(self, run_id: str, positions: Sequence[int]) -> Iterator[None]:
        """Record the prompts of a run that are being written during the block."""
        self._prompts = {run_id: list(positions)}
        self._write()
        try:
            yield
        finally:
            self._prompts = {}
            self._write()

    def _write(self) -> None:
        self._lock.write_metadata(**self._about, claims=self._claims, prompts=self._prompts)


def _claims(metadata: Mapping[str, Any]) -> dict[str, str]:
    claims = metadata.get("claims")
    return {str(job_id): str(token) for job_id, token in claims.items()} if isinstance(claims, dict) else {}


def _prompts(metadata: Mapping[str, Any]) -> dict[str, list[int]]:
    prompts = metadata.get("prompts")
    if not isinstance(prompts, dict):
        return {}
    return {str(run_id): [p for p in positions if isinstance(p, int)] for run_id, positions in prompts.items()}


class Stop:
    """An event that a signal handler may set while the thread that it interrupts waits for it.

    ``threading.Event`` may then wait for itself for good: its lock may be held by that very thread.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._wake = SimpleQueue[None]()  # whose put is made for signal handlers

    def set(self) -> None:
        """Set it for good."""
        self._is_set = True
        self._wake.put(None)

    def is_set(self) -> bool:
        """Return whether it was set."""
        return self._is_set

    def wait(self, timeout: float) -> bool:
        """Wait until it is set, for so many seconds at most. Return whether it was."""
        with suppress(Empty):
            self._wake.get(timeout=timeout)
            self._wake.put(None)  # for others that wait
        return self._is_set


def handle_hangup(handler: Callable[[int, FrameType | None], object]) -> None:
    """Handle SIGHUP, unless it is ignored, as ``nohup`` has it. Without a handler the process would end at once."""
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, handler)


@contextmanager
def signals_as_interrupt() -> Iterator[None]:
    """Handle SIGTERM and SIGHUP in the block like a keyboard interrupt, so that the command says how to continue."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may set signal handlers
        yield
        return
    received: list[int] = []

    def end(number: int, _: object) -> None:
        received.append(number)
        if received[0] == number:  # one of each, as systemd may send them, is one request
            raise KeyboardInterrupt

    previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGTERM, end)
    handle_hangup(end)
    try:
        yield
    except SystemExit:
        if received:
            sys.exit(128 + received[0])
        raise
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Do not look for garbage in the block: what modules define as they are imported stays until the end.

    Python otherwise scans all of it again and again. That takes a fifth of the time of importing torch or Gradio.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
