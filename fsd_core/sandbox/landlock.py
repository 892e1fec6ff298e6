"""Landlock: the kernel's rules for what a process may open in the file system (Linux 5.13 and later).

A restricted process can read the files and folders that it named, and open nothing else. Later kernels can refuse more:
moving and truncating files, TCP, ``ioctl`` of devices, signals to other processes, abstract sockets. All of these that
the running kernel supports are refused. Names and numbers as in ``linux/landlock.h``.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

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
    ruleset = _checked(_syscall(_CREATE_RULESET, attributes, len(attributes), 0))
    for paths, allowed in ((files, READ_FILE), (folders, READ_FILE | READ_DIR)):
        for path in paths:
            _allow(ruleset, path, allowed)
    _checked(_syscall(_RESTRICT_SELF, ruleset, flags))
    os.close(ruleset)


def _allow(ruleset: int, path: str, allowed: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("=Qi", allowed, descriptor)
        _checked(_syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0))
    finally:
        os.close(descriptor)


def _syscall(number: int, *arguments: int | bytes | None) -> int:
    return _LIBC.syscall(number, *arguments)


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
    return result
