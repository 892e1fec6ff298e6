"""The documents as data: fenced blocks with the marks before them, inline code, links and headings."""

from __future__ import annotations

import csv
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
DOCUMENTS = (
    ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md")),
    *sorted((ROOT / "fsd_plugins").glob("*/README.md")), ROOT / "engines" / "vllm" / "README.md",
)  # fmt: skip
SHELL = ("", "bash")
"""the languages of blocks that hold commands"""
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_MARK = re.compile(r'<!-- not run(?: where it says "([^"]+)")?: (.+?) -->', re.DOTALL)


def index() -> list[dict[str, str]]:
    """The table of measured comparisons: file, title, pair, task, prompts, temperature, machine, commit, command."""
    with (RESULTS / "index.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def commit() -> str:
    """The first digits of the commit that is checked out."""
    told = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return told.stdout.strip()


class Mark(NamedTuple):
    """Why a block is not run, or only those commands of it that say ``where``."""

    where: str
    reason: str


class Block(NamedTuple):
    """A fenced block."""

    path: Path
    line: int
    language: str
    text: str
    marks: tuple[Mark, ...]

    @property
    def place(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"

    def reason_against(self, command: str) -> str:
        """Return why a command of this block is not run; empty if it is."""
        return next((mark.reason for mark in self.marks if mark.where in command), "")


class Command(NamedTuple):
    """One command of a block: what is set before it, and its words."""

    block: Block
    text: str
    variables: dict[str, str]
    words: list[str]

    @property
    def reason(self) -> str:
        return self.block.reason_against(self.text)


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def blocks(path: Path) -> list[Block]:
    """Return the fenced blocks of a document. A mark is a comment on the lines before the fence."""
    text, found = text_of(path), []
    for fence in _FENCE.finditer(text):
        before = re.search(r"((?:<!--(?:(?!-->).)*-->\s*)*)\Z", text[: fence.start()], re.DOTALL)
        marks = tuple(
            Mark(where, " ".join(reason.split())) for where, reason in _MARK.findall(before[1] if before else "")
        )
        found.append(Block(path, text.count("\n", 0, fence.start()) + 1, fence[1], fence[2], marks))
    return found


def commands(block: Block) -> Iterator[Command]:
    """Yield the commands of a shell block: without comments, with lines joined that a backslash or quotes join."""
    for line in _lines(block.text):
        words = shlex.split(line)
        variables = {}
        if words[:1] == ["export"]:
            words = words[1:]
        while words and re.match(r"[A-Z_][A-Z0-9_]*=", words[0]):
            name, _, value = words.pop(0).partition("=")
            variables[name] = value
        yield Command(block, line, variables, words)


def _lines(text: str) -> Iterator[str]:
    line, quote, i = "", "", 0
    text = text.replace("\\\n", " ")
    while i < len(text):
        character = text[i]
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == "#" and (not line or line[-1].isspace()):
            i = text.index("\n", i)
            character = "\n"
        if character in "\n;" and not quote:
            if line.strip():
                yield line.strip()
            line = ""
        else:
            line += character
        i += 1


def prose(path: Path) -> str:
    """Return a document without its blocks and comments."""
    return re.sub(r"<!--.*?-->", "", _FENCE.sub("", text_of(path)), flags=re.DOTALL)


def inline_code(path: Path) -> list[str]:
    """Return what stands between backticks in the prose."""
    return [code for _, code in re.findall(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", prose(path))]


def anchors(path: Path) -> set[str]:
    """Return the anchors of a document's headings, as the hosts of repositories make them."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#+ (.+)$", _FENCE.sub("", text_of(path)), re.MULTILINE):
        plain = re.sub(r"\[([^\]]+)\]\([^)]*\)|[`*]", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
    named = set(re.findall(r'<a id="([\w-]+)">', text_of(path)))
    return named | {
        slug if not again else f"{slug}-{again}" for slug, times in found.items() for again in range(times + 1)
    }


def links(path: Path) -> list[str]:
    """Return the addresses that a document links to."""
    return re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]+`", "", prose(path)))
