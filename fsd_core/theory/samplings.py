"""How several drafts of a position are drawn."""

from __future__ import annotations

from typing import Literal, get_args

DraftSampling = Literal["with_replacement", "without_replacement", "greedy"]
"""How the first tokens of several drafts are drawn: each from q; one after the other from what is left of q; or the
likeliest of q, and one drawn from the rest."""
DRAFT_SAMPLINGS: tuple[DraftSampling, ...] = get_args(DraftSampling)
MOST_DRAFTS = 8
"""that are measured and drawn"""
SAMPLING_TITLES: dict[DraftSampling, str] = {
    "with_replacement": "with replacement",
    "without_replacement": "without replacement",
    "greedy": "greedy, the last sampled",
}
