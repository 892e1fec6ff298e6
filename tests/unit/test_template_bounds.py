"""A chat template has bounds in time and memory that it cannot leave, and the next one is rendered all the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from fsd_core.models import prompt
from fsd_core.models.prompt import TemplateEnded, ask_renderer
from tests.tools.sizes import PATIENCE

LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
DOUBLED = (
    "{% set all = namespace(text='a' * 1000) %}{% for i in range(99999) %}{% set all.text = all.text ~ all.text %}"
    "{% endfor %}"
)


def render(template: str, content: str = "Hello", seconds: float = PATIENCE) -> dict[str, Any]:
    said = [{"role": "user", "content": content}]
    request = {"conversations": [said], "tools": None, "chat_template": template, "values": {}}
    return ask_renderer(request, seconds)


def is_rendered() -> None:
    assert render("<{{ messages[0].content }}>") == {"text": "<Hello>"}


@pytest.mark.parametrize("template", ["{{ 'a' * 10**10 }}", DOUBLED])
def test_memory_ends_and_the_next_template_is_rendered(template: str) -> None:
    """The first is folded when the template is compiled, before anything of it is rendered."""
    with pytest.raises(TemplateEnded, match="512 MB of memory"):
        render(template)
    is_rendered()


def test_time_ends_wherever_it_is_spent_and_the_next_template_is_rendered() -> None:
    for template in (LOOP, "{{ (7 ** 9999999) % 10 }}{% set x = 3 ** 99999999 %}"):  # the second within one operation
        with pytest.raises(TemplateEnded, match=r"it ran for 0\.2 s"):
            render(template, seconds=0.2)
    is_rendered()


def test_a_text_longer_than_any_context_is_refused_and_no_secret_goes_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt, "LONGEST_RENDERED", 1_000_000)
    monkeypatch.setenv("FSD_DATABASE_URL", "postgresql://fsd:secret@db/fsd")
    prompt._renderer.end()  # the next one is started with this bound
    try:
        assert render("{{ 'ä' * 600000 }}") == {"failed": "it writes more than 1,000,000 bytes"}
        is_rendered()
        running = prompt._renderer._running
        assert running is not None
        assert b"secret" not in Path(f"/proc/{running[0].pid}/environ").read_bytes()
    finally:
        prompt._renderer.end()


def test_what_is_nested_without_end_is_told() -> None:
    nested = "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}"
    assert render(nested) == {"failed": "RecursionError"}
    assert ask_renderer({"names_of": nested}, PATIENCE) == {"failed": "RecursionError"}


def test_the_names_that_a_template_reads_are_asked_for_within_the_same_bounds() -> None:
    assert ask_renderer({"names_of": "{{ thinking }}{{ messages }}"}, PATIENCE) == {"names": ["messages", "thinking"]}


def test_the_process_dies_and_another_takes_its_place() -> None:
    is_rendered()
    running = prompt._renderer._running
    assert running is not None
    running[0].kill()
    running[0].wait()
    with pytest.raises(TemplateEnded, match="ended the process"):
        render("{{ messages }}")
    is_rendered()


def test_a_forked_process_has_its_own() -> None:
    """As on ZeroGPU, where a forked process renders prompts beside its parent."""
    is_rendered()
    parents = prompt._renderer._running
    assert parents is not None
    reader, writer = os.pipe()
    if (pid := os.fork()) == 0:
        status = 1
        try:
            is_rendered()
            running = prompt._renderer._running
            assert running is not None
            os.write(writer, str(running[0].pid).encode())
            prompt._renderer.end()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    os.close(writer)
    with os.fdopen(reader) as stream:
        assert stream.read() != str(parents[0].pid)
    is_rendered()
    assert prompt._renderer._running is parents
