"""What a browser asks of a page: the question that comes with every event, and what is read of it.

Nothing in it is trusted: what does not fit becomes an empty value, or opens the page.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from typing import Annotated, Any

import gradio as gr
from pydantic import BaseModel, Field, StringConstraints

from dashboard.ui.signed_in import person_of
from fsd_core.texts import whole

MOST_COUNTED = 10**9
"""what a browser says it counts stays below this, which every database can hold"""
QUESTION = "question"
"""the part of a page that stands for what was asked"""

Updates = dict[Any, Any]
_Short = Annotated[str, StringConstraints(max_length=200)]


class Values(dict[Any, Any]):
    """Values of fields at a click, by component. ``key`` is that of the act."""

    key: str


class Act(BaseModel):
    """Something that a person did once. The browser chooses ``key``, and sends the same again if no answer comes."""

    key: Annotated[str, StringConstraints(pattern="^[0-9a-f]{32}$")]
    name: _Short
    data: Any = None

    def __getitem__(self, name: str) -> str:
        """Return a text of the data, or an empty one."""
        return str(self.data.get(name, "")) if isinstance(self.data, dict) else ""


class Question(BaseModel):
    """The request of a browser beside the fields. ``number`` counts its questions, ``changes`` its wishes so far.

    ``kept`` holds the values of a form before the page was loaded again, by the numbers of its fields.
    """

    number: int = 0
    shown: dict[_Short, _Short] = {}
    changes: int = 0
    address: dict[str, str] = {}
    wanted: dict[_Short, Any] = {}
    kept: dict[_Short, Any] = {}
    acts: Annotated[list[Act], Field(max_length=100)] = []


class Asked:
    """The question of one browser. Indexed by a component, it returns the value of a field."""

    def __init__(self, question: Question, values: Mapping[Any, Any], request: gr.Request) -> None:
        self._question, self._values = question, values
        self.request, self.person = request, person_of(request)
        self.shown = dict(question.shown)
        """digest of the content of each part of the page, once the browser has the answer"""
        self.postponed = False
        """whether a slow part is left for another answer"""
        self.new_address: str | None = None
        """the query that the page's address gets"""
        self.filled: Updates = {}
        self.unused: set[str] = set()
        """keys of acts whose texts stay drafts in the browser, because nothing was stored of them"""
        self._drawn = False

    def __getitem__(self, field: Any) -> Any:
        return self._values[field]

    @property
    def address(self) -> Mapping[str, str]:
        """The query of the page's address."""
        return self._question.address

    @property
    def opening(self) -> bool:
        """Whether the browser shows nothing yet, or only an error."""
        return self._question.shown.keys() <= {QUESTION}

    @property
    def reloaded(self) -> bool:
        """Whether the page opens with what its form held before it was loaded again."""
        return bool(self._question.kept)

    def fill(self, field: Any, value: Any) -> None:
        """Fill in a field, unless it holds something else by then than what was sent."""
        if value != self._values[field]:
            self.filled[field] = value

    def current(self, field: Any) -> Any:
        """Return the value of a field with this answer: the one that was filled in, or else its own."""
        return self.filled.get(field, self[field])

    def used(self, values: Values, *fields: Any) -> None:
        """Empty fields whose values an act has used, unless something else was typed since."""
        for field in fields:
            if self._values[field] == values[field]:
                self.fill(field, "")

    def wanted(self, name: str) -> Any:
        """Return the wish of a page's script under this name, or ``None``. It is not validated."""
        return self._question.wanted.get(name)

    def page(self, pager: str, of: str, first: int = 0) -> int:
        """Return the page, from 0, that a list was turned to. A list of something else (``of``) begins at ``first``."""
        turned = self.wanted(pager)
        page = turned.get("page") if isinstance(turned, dict) and turned.get("of") == of else None
        return min(max(0, page), MOST_COUNTED) if isinstance(page, int) else first

    def differs(self, part: str, *content: object, slow: bool = False) -> bool:
        """Return whether this part of the page has to be redrawn, for the browser shows other content.

        A ``slow`` part waits for another answer if this one has something to show already.
        """
        key = digest(*content, self.person)
        if self.shown.get(part) == key:
            return False
        if slow and self._drawn:
            self.postponed = True
            return False
        self._drawn = True
        self.shown[part] = key
        return True


def digest(*content: object) -> str:
    """Return a short digest of texts, numbers and collections of them."""
    return hashlib.blake2b(repr(content).encode(), digest_size=8).hexdigest()


def count_in(text: str) -> int:
    """Return a count that a page carries as a text, or 0 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def read_question(question: object) -> Question:
    """Return the question of a browser. A program that calls the event without a question opens the page."""
    try:
        read = json.loads(question) if isinstance(question, str) and question else {}
        return Question.model_validate(whole(read))
    except (ValueError, RecursionError):
        return Question()


def field_value(field: Any, value: Any) -> Any:
    """Return the value of a field as a browser sent it, in the field's type, or the field's empty value."""
    value = whole(value)
    if isinstance(field, gr.Checkbox):
        return value is True
    if isinstance(field, gr.Number):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return value if number and abs(value) <= sys.float_info.max else None  # neither inf nor nan
    if isinstance(field, gr.CheckboxGroup) or getattr(field, "multiselect", False):
        return [str(one) for one in value] if isinstance(value, list) else []
    if isinstance(value, str) or (isinstance(value, int) and isinstance(field, gr.Dropdown)):
        return value
    return "" if isinstance(field, gr.Textbox) else None
