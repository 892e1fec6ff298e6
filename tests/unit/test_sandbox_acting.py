"""A program changes nothing outside itself: no file, no process, no connection, and no call that could."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

from fsd_core.sandbox import confinement
from tests.tools.sandbox_attempts import attempt, attempts

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
