"""What happened in a generation, round by round.

Every picture, metric, replay and bound is computed from these records; nothing is
measured twice. Pure values: no torch, so the pages can read them.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import astuple, dataclass
from typing import Any, Literal

Kind = Literal["strict", "lenient", "correction", "bonus", "plain"]
"""Why a token was emitted: accepted by the strict test; accepted although it would have refused; drawn in place of a
rejected token; the extra token after a fully accepted draft; or written by one model alone."""


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One round: what was drafted, what came of it.

    ``divergence``, ``target_probability`` and ``draft_probability`` belong to the drafted tokens that were judged,
    that is all accepted ones and the first rejected one; probabilities are of the raw models (temperature 1).
    """

    drafted: tuple[int, ...]
    """token ids proposed, [draft length]"""
    accepted: int
    """how many of them were kept"""
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
    """p of each emitted token under the target, [emitted]; under the draft where it decodes alone"""
    seconds: float
    """wall time of the round"""
    draft_seconds: float = 0.0
    """wall time of it spent drafting, where the device lets it be told apart (CPU)"""


def pack(records: list[RoundRecord]) -> tuple[bytes, str]:
    """The records as gzipped JSON, and its SHA-256 in hex."""
    data = gzip.compress(json.dumps([astuple(record) for record in records]).encode(), mtime=0)
    return data, hashlib.sha256(data).hexdigest()


def unpack(data: bytes, checksum: str) -> list[RoundRecord]:
    """Inverse of :func:`pack`. Raises ``ValueError`` if the bytes are not those that were packed."""
    if hashlib.sha256(data).hexdigest() != checksum:
        raise ValueError("The stored trace is damaged: its checksum differs. Restore the database from a backup.")
    return [RoundRecord(*map(_frozen, row)) for row in json.loads(gzip.decompress(data))]


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
