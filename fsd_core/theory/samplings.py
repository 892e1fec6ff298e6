"""How several drafts of a position are sampled."""

from __future__ import annotations

from typing import Literal, get_args

DraftSampling = Literal["with_replacement", "without_replacement", "greedy"]
"""How the first tokens of several drafts are sampled: each from q; one after the other from the remainder of q; or the
likeliest of q, and one sampled from the others."""
DRAFT_SAMPLINGS: tuple[DraftSampling, ...] = get_args(DraftSampling)
MOST_DRAFTS = 8
"""largest number of drafts that bounds are measured and displayed for"""
SAMPLING_TITLES: dict[DraftSampling, str] = {
    "with_replacement": "with replacement",
    "without_replacement": "without replacement",
    "greedy": "greedy, the last sampled",
}
