"""A seccomp filter that allows the system calls that computing needs. The kernel refuses all others.

For Linux on x86-64. Numbers as in ``asm/unistd_64.h``.
"""

from __future__ import annotations

import ctypes
import os
import struct

# Read and write open files, stat a path or a descriptor, list a folder, memory, waiting, clocks, exit.
CALLS = {
    "read": 0, "write": 1, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "lseek": 8, "mmap": 9, "mprotect": 10,
    "munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "pread64": 17, "mremap": 25,
    "getpid": 39, "exit": 60, "getcwd": 79, "gettimeofday": 96, "gettid": 186, "time": 201, "futex": 202,
    "getdents64": 217, "restart_syscall": 219, "exit_group": 231, "newfstatat": 262, "getrandom": 318,
}  # fmt: skip

_READING = (
    os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | 0o100000  # large files
)
_CLOCKS = 16  # the kernel's own clocks have smaller numbers, those of other processes larger ones
_F_DUPFD, _F_GETFD, _F_SETFD, _F_GETFL, _F_DUPFD_CLOEXEC = 0, 1, 2, 3, 1030
_ADVICE = (0, 1, 2, 3, 4, 8, 14, 15)  # about the process's own memory; others fail or poison pages of the machine

# Calls that are allowed by one argument: its position, and its values or the bits that it may have.
BY_VALUE = {
    72: (1, (_F_DUPFD, _F_GETFD, _F_SETFD, _F_GETFL, _F_DUPFD_CLOEXEC)),  # fcntl: no signals, no leases, no pipe sizes
    28: (2, _ADVICE),  # madvise
    228: (0, range(_CLOCKS)), 229: (0, range(_CLOCKS)), 230: (0, range(_CLOCKS)),  # clock_gettime, _getres, _nanosleep
}  # fmt: skip
BY_BITS = {2: (1, _READING), 257: (2, _READING)}  # open, openat: for reading, never with O_PATH

_X86_64, _X32 = 0xC000003E, 0x40000000
_LOAD, _AND, _EQUAL, _ABOVE, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06  # opcodes of classic BPF
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000 | 1, 0x80000000  # refused with EPERM
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in the input of a filter
_SECCOMP, _FILTER = 22, 2  # arguments of prctl


def allow_only_computing() -> None:
    """Install the filter, which cannot be removed. Raises ``OSError`` if the kernel refuses."""
    rules = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, _X86_64), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    rules += [(_ABOVE, 0, 1, _X32), (_RETURN, 0, 0, _REFUSE)]
    for number in CALLS.values():
        rules += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    for number, (argument, values) in BY_VALUE.items():
        tests = [(_EQUAL, 0, 1, value) for value in values]
        body = [rule for test in tests for rule in (test, (_RETURN, 0, 0, _ALLOW))]
        rules += _rules_of(number, argument, body)
    for number, (argument, bits) in BY_BITS.items():
        body = [(_AND, 0, 0, ~bits & 0xFFFFFFFF), (_EQUAL, 0, 1, 0), (_RETURN, 0, 0, _ALLOW)]
        rules += _rules_of(number, argument, body)
    rules += [(_RETURN, 0, 0, _REFUSE)]
    code = b"".join(struct.pack("HBBI", *rule) for rule in rules)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(rules), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SECCOMP, _FILTER, program, 0, 0):
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")


def _rules_of(number: int, argument: int, body: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Return the rules that decide one call by one argument. It is an int, so the kernel reads only its lower half."""
    block = [(_LOAD, 0, 0, _ARGUMENTS + 8 * argument), *body, (_RETURN, 0, 0, _REFUSE)]
    return [(_EQUAL, 0, len(block), number), *block]
