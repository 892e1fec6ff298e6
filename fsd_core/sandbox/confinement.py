"""Binds the process that calls it: from then on it computes, and talks over the pipes that it keeps."""

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
_PARENT_DEATH_SIGNAL, _NO_NEW_PRIVILEGES = 1, 38  # of prctl
_DESCRIPTORS = 1 << 16  # more than a process has open
_OF_THE_SYSTEM = ("/lib", "/usr/lib")
_NOT_OF_PYTHON = {"site-packages", "dist-packages", "sitecustomize.py", "usercustomize.py"}


def confine(keep: tuple[int, ...], parent: int, seconds: float, memory: int) -> None:
    """Leaves the process its ``keep`` of descriptors, ``seconds`` of CPU, ``memory`` bytes and Python's own files.

    Standard input, output and error become ``/dev/null``. The process dies with its ``parent``, or rather with the
    thread there that started it and waits for it. There is no way back. Raises ``OSError`` if the kernel refuses a part
    of it.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    below = 3
    for number in (*sorted(keep), _DESCRIPTORS):
        os.closerange(below, number)
        below = number + 1
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
    """Files and folders of the standard library and of the shared libraries that its modules need.

    Packages that were installed are left out. Whoever searches a folder lists it, and the one that holds them may not
    be listed: the import system has done so by now, and remembers what it saw as long as the folder does not change.
    """
    files, folders = [], []
    library = os.path.realpath(os.path.dirname(os.__file__))
    for place in sys.path:
        if os.path.isfile(place):  # the standard library as an archive
            files.append(place)
        elif os.path.isdir(place):
            entries = list(os.scandir(place))
            if _NOT_OF_PYTHON.isdisjoint(entry.name for entry in entries):
                folders.append(place)
                continue
            known = [entry for entry in entries if entry.name not in _NOT_OF_PYTHON]
            folders += [entry.path for entry in known if entry.is_dir()]
            files += [entry.path for entry in known if entry.is_file()]  # not a link that leads nowhere
    for folder in _library_folders():
        if folder.startswith(_OF_THE_SYSTEM) and not library.startswith(f"{folder}/"):
            folders.append(folder)
        else:  # somebody's own, or with the standard library and packages below it
            files += [entry.path for entry in os.scandir(folder) if ".so" in entry.name and entry.is_file()]
    return files, folders


def _library_folders() -> Iterator[str]:
    """Where the shared libraries of this process are, below ``/usr`` and beside it."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        mapped = {line.rstrip("\n").partition("/")[2] for line in maps if ".so" in line}
    found = {os.path.dirname("/" + path) for path in mapped}
    found |= {"/usr" + folder for folder in found} | {folder.removeprefix("/usr") for folder in found}
    extensions = [place for place in sys.path if place.endswith("lib-dynload")]
    return (folder for folder in sorted(found) if folder not in extensions and os.path.isdir(folder))


def _drop_capabilities() -> None:
    """A process of root keeps none of root's powers; any other has none."""
    header = struct.pack("=Ii", _CAPABILITIES, 0)
    _checked(_LIBC.syscall(_CAPSET, header, bytes(24)))


def _checked(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _uname() -> os.uname_result:
    """In place of a call that names the machine, which the filter refuses: what programs ask it for."""
    return os.uname_result(("Linux", "", "", "", "x86_64"))
