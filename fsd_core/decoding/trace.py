"""Records of a generation, round by round.

Every figure, metric, replay and bound is computed from these records, so nothing is
measured twice. Pure values: no torch, so the pages can read them.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import astuple, dataclass
from typing import Any, Literal

Kind = Literal["strict", "lenient", "correction", "bonus", "plain"]
"""Why a token was emitted: accepted by the strict test; accepted although that test rejects it; drawn in place of a
rejected token; the extra token after a fully accepted draft; or written by one model alone."""


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One round: its draft and its result.

    ``divergence``, ``target_probability`` and ``draft_probability`` belong to the judged drafted tokens: all accepted
    ones and the first rejected one. Probabilities are the raw models' (temperature 1).
    """

    drafted: tuple[int, ...]
    """token ids proposed, [draft length]"""
    accepted: int
    """how many of them were accepted"""
    emitted: tuple[int, ...]
    """token ids written, accepted ones first"""
    kinds: tuple[Kind, ...]
    """one per emitted token"""
    divergence: tuple[float | None, ...]
    """nats (or 0..1 for tv, random), [judged]"""
    target_probability: tuple[float, ...]
    """p(x) of each judged drafted token, [judged]"""
    draft_probability: tuple[float, ...]
    """q(x) of each judged drafted token, [judged]"""
    emitted_probability: tuple[float, ...]
    """p of each emitted token under the target, [emitted]; under the draft if it decodes alone"""
    seconds: float
    """wall time of the round"""
    draft_seconds: float = 0.0
    """wall time spent drafting, if the device lets it be separated (CPU)"""
    widths: tuple[int, ...] = ()
    """Beams of each layer that the round has added; empty for methods that write one text. With beams, ``accepted``
    counts layers of ``drafted``, nothing is recorded of single positions, and ``emitted`` is what has become common to
    all beams, which may be nothing."""
    fed: int = 0
    """tokens that the target was fed, if the round has widths"""


def pack_rounds(records: list[RoundRecord]) -> tuple[bytes, str]:
    """Return the records as gzipped JSON, and its SHA-256 in hex."""
    data = gzip.compress(json.dumps([astuple(record) for record in records]).encode(), mtime=0)
    return data, hashlib.sha256(data).hexdigest()


def unpack(data: bytes, checksum: str) -> list[RoundRecord]:
    """Return the records from :func:`pack`. Raises ``ValueError`` if the bytes were changed."""
    if hashlib.sha256(data).hexdigest() != checksum:
        raise ValueError("The stored trace is damaged: its checksum differs. Restore the database from a backup.")
    return [RoundRecord(*map(_frozen, row)) for row in json.loads(gzip.decompress(data))]


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
