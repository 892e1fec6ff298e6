"""Confines the calling process: from then on it can only compute and use the pipes that it keeps."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
import sys
from collections.abc import Iterator

from fsd_core.sandbox.landlock import allow_only_reading
from fsd_core.sandbox.seccomp import allow_only_computing

_LIBC = ctypes.CDLL(None, use_errno=True)
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
