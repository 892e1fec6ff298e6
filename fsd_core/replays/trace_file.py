"""Traces of strict runs as values, and as files."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import math
import zlib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, ValidationError

from fsd_core.config import SamplingConfig, TemplateConfig
from fsd_core.config.decoding_config import TemplateField
from fsd_core.errors import DataDamaged, InvalidSetting, OutOfRange, Unreadable, Unwritable
from fsd_core.frozen import Frozen, sentence
from fsd_core.system import whole_file

TRACE_VERSION = 1
TRACED_DIVERGENCES = ("kl", "reverse-kl", "js", "tv", "ag")
"""divergences between raw rows that are stored exactly"""
ENTROPIES = ("target", "draft")
SCALARS = (
    "uniform", "log_sum", "max_p", *TRACED_DIVERGENCES, *(f"entropy_{name}" for name in ENTROPIES),
    "entropy_sampled", "variation",
)  # fmt: skip
"""columns of one number per position, besides those of whole numbers"""
WHOLE = ("token", "place", "best", "strict", "rank", "ties")
RAW, SAMPLED = ("target", "draft"), ("target_sampled", "draft_sampled")


class Costs(Frozen):
    """Milliseconds of a pair's passes on the machine that recorded; medians.

    ``target_alone``: a round that drafts nothing. ``rounds``: a round of strict decoding, by draft length.
    ``draft_pass``: one more token by the draft. ``rules``: a rule's arithmetic beyond the strict rule's, at the longest
    of these lengths.
    """

    target_alone: float = Field(gt=0)
    rounds: dict[int, float] = Field(min_length=1)
    draft_pass: float = Field(ge=0)
    rules: dict[str, float] = Field(default_factory=dict)


class TraceInfo(Frozen):
    """Metadata that all positions of a trace share."""

    version: int = TRACE_VERSION
    pair: str
    task: str
    seed: int
    prompts: int = Field(ge=1)
    vocabulary: int = Field(ge=1)
    """number of the target's logits"""
    tokenizer: str
    """first 16 hex digits of the SHA-256 of the tokenizer's vocabulary"""
    sampling: SamplingConfig
    template: TemplateField = TemplateConfig()
    draft_length: int = Field(ge=1)
    """γ; a round also judges the position of the bonus"""
    max_new_tokens: int = Field(ge=1)
    top: int = Field(ge=3)
    """how many of the likeliest tokens of either model are stored individually at a position"""
    costs: Costs | None = None
    provenance: dict[str, Any] = Field(default_factory=dict)

    @property
    def is_restricted(self) -> bool:
        """Whether top-k, top-p or min-p exclude tokens."""
        return bool(self.sampling.cut)

    @property
    def rows_kept(self) -> tuple[str, ...]:
        """The distributions that are stored. Sampled ones are stored only if they do not follow from raw ones."""
        is_raw = self.sampling.greedy or (self.sampling.temperature == 1 and not self.is_restricted)
        return RAW if is_raw else (*RAW, *SAMPLED)


@dataclass(frozen=True, eq=False)
class PromptTrace:
    """The n judged positions of one prompt in R rounds, in order.

    Columns, [n] each, are named in ``WHOLE`` and ``SCALARS``. token: the drafted token. place, best: index of that
    token, and of the target's likeliest, among the kept tokens. strict: whether the strict test accepts it with
    ``uniform``. rank: how many tokens the target finds likelier. ties: how many tokens the target finds likeliest.
    log_sum: log-sum-exp of the target's logits. entropy_sampled: entropy of p as sampled, or of the raw p if greedy.
    variation: total variation of the sampled distributions.
    """

    prompt: int
    """position in the task"""
    prompt_hash: str | None
    """of the token ids that were fed; ``None`` in traces that are older"""
    tokens: int
    """length of the strict answer"""
    limit: int
    """maximum length of the answer"""
    seconds: float
    """time of the strict answer, recording included"""
    rounds: np.ndarray
    """int [R,3]: start in the answer, positions judged (0 if nothing was drafted), tokens written"""
    columns: dict[str, np.ndarray]
    kept: list[list[int]]
    """tokens that are stored individually, ascending, [n][own]"""
    rows: dict[str, list[list[float]]]
    """probabilities of ``kept``, by the names of ``TraceInfo.rows_kept``, [n][own]"""
    rest: dict[str, list[list[float]]]
    """probability of all other tokens, [n][1 or 2]; if top-k or top-p exclude some, of those allowed and of those
    excluded"""
    allowed: list[list[int]] | None
    """which of ``kept`` top-k and top-p allow, [n][own]; ``None`` if all are allowed"""

    @property
    def size(self) -> int:
        """Number of judged positions."""
        return len(self.kept)


@dataclass(frozen=True, eq=False)
class Trace:
    """One strict run as replay needs it."""

    info: TraceInfo
    prompts: tuple[PromptTrace, ...]

    @property
    def positions(self) -> int:
        """Number of judged positions over all prompts."""
        return sum(prompt.size for prompt in self.prompts)


LARGEST_TRACE_FILE = 512_000_000
"""bytes, unpacked"""
_FORMAT = "fsd-lab-trace"
_DIGITS = 7
"""significant digits; float32 has no more"""


def write(trace: Trace, path: Path) -> int:
    """Write a trace to a new file and return its size in bytes. The file appears whole or not at all.

    Raises ``InvalidSetting`` for an existing file, a missing folder, or a failed write.
    """
    check_new(path)
    lines = [{"format": _FORMAT} | trace.info.as_json(), *map(_line, trace.prompts)]
    text = "".join(json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n" for line in lines).encode()
    last = json.dumps({"sha256": hashlib.sha256(text).hexdigest()}) + "\n"
    data = gzip.compress(text + last.encode(), mtime=0)
    try:
        with whole_file(path) as partial:
            partial.write_bytes(data)
    except OSError as error:
        raise Unwritable(f"The trace could not be written to {path}: {error.strerror}.") from None
    return len(data)


def check_new(path: Path) -> None:
    """Raise ``InvalidSetting`` unless a file can be created there."""
    if path.exists():
        raise Unwritable(f"{path} exists already: name a new file, or move that one away.")
    if not path.parent.is_dir():
        raise Unwritable(f"There is no folder {path.parent}: make it, or name a file in one that is there.")


def read(path: Path) -> Trace:
    """Return the trace in a file.

    Raises ``InvalidSetting`` for a file that cannot be read or has another version, and ``DataDamaged`` for one that
    was changed or holds no trace.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(LARGEST_TRACE_FILE + 1)
    except FileNotFoundError:
        raise Unreadable(f"There is no file {path}: name a trace that `record` has written.") from None
    except OSError as error:
        raise Unreadable(f"The trace {path} cannot be read: {error.strerror}.") from None
    try:
        text = _inflated(data) if data[:2] == b"\x1f\x8b" else data
        if len(text) > LARGEST_TRACE_FILE:
            raise OutOfRange(
                f"The trace {path} has more than {LARGEST_TRACE_FILE:,} bytes, unpacked: record fewer prompts."
            )
        body, last = text[: (split := text[:-1].rindex(b"\n") + 1)], json.loads(text[split:])
        checksum = last["sha256"]
    except InvalidSetting:
        raise
    except (OSError, EOFError, zlib.error, ValueError, TypeError, KeyError, RecursionError):
        raise DataDamaged(f"{path} is no whole trace: record it again, or copy it again from where it came.") from None
    if checksum != hashlib.sha256(body).hexdigest():
        raise DataDamaged(f"The trace {path} is damaged, its checksum differs: copy it again from where it came.")
    return _parsed(body, path)


def _inflated(data: bytes) -> bytes:
    """Return what gzip holds, up to one byte more than is read. Raises as ``gzip`` does."""
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
        return stream.read(LARGEST_TRACE_FILE + 1)


def _parsed(body: bytes, path: Path) -> Trace:
    try:
        first, *prompts = map(json.loads, body.splitlines())
        if first.pop("format") != _FORMAT:
            raise ValueError("another format")
        if (version := first.get("version")) != TRACE_VERSION:
            raise Unreadable(
                f"The trace {path} has version {version}, and this program reads {TRACE_VERSION}: use the program that "
                "wrote it, or record the run again."
            )
        info = TraceInfo(**first)
        trace = Trace(info, tuple(_prompt(line, info) for line in prompts))
        if not trace.prompts or not trace.positions:
            raise ValueError("no prompts with drafts")
    except ValidationError as error:
        raise DataDamaged(f"{path} is no trace of this program: {sentence(error)}") from None
    except InvalidSetting:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise DataDamaged(f"{path} is no trace of this program ({error}): record the run again.") from None
    return trace


def _line(prompt: PromptTrace) -> dict[str, Any]:
    columns = {name: prompt.columns[name].tolist() for name in WHOLE}
    columns |= {name: _short(prompt.columns[name].tolist()) for name in SCALARS}
    return {
        "prompt": prompt.prompt, "prompt_hash": prompt.prompt_hash, "tokens": prompt.tokens, "limit": prompt.limit,
        "seconds": round(prompt.seconds, 6),
        "rounds": prompt.rounds.tolist(), "columns": columns, "kept": prompt.kept,
        "rows": {name: [_short(row) for row in rows] for name, rows in prompt.rows.items()},
        "rest": {name: [_short(row) for row in rows] for name, rows in prompt.rest.items()},
        "allowed": prompt.allowed,
    }  # fmt: skip


def _short(values: list[float]) -> list[float | None]:
    """Return the values rounded to ``_DIGITS``. Infinity, which JSON lacks, becomes ``None``."""
    return [float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None for value in values]


def _prompt(line: dict[str, Any], info: TraceInfo) -> PromptTrace:
    """Return the prompt of a line. Raises ``ValueError``, ``KeyError`` or ``TypeError`` for a line that no run has
    recorded."""
    columns = {name: np.asarray(line["columns"][name], np.int64) for name in WHOLE}
    columns |= {name: np.array([_number(v) for v in line["columns"][name]], float) for name in SCALARS}
    prompt = PromptTrace(
        prompt=line["prompt"], prompt_hash=line.get("prompt_hash"), tokens=line["tokens"], limit=line["limit"],
        seconds=line["seconds"],
        rounds=np.asarray(line["rounds"], np.int64).reshape(-1, 3), columns=columns, kept=line["kept"],
        rows={name: line["rows"][name] for name in info.rows_kept},
        rest={name: line["rest"][name] for name in info.rows_kept}, allowed=line["allowed"],
    )  # fmt: skip
    _check(prompt, info)
    return prompt


def _number(value: float | None) -> float:
    return math.inf if value is None else value


def _check(prompt: PromptTrace, info: TraceInfo) -> None:
    begin, judged, written = prompt.rounds.T
    sizes, groups = [len(tokens) for tokens in prompt.kept], 1 + info.is_restricted
    if any(len(column) != prompt.size for column in prompt.columns.values()) or judged.sum() != prompt.size:
        raise ValueError(f"prompt {prompt.prompt} has columns of different lengths")
    ends = [*begin.tolist(), prompt.tokens]
    if ends[0] != 0 or any(b - a != n for (a, b), n in zip(pairwise(ends), written.tolist(), strict=True)):
        raise ValueError(f"the rounds of prompt {prompt.prompt} do not make up its answer")
    if (written < 1).any() or (written > np.maximum(judged, 1)).any() or (judged > info.draft_length + 1).any():
        raise ValueError(f"a round of prompt {prompt.prompt} has written more than it judged")
    per_token: list[Any] = [*prompt.rows.values(), *([prompt.allowed] if info.is_restricted else [])]
    if any([len(row) for row in rows] != sizes for rows in per_token):
        raise ValueError(f"prompt {prompt.prompt} has rows of different lengths")
    if any([len(row) for row in rows] != [groups] * prompt.size for rows in prompt.rest.values()):
        raise ValueError(f"prompt {prompt.prompt} has remainders of another number")
    for name in ("place", "best"):
        if ((place := prompt.columns[name]) < 0).any() or (place >= np.array(sizes, int)).any():
            raise ValueError(f"prompt {prompt.prompt} has a token that is not kept")
    probabilities = [v for rows in (*prompt.rows.values(), *prompt.rest.values()) for row in rows for v in row]
    if not all(isinstance(v, int | float) and 0 <= v <= 1 + 1e-4 for v in probabilities):
        raise ValueError(f"prompt {prompt.prompt} has probabilities outside 0 to 1")
