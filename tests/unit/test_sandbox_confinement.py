"""A program reads Python's own files, changes nothing outside itself, and costs a bounded time and memory."""

from __future__ import annotations

import os
import resource
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import fsd_core
from fsd_plugins.code.sandbox import confinement, judge, judge_process
from tests.tools.sandbox_attempts import attempt, attempts
from tests.tools.sizes import some

PARENT = os.getpid()


WRITING = [
    "os.remove(path)", "os.unlink(path)", "os.rename(path, path + '2')", "os.replace(path, path + '2')",
    "os.truncate(path, 0)", "open(path, 'w')", "open(path, 'a')", "open(path, 'r+')", "open(path, 'x')",
    "os.open(path, os.O_WRONLY)", "os.open(path, os.O_RDONLY | os.O_TRUNC)", "os.open(folder, os.O_TMPFILE | 2)",
    "os.chmod(path, 0)", "os.chown(path, 1, 1)", "os.lchown(path, 1, 1)", "os.utime(path, (0, 0))",
    "os.setxattr(path, 'user.x', b'1')", "os.removexattr(path, 'user.x')", "os.symlink(path, path + '3')",
    "os.link(path, path + '5')", "os.mkdir(path + '4')", "os.rmdir(folder)", "__import__('shutil').rmtree(folder)",
    "os.mkfifo(path + '6')", "os.mknod(path + '7')", "open('new', 'w')", "open('/proc/self/mem', 'wb')",
    "open('/proc/self/oom_score_adj', 'w')", "open('/dev/null', 'w')", "open('/dev/shm/new', 'w')",
    "call(85, path.encode(), 0o600)", "call(257, -100, path.encode(), 0o102, 0o600)",
    "call(437, -100, b'x', 0, 24)", "call(264, -100, path.encode(), -100, b'x')",
    "call(316, -100, path.encode(), -100, b'x', 0)",
]  # fmt: skip


def test_no_file_is_written_moved_or_deleted(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("as it was")
    before = os.stat(kept)
    assert attempts(WRITING, ("EPERM", "EACCES"), f"folder, path = {str(tmp_path)!r}, {str(kept)!r}") == []
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]
    assert kept.read_text() == "as it was"
    after = os.stat(kept)
    assert (after.st_mode, after.st_uid, after.st_mtime_ns) == (before.st_mode, before.st_uid, before.st_mtime_ns)


CHANGING = [
    "call(16, fd, 0x40086602, bytes(8))",  # ioctl FS_IOC_SETFLAGS
    "call(16, fd, 0x80086601, bytes(8))",  # ioctl FS_IOC_GETFLAGS
    "call(16, fd, 0x5401, bytes(64))",  # ioctl TCGETS
    "call(16, 0, 0x5412, b'x')",  # ioctl TIOCSTI
    "os.fchmod(fd, 0o777)", "os.fchown(fd, 0, 0)", "os.utime(fd)", "os.ftruncate(fd, 0)", "os.fsync(fd)",
    "os.setxattr(fd, 'user.x', b'1')", "call(285, fd, 0, 0, 8)", "call(73, fd, 2)", "call(40, 1, fd, 0, 8)",
    "call(72, fd, 1024, 1)",  # fcntl F_SETLEASE
    "call(72, fd, 1026, 1)",  # fcntl F_NOTIFY
    "call(72, fd, 4, 0o20000)",  # fcntl F_SETFL O_ASYNC
    f"call(72, fd, 8, {PARENT})",  # fcntl F_SETOWN
    "call(72, fd, 10, 9)",  # fcntl F_SETSIG
    "call(72, 3, 1031, 1 << 20) or call(72, 4, 1031, 1 << 20)",  # fcntl F_SETPIPE_SZ
]  # fmt: skip


def test_a_file_that_may_be_read_is_not_changed() -> None:
    file = Path(sysconfig.get_path("stdlib")) / "json" / "__init__.py"
    assert attempts(CHANGING, ["EPERM"], f"fd = os.open({str(file)!r}, os.O_RDONLY)") == []


PROCESSES = [
    "os.fork()", "os.forkpty()", "os.posix_spawn('/bin/true', ['true'], {})",
    "os.execv('/bin/true', ['true'])",
    "__import__('subprocess').run(['true'])", "call(322, 0, b'', 0, 0, 0x1000)",
    "call(56, 0x100 | 17, 0, 0, 0, 0)", "call(58)", "call(435, bytes(88), 88)",
    f"os.kill({PARENT}, 15)", f"os.kill({PARENT}, 0)", "os.kill(-1, 0)",
    "os.kill(0, 0)", "[os.kill(os.getpid() + n, 9) for n in (1, 2, 3)]",
    f"os.killpg({PARENT}, 9)", f"call(234, {PARENT}, {PARENT}, 9)",
    f"call(200, {PARENT}, 9)", f"call(129, {PARENT}, 9, bytes(128))",
    f"os.pidfd_open({PARENT})", "call(424, 3, 9, 0, 0)", "call(438, 3, 0, 0)",
    f"call(101, 16, {PARENT}, 0, 0)", "call(101, 0, 0, 0, 0)",
    f"call(310, {PARENT}, bytes(16), 1, bytes(16), 1, 0)",
    f"call(311, {PARENT}, bytes(16), 1, bytes(16), 1, 0)",
    f"call(302, {PARENT}, 7, bytes(16), 0)", "call(302, 0, 0, b'\\xff' * 16, 0)",
    "call(160, 0, b'\\xff' * 16)", f"os.sched_setaffinity({PARENT}, [0])",
    f"call(144, {PARENT}, 3, bytes(4))", f"call(141, 0, {PARENT}, -20)",
    "os.nice(-5)",
    "os.setsid()", "os.setuid(0)", "os.setgroups([])", "call(95, 0)",
    "__import__('signal').alarm(1) + call(38, 0, bytes(32), 0)", "call(222, 0, 0, bytes(4))",
    "call(157, 1, 0, 0, 0, 0)", "call(157, 4, 1, 0, 0, 0)", "call(135, 0)",
]  # fmt: skip


def test_no_process_is_started_or_touched() -> None:
    assert attempts(PROCESSES, ["EPERM"]) == []
    assert "can't start new thread" in attempt("__import__('_thread').start_new_thread(print, ())")
    assert attempt("os.system('true')") == "done: 32512"  # what a shell that was not found comes to


SPEAKING = [
    "socket.socket(socket.AF_INET)", "socket.socket(socket.AF_INET6)", "socket.socket(socket.AF_UNIX)",
    "socket.socket(socket.AF_NETLINK)", "socket.socket(socket.AF_PACKET)", "socket.socketpair()",
    "socket.create_connection(('127.0.0.1', 5000))", "call(42, 3, bytes(16), 16)", "call(49, 3, bytes(16), 16)",
    "call(44, 3, b'x', 1, 0, 0, 0)", "os.pipe()", "__import__('select').epoll()", "os.eventfd(0)",
    "call(240, b'/queue', 0o102, 0o600, 0)", "call(29, 7, 64, 0o1600)", "call(68, 7, 0o1600)",
    "call(64, 7, 1, 0o1600)",
]  # fmt: skip


def test_there_is_no_network_and_no_other_way_to_speak() -> None:
    assert attempts(SPEAKING, ["EPERM"], "import socket") == []


DOORS = [
    "os.memfd_create('x')", "call(447, 0)", "call(425, 8, bytes(120))", "call(426, 3, 1, 0, 0, 0, 0)",
    "call(323, 0)", "call(298, bytes(128), 0, -1, -1, 0)", "call(321, 0, bytes(72), 72)", "call(317, 1, 0, 0)",
    "call(444, 0, 0, 1)",
    "call(272, 0x10000000)", "call(308, 3, 0)", "call(161, b'.')", "call(155, b'.', b'.')",
    "call(428, -100, b'/', 0)",
    "call(165, b'x', b'/', b'tmpfs', 0, 0)", "call(250, 0, 0)", "call(175, 0, 0, b'')", "call(169, 0, 0, 0, 0)",
    "call(246, 0, 0, 0, 0)", "call(303, -100, b'/', bytes(8), bytes(4), 0)", "call(304, 3, bytes(8), 0)",
    "call(172, 3)", "call(425 | 0x40000000, 8, bytes(120))", "call(520, b'/bin/true', 0, 0)", "call(149, 0, 4096)",
    "call(28, 0, 4096, 100)",  # madvise MADV_HWPOISON
    "call(28, 0, 4096, 12)",  # madvise MADV_MERGEABLE
    "call(237, 0, 4096, 0, 0, 0, 0)", "call(279, 1, 0, 0, 0, 0, 0)", "call(440, 3, 0, 0, 4, 0)",
    "call(103, 2, 0, 0)",
]  # fmt: skip


def test_no_other_door_of_the_kernel_is_open() -> None:
    assert attempts(DOORS, ("EPERM", "ENOSYS")) == []


def test_every_call_that_is_not_on_the_list_is_refused() -> None:
    """Each number that a kernel may know, those of the x32 interface too, with arguments that do no harm.

    335 and 336 belong to the kernel's probes: it lets no filter see them, and ends a program that calls them.
    """
    allowed = sorted({*confinement.CALLS.values(), *confinement.BY_VALUE, *confinement.BY_BITS, 335, 336})
    action = f"""
allowed = {allowed}
def refused(number):
    try:
        call(number, -1, -1, -1, -1, -1, -1)
    except OSError as error:
        return error.errno == errno.EPERM
numbers = [n for n in range(1000) if n not in allowed] + [n | 0x40000000 for n in range(1000)]
[n for n in numbers if not refused(n)]"""
    assert attempt(action.strip()) == "done: []"


def test_calls_of_the_32_bit_interface_end_the_program() -> None:
    """Their numbers mean other things: ``int 0x80`` with 20 asks for the process id there."""
    action = """
import mmap
memory = mmap.mmap(-1, 4096, prot=7)
memory.write(bytes.fromhex("b814000000cd80c3"))
ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))()"""
    assert attempt(action.strip()) == "failed: it ended itself"


def test_a_file_is_mapped_for_reading_alone() -> None:
    action = """
import json, mmap
file = open(json.__file__, "rb")
assert len(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)[:99]) == 99
mmap.mmap(file.fileno(), 0)"""
    assert attempt(action.strip()) == "EACCES"


SECRET = "a secret that nobody may read"
CALLER, BASE = os.getpid(), Path(sysconfig.get_path("stdlib")).resolve()


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
    "/proc/thread-self/environ", f"/proc/{CALLER}/environ", f"/proc/{CALLER}/cmdline", f"/proc/{CALLER}/mem",
    f"/proc/{CALLER}/maps", "/proc/1/environ", "/proc/1/cmdline", "/proc/cpuinfo", "/proc/mounts",
    "/proc/net/tcp", "/proc/sys/kernel/hostname", "/sys/devices/system/cpu/online", "/etc/passwd", "/etc/shadow",
    "/etc/hostname", "/etc/hosts", "/etc/localtime", "/etc/resolv.conf", "/dev/zero", "/dev/urandom", "/dev/tty",
    fsd_core.__file__, pytest.__file__, f"{sys.prefix}/pyvenv.cfg", sys.executable,
]  # fmt: skip


def test_no_other_file_is_read() -> None:
    actions = [f"open({path!r}, 'rb').read(99)" for path in FILES if Path(path).exists()]
    assert attempts(actions, ("EACCES", "EPERM")) == []


FOLDERS = [
    "/", "/proc", "/proc/self/fd", "/proc/self/task", f"/proc/{CALLER}/fd", "/etc", "/sys", "/dev", "/tmp", "..",
    "/dev/shm", str(Path.home()), str(Path(fsd_core.__file__).parent), str(BASE), str(BASE / "site-packages"),
    sysconfig.get_path("purelib"), str(Path.cwd()),
]  # fmt: skip


def test_no_folder_is_listed() -> None:
    actions = [f"os.listdir({folder!r})" for folder in FOLDERS if folder == ".." or Path(folder).is_dir()]
    assert attempts(actions, ["EACCES"]) == []


PATHS = [
    f"os.readlink('/proc/{CALLER}/exe')", "os.readlink('/proc/self/exe')", "os.readlink('/proc/self/cwd')",
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
    f"call(204, {CALLER}, 8, bytes(8))", "call(98, 0, bytes(144))", "call(100, bytes(32))", "call(102)",
    f"call(228, {(~CALLER << 3) | 2}, bytes(16))", "call(140, 0, 0)", f"call(121, {CALLER})", "call(103, 3, 0, 0)",
    f"call(302, {CALLER}, 7, 0, bytes(16))", "call(302, 0, 7, 0, bytes(16))", f"call(124, {CALLER})",
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


SECONDS, SPARE = 0.3, 0.1
GROWTH = 16 << 10  # kilobytes

FLOODS = {
    "every descriptor": """
import os
while True:
    for number in range(1024):
        try: os.write(number, b"x" * 65536)
        except OSError: pass""",
    "every descriptor in a call": """
import os
def f():
    while True:
        for number in range(3, 32):
            try: os.write(number, bytes(65536))
            except OSError: pass""",
    "answers that nobody asked for": """
import os
answer = b"t\\0\\0\\0\\2s\\0\\0\\0\\5valuel\\0\\0\\3\\xe8" + b"N" * 1000
while True:
    for number in range(3, 32):
        try: os.write(number, len(answer).to_bytes(4, "big") + answer)
        except OSError: pass""",
    "a message that is announced and never sent": """
import os, time
for number in range(3, 32):
    try: os.write(number, b"\\0\\x0f\\xff\\xff" + b"x")
    except OSError: pass
time.sleep(99)""",
    "a message byte by byte": """
import os, time
while True:
    for number in range(3, 32):
        try: os.write(number, b"\\0")
        except OSError: pass
    time.sleep(0.01)""",
    "printing": "while True: print('x' * 65536)",
    "an answer without end": "def f():\n    while True: yield 1",
    "an answer that doubles itself": "def f():\n    x = [0]\n    for _ in range(60): x = [x, x]\n    return x",
    "an answer within itself": "def f():\n    x = []\n    x.append(x)\n    return x",
    "a huge text": "f = lambda: 'x' * 10 ** 8",
    "a huge list": "f = lambda: [None] * 10 ** 7",
    "a huge number": "f = lambda: 1 << 10 ** 9",
    "objects without number": "class E: pass\nf = lambda: [E() for _ in range(10 ** 6)]",
    "an error of a huge text": "def f(): raise ValueError('x' * 10 ** 8)",
    "a range without end": "f = lambda: range(10 ** 30)",
    "an endless iterator of huge texts": "import itertools\nf = lambda: itertools.repeat('x' * 10 ** 6)",
    "a length that is none": """
class f:
    __len__ = lambda self: 10 ** 30
    __iter__ = lambda self: iter(int, 1)""",
}

HOARDS = {
    "ten gigabytes": "x = bytearray(10_000_000_000)",
    "memory bit by bit": "x = []\nwhile True: x.append(bytearray(1 << 20))",
    "mapped memory": "import mmap\nx = []\nwhile True: x.append(mmap.mmap(-1, 1 << 28))",
    "recursion": "def f(): return f()\nf()",
    "recursion without a limit": "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(): return f()\nf()",
    "recursion in C": "x = []\nfor _ in range(10 ** 6): x = [x]\nrepr(x)",
    "a source that nests": "-" * 100_000 + "1",
    "a huge number as text": "import sys\nsys.set_int_max_str_digits(0)\nstr(1 << 10 ** 7)",
    "a power without end": "9 ** 9 ** 9 ** 9",
    "a constant": "x = 'x' * 10 ** 11",
    "a regular expression": "import re\nre.match('(a+)+$', 'a' * 40 + 'b')",
    "a loop": "while True: pass",
    "a loop that catches all": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "a sleep": "import time\ntime.sleep(99)",
    "a lock": "import threading\nx = threading.Lock()\nx.acquire()\nx.acquire()",
    "open files": "import json\nx = []\nwhile True: x.append(open(json.__file__))",
    "a sum without end": "import itertools\nsum(itertools.count())",
    "garbage that resists": "class E:\n    def __del__(self): E()\nE()",
}  # fmt: skip


IN_THE_GATE = (
    "printing", "an answer that doubles itself", "a huge text", "objects without number", "a message byte by byte",
    "ten gigabytes", "memory bit by bit", "recursion in C", "a loop that catches all", "a sleep",
)  # fmt: skip
"""of each way out that a program has, the worst"""


@pytest.mark.parametrize("name", some([*FLOODS, *HOARDS], *IN_THE_GATE))
def test_time_and_memory_are_bounded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_process, "SPARE", SPARE)
    program = FLOODS.get(name) or HOARDS[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    verdict = judge(program, "assert list(f()) == [1, 2, 3]", seconds=SECONDS)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWTH
    assert verdict.startswith(("failed: ", "stopped after 0.3 s"))
    assert len(verdict) <= 200


def test_what_computes_too_long_is_stopped_by_the_kernel() -> None:
    assert judge("while True: pass", "", seconds=1) == "stopped after 1 s"
    assert judge("def f(): return 1", "while True: f()", seconds=1) == "stopped after 1 s"


def test_a_program_may_take_all_of_its_time_and_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_process, "SPARE", 600)  # a pause of the machine is no time of the program's
    program = "import time\nx = bytearray(1 << 29)\nwhile time.process_time() < 1: pass"
    assert judge(program, "", seconds=10) == "passed"


def test_the_memory_of_the_judge_is_bounded_too() -> None:
    program = "import itertools\nf = lambda: itertools.repeat('x' * 10 ** 6)"
    assert judge(program, "list(f())", seconds=20, memory=1 << 28).startswith("failed: MemoryError")
