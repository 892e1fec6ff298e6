"""Programs that a model wrote can compute, and do nothing else."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from fsd_core.benchmarks.tasks.sandbox import run


def test_a_program_that_does_not_fail_has_passed() -> None:
    assert run("import math, re, collections, itertools, typing\nassert math.gcd(12, 18) == 6") == "passed"


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("assert 1 == 2", "failed: AssertionError:"),
        ("def f(:\n  pass", "failed: SyntaxError"),
        ("raise SystemExit(0)", "failed: SystemExit"),  # it left before its tests
        ("import os; os._exit(0)", "failed: it ended itself"),
        ("import sys; sys.stdout.write('passed'); sys.__stdout__.flush(); import os; os._exit(0)", "failed: it ended"),
        ("print(open('/proc/self/environ').read()); raise KeyError(1)", "failed: KeyError"),
        ("import numpy", "failed: ModuleNotFoundError"),
    ],
)
def test_a_program_that_fails_says_how(program: str, told: str) -> None:
    assert run(program).startswith(told)


def test_an_endless_loop_is_stopped() -> None:
    begun = time.monotonic()
    assert run("while True: pass", seconds=1) == "stopped after 1 s"
    assert run("import time; time.sleep(60)", seconds=1) == "stopped after 1 s"
    assert time.monotonic() - begun < 15


def test_ten_gigabytes_are_refused() -> None:
    assert run("x = bytearray(10_000_000_000)").startswith("failed: MemoryError")


def test_a_fork_bomb_starts_nothing() -> None:
    before = _children()
    assert run("import os\nwhile True: os.fork()").startswith("failed: PermissionError")
    assert run("import subprocess; subprocess.run(['true'])").startswith("failed: PermissionError")
    assert run("import threading; threading.Thread(target=print).start()").startswith("failed: RuntimeError")
    assert _children() == before


def _children() -> int:
    told = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "pid="], capture_output=True, text=True, check=False)
    return len(told.stdout.split())


@pytest.mark.parametrize(
    "action",
    [
        "os.remove(path)", "os.unlink(path)", "os.rename(path, path + '2')", "os.truncate(path, 0)",
        "open(path, 'w')", "open(path, 'a')", "open(path, 'r+')", "os.open(path, os.O_WRONLY)",
        "os.chmod(path, 0)", "os.symlink(path, path + '3')", "os.mkdir(path + '4')", "shutil.rmtree(folder)",
        "open('new', 'w')", "os.link(path, path + '5')", "open('/proc/self/mem', 'wb')",
    ],
)  # fmt: skip
def test_no_file_is_written_or_deleted(tmp_path: Path, action: str) -> None:
    kept = tmp_path / "kept"
    kept.write_text("as it was")
    told = run(f"import os, shutil\nfolder, path = {str(tmp_path)!r}, {str(kept)!r}\n{action}")
    assert told.startswith("failed: PermissionError"), told
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]
    assert kept.read_text() == "as it was"


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6", "AF_UNIX"])
def test_there_is_no_network(family: str) -> None:
    assert run(f"import socket; socket.socket(socket.{family})").startswith("failed: PermissionError")


def test_the_environment_is_empty_and_the_folder_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert (
        run("import os\nassert not set(os.environ) - {'LC_CTYPE'}, os.environ\nassert os.listdir() == []") == "passed"
    )


def test_what_a_program_prints_goes_nowhere(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("import sys\nfor _ in range(100_000): print('x' * 100); print('y', file=sys.stderr)") == "passed"
    assert capfd.readouterr() == ("", "")
