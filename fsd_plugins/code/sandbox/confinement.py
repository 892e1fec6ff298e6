"""Confines the calling process: from then on it can only compute and use the pipes that it keeps.

Landlock: the kernel's rules for what a process may open in the file system (Linux 5.13 and later).

A restricted process can read the files and folders that it named, and open nothing else. Later kernels can refuse more:
moving and truncating files, TCP, ``ioctl`` of devices, signals to other processes, abstract sockets. All of these that
the running kernel supports are refused. Names and numbers as in ``linux/landlock.h``.

A seccomp filter that allows the system calls that computing needs. The kernel refuses all others.

For Linux on x86-64. Numbers as in ``asm/unistd_64.h``.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
import sys
from collections.abc import Iterable, Iterator

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # numbers of the system calls
_VERSION, _PATH_BENEATH = 1, 1

_LIBC = ctypes.CDLL(None, use_errno=True)

READ_FILE, READ_DIR = 1 << 2, 1 << 3
# Rights of files and folders that each version of the interface adds. All are withheld.
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
_NETWORK_RIGHTS = {4: 0b11}  # bind and connect of a TCP socket
_SCOPES = {6: 0b11}  # abstract sockets and signals: nothing beyond the process itself
_SILENT = {7: 1}  # flag of restrict_self: no audit log of refusals


def abi() -> int:
    """Return the version of the interface that the kernel offers, or 0 if there is none."""
    version = _syscall(_CREATE_RULESET, None, 0, _VERSION)
    return max(version, 0)


def allow_only_reading(files: Iterable[str], folders: Iterable[str]) -> None:
    """Restrict this process to reading ``files``, and ``folders`` with their content. This cannot be undone.

    Raises ``OSError`` if the kernel refuses, as it does for a process that may still gain privileges.
    """
    version = abi()
    rights, network, scopes, flags = (
        sum(bits for since, bits in table.items() if since <= version)
        for table in (_FILE_RIGHTS, _NETWORK_RIGHTS, _SCOPES, _SILENT)
    )
    attributes = struct.pack("QQQ", rights, network, scopes)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = _returned(_syscall(_CREATE_RULESET, attributes, len(attributes), 0))
    for paths, allowed in ((files, READ_FILE), (folders, READ_FILE | READ_DIR)):
        for path in paths:
            _allow(ruleset, path, allowed)
    _returned(_syscall(_RESTRICT_SELF, ruleset, flags))
    os.close(ruleset)


def _allow(ruleset: int, path: str, allowed: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("=Qi", allowed, descriptor)
        _returned(_syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0))
    finally:
        os.close(descriptor)


def _syscall(number: int, *arguments: int | bytes | None) -> int:
    return _LIBC.syscall(number, *arguments)


def _returned(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
    return result


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


_CAPSET, _CAPABILITIES = 126, 0x20080522  # system call, version of its structure
_PARENT_DEATH_SIGNAL, _NO_NEW_PRIVILEGES = 1, 38  # options of prctl
_DESCRIPTORS = 1 << 16  # more than a process has open
_SYSTEM_FOLDERS = ("/lib", "/usr/lib")
_NOT_STDLIB = {"site-packages", "dist-packages", "sitecustomize.py", "usercustomize.py"}


def confine(
    keep: tuple[int, ...], parent: int, seconds: float, memory: int, standard: tuple[int, int] | None = None
) -> None:
    """Leave the process only the descriptors in ``keep``, ``seconds`` of CPU, ``memory`` bytes and Python's own files.

    The descriptors ``standard`` become standard input and output. Without them, these become ``/dev/null``, as standard
    error always does. The process dies with its ``parent``, more precisely with the parent's thread that started it and
    waits for it. This cannot be undone. Raises ``OSError`` if the kernel refuses any part of it.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for number, descriptor in enumerate((*(standard or (null, null)), null)):
        os.dup2(descriptor, number)
    lowest = 3
    for number in (*sorted(keep), _DESCRIPTORS):
        os.closerange(lowest, number)
        lowest = number + 1
    files, folders = _python_files()
    _checked(_LIBC.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    allow_only_reading([*files, os.devnull], [*folders, os.getcwd()])
    _drop_capabilities()
    _checked(_LIBC.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0))
    if os.getppid() != parent:
        raise ProcessLookupError("its parent is gone")
    os.uname = _uname
    for limit, value in (
        (resource.RLIMIT_CPU, int(seconds + 0.999)), (resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 32), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_NPROC, 0),
    ):  # fmt: skip
        resource.setrlimit(limit, (value, value))
    allow_only_computing()


def _python_files() -> tuple[list[str], list[str]]:
    """Return files and folders of the standard library and of the shared libraries that its modules need.

    Installed packages are left out. Importing from a folder lists it, and the folder that holds packages may not be
    listed. The import system has already listed it, and remembers the result as long as the folder does not change.
    """
    files, folders = [], []
    library = os.path.realpath(os.path.dirname(os.__file__))
    for path in sys.path:
        if os.path.isfile(path):  # the standard library as an archive
            files.append(path)
        elif os.path.isdir(path):
            entries = list(os.scandir(path))
            if _NOT_STDLIB.isdisjoint(entry.name for entry in entries):
                folders.append(path)
                continue
            allowed = [entry for entry in entries if entry.name not in _NOT_STDLIB]
            folders += [entry.path for entry in allowed if entry.is_dir()]
            files += [entry.path for entry in allowed if entry.is_file()]  # not a broken link
    for folder in _library_folders():
        if folder.startswith(_SYSTEM_FOLDERS) and not library.startswith(f"{folder}/"):
            folders.append(folder)
        else:  # a custom folder, or one that holds the standard library and packages
            files += [entry.path for entry in os.scandir(folder) if ".so" in entry.name and entry.is_file()]
    return files, folders


def _library_folders() -> Iterator[str]:
    """Return the folders of the shared libraries of this process, each with and without ``/usr`` in front."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        mapped = {line.rstrip("\n").partition("/")[2] for line in maps if ".so" in line}
    folders = {os.path.dirname("/" + path) for path in mapped}
    folders |= {"/usr" + folder for folder in folders} | {folder.removeprefix("/usr") for folder in folders}
    extensions = [entry for entry in sys.path if entry.endswith("lib-dynload")]
    return (folder for folder in sorted(folders) if folder not in extensions and os.path.isdir(folder))


def _drop_capabilities() -> None:
    """Drop all capabilities of a process of root. Any other process has none."""
    header = struct.pack("=Ii", _CAPABILITIES, 0)
    _checked(_LIBC.syscall(_CAPSET, header, bytes(24)))


def _checked(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _uname() -> os.uname_result:
    """Return the facts that programs ask ``uname`` for. The filter refuses the system call, which names the machine."""
    return os.uname_result(("Linux", "", "", "", "x86_64"))
