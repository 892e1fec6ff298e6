"""A result file, read within bounds: which tool has written it, and what it measured."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from fsd_core.errors import OutOfRange, Unreadable
from fsd_core.evaluation.result_files.guidellm_report import GUIDELLM
from fsd_core.evaluation.result_files.llama_bench import LLAMA_BATCHED_BENCH, LLAMA_BENCH
from fsd_core.evaluation.result_files.lm_eval_results import LM_EVAL, is_sample, read_samples
from fsd_core.evaluation.result_files.specforge_bench import SPECFORGE
from fsd_core.evaluation.result_files.tool_result import Document, ToolReader, ToolResult, shortened
from fsd_core.evaluation.result_files.vllm_bench import VLLM_BENCH
from fsd_core.frozen import sentence

LARGEST_RESULT = 64_000_000
"""bytes of a result file"""
MOST_LINES_OF_RESULT = 100_000
MOST_MEASUREMENTS = 1000
"""in one file"""
_LONGEST_REASON = 300
READERS: tuple[ToolReader, ...] = (VLLM_BENCH, GUIDELLM, LM_EVAL, SPECFORGE, LLAMA_BENCH, LLAMA_BATCHED_BENCH)
RESULT_TOOLS = ", ".join(reader.title for reader in READERS)


@dataclass(frozen=True)
class ReadFile:
    """The content of a result file."""

    file: str
    """its name, without folders"""
    sha256: str
    tool: str
    results: tuple[ToolResult, ...]


def read_result_path(path: Path) -> ReadFile:
    """Read a file. Raises ``InvalidSetting``."""
    try:
        if not path.is_file():
            raise Unreadable(f"There is no file {path}: expected a result of one of {RESULT_TOOLS}.")
        with path.open("rb") as file:
            return read_result(file.read(LARGEST_RESULT + 1), path.name)
    except OSError as error:
        raise Unreadable(f"{path} cannot be read ({error.strerror}): check the file and its rights.") from None


def read_result(data: bytes, name: str) -> ReadFile:
    """Return the measurements of a result file. Raises ``InvalidSetting`` with one sentence for any other file."""
    file = shortened(name, 200) or "the file"
    if len(data) > LARGEST_RESULT:
        raise OutOfRange(
            f"{file} has more than {LARGEST_RESULT:,} bytes: expected the summary of a benchmark, without its texts."
        )
    documents = _documents(data, file)
    try:
        if all(is_sample(document) for document in documents):
            tool, results = LM_EVAL.title, read_samples(documents, file)
        else:
            reader = _reader_of(documents, file)
            tool = reader.title
            results = [result for document in documents for result in reader.read(document, file)]
    except ValidationError as error:
        raise Unreadable(f"{file} is no whole result. {_one_line(sentence(error))}") from None
    if not 0 < len(results) <= MOST_MEASUREMENTS:
        raise OutOfRange(
            f"{file} holds {len(results):,} measurements: expected 1 to {MOST_MEASUREMENTS:,}, with a score or a time."
        )
    return ReadFile(file, hashlib.sha256(data).hexdigest(), tool, tuple(results))


def _reader_of(documents: Sequence[Document], file: str) -> ToolReader:
    reader = next((reader for reader in READERS if reader.claims(documents[0])), None)
    if reader is None:
        raise Unreadable(f"{file} is not a result that can be read: expected one of {RESULT_TOOLS}.")
    if not all(map(reader.claims, documents)):
        raise Unreadable(f"{file} is not one tool's result throughout: expected {reader.title} alone.")
    return reader


def _documents(data: bytes, file: str) -> list[Document]:
    """Return the objects of a file: one, a list of them, or one a line."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        value: Any = from_json(data, allow_inf_nan=True)
    except ValueError as whole:
        if (lines := data.count(b"\n")) > MOST_LINES_OF_RESULT:
            raise OutOfRange(f"{file} has {lines:,} lines: expected at most {MOST_LINES_OF_RESULT:,}.") from None
        try:
            value = [from_json(line, allow_inf_nan=True) for line in data.split(b"\n") if line.strip()]
        except ValueError:
            raise Unreadable(f"{file} is not JSON: {_one_line(str(whole))}.") from None
    documents = value if isinstance(value, list) else [value]
    if not documents or not all(isinstance(document, dict) for document in documents):
        raise Unreadable(f"{file} holds no JSON object: expected a result of one of {RESULT_TOOLS}.")
    return documents


def _one_line(text: str) -> str:
    """Return a sentence without what is long in its middle."""
    line = shortened(" ".join(text.split()), len(text) + 1)
    return line if len(line) <= _LONGEST_REASON else f"{line[: _LONGEST_REASON - 60]}…{line[-59:]}"
