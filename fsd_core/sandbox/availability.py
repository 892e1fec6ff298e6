"""Whether this machine can confine a program. If it cannot, none is run."""

from __future__ import annotations

import platform
from functools import cache

from fsd_core.errors import FsdError, InvalidSetting
from fsd_core.sandbox import judge_process, landlock


@cache
def refusal() -> str | None:
    """Return why this machine runs no programs, as a sentence, or ``None`` if it does. Tried once per process."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return _sentence("this is not Linux on x86-64")
    if not landlock.abi():
        return _sentence("its kernel offers no Landlock, as Linux does from 5.13 on where it is enabled")
    try:
        verdict = judge_process.run("def one():\n    return 1\n", "assert one() == 1\n", "", (), 5.0, 1 << 30)
    except FsdError as error:
        return str(error)
    return None if verdict == "passed" else _sentence(f"a harmless program did not run: {verdict}")


def require_sandbox() -> None:
    """Raise ``InvalidSetting`` if programs are not run on this machine."""
    sentence = refusal()
    if sentence is not None:
        raise InvalidSetting(sentence)


def _sentence(reason: str) -> str:
    return (
        "Programs written by a model run only where the kernel can confine them, and this machine cannot "
        f"({reason}): choose another task."
    )
