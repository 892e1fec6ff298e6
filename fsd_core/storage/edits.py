"""Edits of a run or an experiment: its name, a note, tags, and whether it is archived."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fsd_core.errors import Malformed, NotGiven, OutOfRange

Subject = Literal["run", "experiment"]

LONGEST_RUN_NAME = 255
LONGEST_NOTE = 10_000
LONGEST_TAG, MOST_TAGS = 30, 12


@dataclass(frozen=True)
class Edit:
    """New values; ``None`` leaves one unchanged. Raises ``InvalidSetting`` for values that cannot be stored."""

    name: str | None = None
    """of an experiment; a run is named by its setting"""
    note: str | None = None
    tags: tuple[str, ...] | None = None
    archived: bool | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            checked_name(self.name)
        if self.note is not None and len(self.note) > LONGEST_NOTE:
            raise OutOfRange(f"The note has {len(self.note):,} characters: use at most {LONGEST_NOTE:,}.")
        if self.tags is not None and read_tags(" ".join(self.tags)) != self.tags:
            raise Malformed("Tags are single words, each once, in alphabetical order: use read_tags.")


def checked_name(name: str) -> str:
    """Return an experiment's name, stripped. Raises ``InvalidSetting`` if it is empty or too long."""
    name = name.strip()
    if not name:
        raise NotGiven("The experiment needs a name: type one.")
    if len(name) > LONGEST_RUN_NAME:
        raise OutOfRange(f"The name of the experiment has {len(name)} characters: use at most {LONGEST_RUN_NAME}.")
    return name


def read_tags(text: str) -> tuple[str, ...]:
    """Return the tags in a text, separated by spaces or commas: sorted, each once, in its first spelling.

    Raises ``InvalidSetting``.
    """
    words = [word.strip("#") for word in text.replace(",", " ").split()]
    tags = tuple(sorted({word.casefold(): word for word in reversed(words) if word}.values(), key=str.casefold))
    for tag in tags:
        if len(tag) > LONGEST_TAG or not tag.isprintable():
            raise OutOfRange(f"The tag {tag[:40]!r} cannot be used: expected 1 to {LONGEST_TAG} characters.")
    if len(tags) > MOST_TAGS:
        raise OutOfRange(f"There are {len(tags)} tags: use at most {MOST_TAGS}.")
    return tags
