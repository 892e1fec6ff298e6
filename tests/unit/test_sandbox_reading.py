"""A program reads Python's own files, and nothing else of the machine it runs on."""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import fsd_core
from fsd_core.sandbox import judge
from tests.tools.sandbox_attempts import attempt, attempts

SECRET = "a secret that nobody may read"
PARENT, BASE = os.getpid(), Path(sysconfig.get_path("stdlib")).resolve()


@pytest.fixture(scope="module")
def planted() -> Iterator[dict[str, Path]]:
    """A file with a secret in each of the places where a user keeps such things."""
    with (
        tempfile.TemporaryDirectory() as temporary,
        tempfile.TemporaryDirectory(dir=Path.home()) as home,
        tempfile.TemporaryDirectory(dir="/dev/shm") as memory,
    ):
        places = {"tmp": temporary, "home": home, "memory": memory}
        for folder in places.values():
            Path(folder, "fsd.db").write_text(SECRET)
        yield {name: Path(folder, "fsd.db") for name, folder in places.items()}


WAYS = [
    "open({0!r}).read()",
    "os.read(os.open({0!r}, os.O_RDONLY), 99)",
    "open(os.path.relpath({0!r})).read()",
    "__import__('sqlite3').connect('file:' + {0!r} + '?mode=ro', uri=True).execute('select 1')",
    "os.read(call(437, -100, {0!r}.encode(), bytes(24), 24), 99)",  # openat2
    "os.read(call(2, {0!r}.encode(), 0), 99)",
    "ctypes.CDLL({0!r})",
]


def test_no_file_of_the_user_s_is_read(planted: dict[str, Path]) -> None:
    actions = [way.format(str(path)) for path in planted.values() for way in WAYS]
    assert attempts(actions, ("EACCES", "EPERM", "denied", "unable to open database file")) == []


FILES = [
    "/proc/self/environ", "/proc/self/cmdline", "/proc/self/maps", "/proc/self/mem", "/proc/self/status",
    "/proc/thread-self/environ", f"/proc/{PARENT}/environ", f"/proc/{PARENT}/cmdline", f"/proc/{PARENT}/mem",
    f"/proc/{PARENT}/maps", "/proc/1/environ", "/proc/1/cmdline", "/proc/cpuinfo", "/proc/mounts",
    "/proc/net/tcp", "/proc/sys/kernel/hostname", "/sys/devices/system/cpu/online", "/etc/passwd", "/etc/shadow",
    "/etc/hostname", "/etc/hosts", "/etc/localtime", "/etc/resolv.conf", "/dev/zero", "/dev/urandom", "/dev/tty",
    fsd_core.__file__, pytest.__file__, f"{sys.prefix}/pyvenv.cfg", sys.executable,
]  # fmt: skip


def test_no_other_file_is_read() -> None:
    actions = [f"open({path!r}, 'rb').read(99)" for path in FILES if Path(path).exists()]
    assert attempts(actions, ("EACCES", "EPERM")) == []


FOLDERS = [
    "/", "/proc", "/proc/self/fd", "/proc/self/task", f"/proc/{PARENT}/fd", "/etc", "/sys", "/dev", "/tmp", "..",
    "/dev/shm", str(Path.home()), str(Path(fsd_core.__file__).parent), str(BASE), str(BASE / "site-packages"),
    sysconfig.get_path("purelib"), str(Path.cwd()),
]  # fmt: skip


def test_no_folder_is_listed() -> None:
    actions = [f"os.listdir({folder!r})" for folder in FOLDERS if folder == ".." or Path(folder).is_dir()]
    assert attempts(actions, ["EACCES"]) == []


PATHS = [
    f"os.readlink('/proc/{PARENT}/exe')", "os.readlink('/proc/self/exe')", "os.readlink('/proc/self/cwd')",
    "call(267, -100, b'/proc/self/root', bytes(99), 99)", "os.open('/etc/passwd', os.O_PATH)",
    "os.open('/', os.O_PATH | os.O_DIRECTORY)", "os.getxattr('/etc/passwd', 'user.x')", "os.listxattr('/etc')",
    "os.chdir('/')", "os.fchdir(0)", "call(161, b'/')", "call(303, -100, b'/etc/passwd', bytes(99), bytes(8), 0)",
    "call(332, -100, b'/etc/passwd', 0, 0x7ff, bytes(256))", "os.access('/etc/passwd', 0) or call(21, b'/', 0)",
    "os.statvfs('/')",
]  # fmt: skip


def test_no_path_is_asked_about_in_other_ways() -> None:
    assert attempts(PATHS, ["EPERM"]) == []


MACHINE = [
    "call(63, bytes(390))", "call(110)", "call(99, bytes(112))", "call(204, 0, 8, bytes(8))",
    f"call(204, {PARENT}, 8, bytes(8))", "call(98, 0, bytes(144))", "call(100, bytes(32))", "call(102)",
    f"call(228, {(~PARENT << 3) | 2}, bytes(16))", "call(140, 0, 0)", f"call(121, {PARENT})", "call(103, 3, 0, 0)",
    f"call(302, {PARENT}, 7, 0, bytes(16))", "call(302, 0, 7, 0, bytes(16))", f"call(124, {PARENT})",
]  # fmt: skip


def test_the_machine_and_its_processes_are_not_asked_about() -> None:
    assert attempts(MACHINE, ["EPERM"]) == []


def test_the_name_of_the_machine_is_nobody_s_business() -> None:
    program = "import os, platform\nname = [*os.uname(), platform.node(), platform.platform()]"
    tests = f"text = ' '.join(name)\nassert {os.uname().release!r} not in text and {os.uname().nodename!r} not in text"
    assert judge(program, tests) == "passed"


def test_python_s_own_files_are_read() -> None:
    program = (
        "import os, json\nsource = open(json.__file__).read(9)\nnames = os.listdir(os.path.dirname(json.__file__))"
    )
    assert judge(program, "assert len(source) == 9 and 'decoder.py' in names") == "passed"


def test_the_tests_and_where_the_project_is_are_not_in_the_program_s_process() -> None:
    """Whatever can be reached there: frames, modules, every container that the collector knows."""
    program = """
import gc, sys
def texts():
    seen, left = set(), [sys.modules, gc.get_objects(), sys.argv, sys.orig_argv, sys.path, sys.executable, sys.prefix]
    frame = sys._getframe()
    while frame:
        left += [frame.f_locals, frame.f_globals, frame.f_code]
        frame = frame.f_back
    while left:
        value = left.pop()
        if isinstance(value, (str, bytes)):
            yield str(value)
        elif id(value) not in seen:
            seen.add(id(value))
            left += gc.get_referents(value)
            if type(value) is type(texts.__code__):
                left += [value.co_filename, *value.co_consts]
def count(start, end):
    return sum(start + end in text for text in texts())
"""
    root = str(Path(fsd_core.__file__).parents[1])
    tests = f"# unknown words\nassert count('unknown', ' words') == 0\nassert count({root[:3]!r}, {root[3:]!r}) == 0"
    assert judge(program, tests) == "passed"


def test_what_remains_is_the_size_and_age_of_a_file_whose_path_is_guessed(planted: dict[str, Path]) -> None:
    """Neither Landlock nor seccomp can tell one path from another here, and Python's imports ask so."""
    assert attempt(f"os.stat({str(planted['tmp'])!r}).st_size") == f"done: {len(SECRET)}"
