"""Conversion and validation of distributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsd_core.errors import Contradiction, Malformed, OutOfRange

Vector = NDArray[Any]
_FAR_FROM_ONE = 2.0**-8  # allowed error of a sum; above the relative rounding error of bfloat16


def distributions(values: Any, name: str) -> Vector:
    """Return an array or tensor of probabilities as float64 [R,V], each row divided by its sum.

    Raises ``InvalidSetting`` for values that are not numbers, rows of different lengths, another shape, negative or
    infinite numbers, and rows far from a sum of 1.
    """
    if hasattr(values, "detach"):  # a tensor on any device
        values = values.detach().cpu().double().numpy()
    try:
        if np.asarray(values).dtype.kind not in "fiub":
            raise TypeError
        rows = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise Malformed(
            f"{name} is no array of numbers: expected [V], or [R,V] for R positions, with rows of one length."
        ) from None
    if rows.ndim not in (1, 2) or rows.shape[-1] == 0:
        raise Malformed(f"{name} has the shape {list(rows.shape)}: expected [V], or [R,V] for R positions.")
    rows = np.atleast_2d(rows)
    sums = rows.sum(-1, keepdims=True)
    if not np.all(np.isfinite(rows)) or rows.min(initial=0) < 0 or np.any(np.abs(sums - 1) > _FAR_FROM_ONE):
        raise OutOfRange(f"{name} is not a distribution: expected numbers of at least 0 that sum to 1 in each row.")
    return rows / sums


def for_each_row(target_probs: Any, draft_probs: Any, compute: Callable[[Vector, Vector], float]) -> Any:
    """Return ``compute(p, q)`` of two vectors [V]: a float for one position, float64 [R] for several.

    A single row of one argument goes with all rows of the other. Raises ``InvalidSetting``.
    """
    p, q = distributions(target_probs, "target_probs"), distributions(draft_probs, "draft_probs")
    is_single = np.ndim(target_probs) == 1 and np.ndim(draft_probs) == 1
    if p.shape[1] != q.shape[1] or (p.shape[0] != q.shape[0] and 1 not in (p.shape[0], q.shape[0])):
        raise Contradiction(
            f"target_probs and draft_probs do not fit: shapes {list(p.shape)} and {list(q.shape)}. Expected the same "
            "vocabulary, and as many positions."
        )
    results = [compute(*pair) for pair in zip(*np.broadcast_arrays(p, q), strict=True)]
    return float(results[0]) if is_single else np.array(results)


def once_in(chance: Vector, count: int) -> Vector:
    """Return 1 − (1 − a)^n: the chance that an event of probability a happens at least once in n trials.

    Keeps the digits of a small a.
    """
    certain = chance >= 1
    return np.where(certain, float(count > 0), -np.expm1(count * np.log1p(-np.where(certain, 0, chance))))


def check_drafts(num_drafts: int) -> None:
    """Raise ``InvalidSetting`` unless there is at least one draft."""
    if isinstance(num_drafts, bool) or not isinstance(num_drafts, int | np.integer) or num_drafts < 1:
        raise OutOfRange(f"num_drafts is {num_drafts!r}: expected a whole number of at least 1.")
