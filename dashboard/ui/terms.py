"""Terms of the pages that need explaining. Each meaning is a hint on hover, focus and touch."""

from __future__ import annotations

from functools import cache

from fsd_core.config.options import OPTIONS
from fsd_core.metrics import METRICS

# What neither the metrics nor the options explain. docs/terms.md says more, and a test compares the two.
MEANINGS = {
    "Setting": "A pair and a way to decode: drafter, topology, rule and threshold, sampling, longest text",
    "Experiment": "Several runs on the same prompts, queued as one job",
    "Run": "One setting on the prompts of one task, with one seed",
    "Use": "What a setting is wanted for, and what it must keep",
    "Evidence": "Runs of the setting, each beside a baseline on the same prompts",
    "Under review": "Proposals of which nothing is decided yet",
    "Approved": "The setting that the use's alias names; programs fetch it",
    "Approved for": "Uses whose alias “approved” names the setting",
    "Outcome": "Correct, wrong, truncated (cut off before the answer), failed (an error) or unscored (no reference)",
    "Expected": "The reference answer of the task",
    "Machine": "What the run was measured on; speeds of different machines cannot be compared",
    "× target": "Times as fast as the target alone of the same experiment, by time per answer",
    "× fastest SD": "Times as fast as the fastest exact SD of the same experiment, by time per answer",
    "Lenient tokens": "Accepted only because the rule forgives their divergence: the strict test rejects them",
    "Time per solved task": "Seconds of decoding per prompt solved",
    "Points": "Accuracy less the target's on the fresh prompts, in points",
    "Points, at least": "The fewest points against the target that the fresh prompts leave, with 95 % confidence",
    "× as fast as SD": "Exact SD's time per answer over the finalist's, on the fresh prompts",
    "One draft": "How often exact speculative decoding keeps the drafted token: the sum of min(p, q)",
    "With replacement": "The best that any verifier reaches where each draft is drawn from q anew",
    "Without replacement": "The best that any verifier reaches where no two drafts are the same",
    "Greedy, the last sampled": "The best that any verifier reaches where all drafts but the last are the likeliest",
    "Times as fast": "The baseline's time per answer over the setting's, on the prompts that both have done",
}  # fmt: skip


def explained(word: str) -> str:
    """Return the meaning of a term, or an empty string if it has no explanation."""
    return _explanations().get(word.casefold(), "")


@cache
def _explanations() -> dict[str, str]:
    options = {name: option.help for option in OPTIONS.values() for name in (option.title, option.label, option.plural)}
    metrics = {name: metric.explanation for metric in METRICS.values() for name in (metric.title, metric.listed)}
    return {name.casefold(): about for name, about in (options | metrics | MEANINGS).items() if name}
