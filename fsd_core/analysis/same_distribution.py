"""Whether two runs write texts of one distribution, so that they differ only by chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsd_core.storage.records import same_weights

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView


def same_distribution(run: RunView, baseline: RunView) -> bool:
    """Return whether both decode the same target losslessly with the same sampling."""
    decoding, reference = run.decoding, baseline.decoding
    return (
        decoding.acceptance.lossless and reference.acceptance.lossless
        and (run.pair, run.config.dtype, decoding.shared) == (baseline.pair, baseline.config.dtype, reference.shared)
        and same_weights(run.weights, baseline.weights)
    )  # fmt: skip
