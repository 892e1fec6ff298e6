"""Landlock: what of the file system a process may open, by the kernel's own rules (Linux 5.13 and later).

A process that has bound itself reads the files and folders that it named, and opens nothing else. Later kernels can
refuse more: moving and truncating files, TCP, ``ioctl`` of devices, signals to others, abstract sockets. Whatever this
one knows of that is refused. Names and numbers as in ``linux/landlock.h``.
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
# Rights of files and folders that each version of the interface has to give, all of which are withheld.
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
_NETWORK_RIGHTS = {4: 0b11}  # to bind and to connect a TCP socket
_SCOPES = {6: 0b11}  # abstract sockets and signals: nothing beyond the process itself
_SILENT = {7: 1}  # flag of restrict_self: what is refused fills no audit log


def abi() -> int:
    """Version of the interface that the kernel offers; 0 where there is none."""
    version = _syscall(_CREATE_RULESET, None, 0, _VERSION)
    return max(version, 0)


def allow_only_reading(files: Iterable[str], folders: Iterable[str]) -> None:
    """Leaves this process reading ``files``, and ``folders`` with all that is in them; there is no way back.

    Raises ``OSError`` if the kernel refuses, as it does to a process that may still gain privileges.
    """
    version = abi()
    rights, network, scopes, flags = (
        sum(bits for since, bits in given.items() if since <= version)
        for given in (_FILE_RIGHTS, _NETWORK_RIGHTS, _SCOPES, _SILENT)
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
