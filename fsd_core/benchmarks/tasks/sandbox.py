"""Runs a program that a model wrote, in a child process that can do nothing but compute.

The child has an empty environment and an empty folder, limits on time, memory, files and processes, and a seccomp
filter that lets through what computing takes: it can read files and nothing else. It cannot open one for writing,
delete or rename one, start a process or a thread, or open a socket (:mod:`.sandbox_child`).
"""

from __future__ import annotations

import json
import platform
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

from fsd_core.errors import InvalidSetting

SECONDS = 5.0
MEMORY = 1 << 30  # bytes
_CHILD = Path(__file__).with_name("sandbox_child.py")


def run(program: str, seconds: float = SECONDS, memory: int = MEMORY) -> str:
    """Runs a program to its end: ``passed``, ``failed: <what was raised>`` or ``stopped after <n> s``.

    Raises ``InvalidSetting`` on a machine that has no such filter.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise InvalidSetting(
            "Programs that a model wrote are run only where a filter can hold them, on Linux for x86-64: choose "
            "another task on this machine."
        )
    token = secrets.token_hex(16)  # the program does not know it, so it cannot say that it passed
    told = json.dumps({"program": program, "token": token, "seconds": seconds, "memory": memory})
    with tempfile.TemporaryDirectory(prefix="fsd-program-") as folder:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", str(_CHILD)], cwd=folder, env={}, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            said, _ = child.communicate(told, timeout=seconds + 2)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            return f"stopped after {seconds:g} s"
    verdict = said.strip()
    if child.returncode == 0 and verdict == f"{token} passed":
        return "passed"
    if verdict.startswith(f"{token} failed: "):
        return verdict.removeprefix(f"{token} ")[:200]
    return f"stopped after {seconds:g} s" if child.returncode in (-24, -9) else "failed: it ended itself"
