"""The process that renders chat templates. They came with a model or from a user, so one may never end or fill memory.

Each request and each answer is JSON behind its length; a request also says how many seconds of a processor it may take.
The kernel ends the process at that moment, whatever it is doing.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

REQUEST, ANSWER = struct.Struct(">dQ"), struct.Struct(">Q")
"""seconds and length of a request, length of an answer"""
OUT_OF_MEMORY = 3
"""exit status"""
LONGEST_REFUSAL = 200
"""characters of a template's message when it refuses"""
_MARKS_OF_ANSWERS = re.compile(r"{%-?\s*(?:end)?generation\s*-?%}")  # tags that transformers adds to Jinja


def main(memory: int, longest: int) -> None:
    """Answer until the other side closes. ``memory``: bytes beside those that loading took; ``longest``: of an answer.

    Running out of memory ends the process, so that the next request finds a fresh one.
    """
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else is printed is no answer
    _answer({"names_of": ""})  # loads what rendering needs
    _limit(memory)
    while head := requests.read(REQUEST.size):
        seconds, length = REQUEST.unpack(head)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            answer = _encoded(_answer(json.loads(requests.read(length).decode("utf-8", "surrogatepass"))))
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        if len(answer) > longest:
            answer = _encoded({"failed": f"it writes more than {longest:,} bytes"})
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(ANSWER.pack(len(answer)) + answer)
        answers.flush()


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the ``text`` of a conversation or the ``names`` that a template reads. Otherwise return what it said when
    it ``refused``, or the kind of error with which it ``failed``."""
    from jinja2 import TemplateError
    from transformers.utils.chat_template_utils import render_jinja_template

    try:
        if "names_of" in request:
            return {"names": _names(request["names_of"])}
        values = request.pop("values")
        (text,), _ = render_jinja_template(**request, add_generation_prompt=True, **values)
        return {"text": str(text)}
    except MemoryError:
        raise
    except Exception as error:  # Jinja and the code that a template calls raise any exception
        if type(error) is TemplateError:  # by the template's own raise_exception
            return {"refused": str(error)[:LONGEST_REFUSAL]}
        return {"failed": type(error).__name__}


def _names(chat_template: str) -> list[str]:
    from jinja2 import Environment, meta

    parsed = Environment(extensions=["jinja2.ext.loopcontrols"], autoescape=True).parse(
        _MARKS_OF_ANSWERS.sub("", chat_template)
    )
    return sorted(meta.find_undeclared_variables(parsed))


def _encoded(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _limit(memory: int) -> None:
    """Let the process take ``memory`` bytes more than it has, and write no file."""
    limits = [(resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)]
    with suppress(OSError, ValueError):  # systems that do not tell what a process has
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limits.append((resource.RLIMIT_AS, pages * resource.getpagesize() + memory))
    for limit, value in limits:
        with suppress(OSError, ValueError):  # systems without it, or with a lower one
            resource.setrlimit(limit, (value, value))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
