"""The two processes that judge a program: their start, their job and their end."""

from __future__ import annotations

import marshal
import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import cache
from io import FileIO
from pathlib import Path
from types import CodeType
from typing import Any

# Modules that a child runs, in import order. The last one is its role.
_CONFINING = ("landlock", "seccomp", "confinement")
_COMMON = ("wire_values", "channel", *_CONFINING)
_MODULES = {
    "program": (*_COMMON, "program_child"),
    "judge": (*_COMMON, "proxies", "judge_child"),
    "printing": (*_CONFINING, "printing_child"),
}

# Not a virtual environment's interpreter, which would reveal its path.
_PYTHON = getattr(sys, "_base_executable", None) or sys.executable

# A child gets our code from its standard input. It cannot open our files and need not know their paths.
_START = """
import marshal, os, sys
with open(0, "rb", closefd=False) as memory:
    job = marshal.load(memory)
for name, code in job["modules"]:
    role = sys.modules[name] = type(sys)(name)
    exec(code, role.__dict__)
for name, _ in job["modules"]:
    del sys.modules[name]
role.main(job)
os._exit(0)
"""


def start(role: str, folder: str, pipes: dict[str, FileIO], job: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Start a bare interpreter in ``folder`` that does a job of ``role`` with these pipe ends.

    Its environment is empty. The job is passed in memory, not in a pipe, so neither side waits for the other. Raises
    ``OSError``.
    """
    descriptors = {name: pipe.fileno() for name, pipe in pipes.items()}
    content = marshal.dumps({"modules": _code(role), **descriptors, **job})
    memory = os.memfd_create("job", os.MFD_CLOEXEC)
    try:
        with open(memory, "wb", closefd=False) as stream:
            stream.write(content)
        os.lseek(memory, 0, os.SEEK_SET)
        return subprocess.Popen(
            [_PYTHON, "-I", "-S", "-B", "-c", _START],
            cwd=folder, env={}, stdin=memory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=tuple(descriptors.values()), start_new_session=True,
        )  # fmt: skip
    finally:
        os.close(memory)


def end(child: subprocess.Popen[bytes]) -> None:
    """Kill a child with its process group and wait until it is gone."""
    if child.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


@cache
def _code(role: str) -> tuple[tuple[str, CodeType], ...]:
    """Return the modules of a role by name. They contain no path of this machine."""
    modules = []
    for name in _MODULES[role]:
        source = Path(__file__).with_name(f"{name}.py").read_bytes()
        modules.append((f"{__package__}.{name}", compile(source, f"<{name}>", "exec", dont_inherit=True)))
    return tuple(modules)
