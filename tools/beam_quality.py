"""What beams do to answers, and what speculative beams save: every prompt by all contenders in turn.

python -m tools.beam_quality --prompts 60    prints the table of docs/results/beams-bundled.csv

Each prompt goes to all contenders before the next one, in an order that rotates, so that a machine that slows down
slows all alike. Times are given as ratios only. An idle core needs about three seconds for a prompt.
"""

from __future__ import annotations

import argparse

from fsd_core.config import (
    Autoregressive,
    BeamSampling,
    BeamsTopology,
    DecodingConfig,
    SamplingConfig,
    SpeculativeBeams,
)
from fsd_core.models.model_pairs import get_pair
from fsd_core.statistics.intervals import ratio_interval, wilson
from tests.tools.documents import commit
from tools.in_turns import Contender, answer_in_turns, times_as_fast


def contenders(longest: int) -> list[Contender]:
    """Sampling, beam sampling of 2 and 4 beams, and DSBD of the same widths and of one that adapts."""

    sampled = {"sampling": SamplingConfig(temperature=1.0), "max_new_tokens": longest}

    def drafted(least: int, most: int, drafts: int, confidence: float = 0.9) -> DecodingConfig:
        rule = SpeculativeBeams(least=least, most=most, confidence=confidence)
        return DecodingConfig(acceptance=rule, topology=BeamsTopology(length=4, drafts=drafts), **sampled)

    return [
        Contender("Target alone, sampled", DecodingConfig(acceptance=Autoregressive(), **sampled)),
        Contender("Beam sampling, 2 beams", DecodingConfig(acceptance=BeamSampling(beams=2), **sampled)),
        Contender("DSBD, width 2, 4 drafts", drafted(2, 2, 4), 1),
        Contender("Beam sampling, 4 beams", DecodingConfig(acceptance=BeamSampling(beams=4), **sampled)),
        Contender("DSBD, width 4, 6 drafts", drafted(4, 4, 6), 3),
        Contender("DSBD, width 1 to 4, 4 drafts, confidence 0.9", drafted(1, 4, 4), 3),
    ]


def row(entry: Contender, entries: list[Contender]) -> str:
    """Return a contender's row of the table."""
    records = entry.records
    solved = sum(record.outcome == "correct" for record in records)
    low, high = wilson(solved, len(records))
    likelihood = [(-record.negative_log_likelihood, record.tokens) for record in records]
    mean = sum(total for total, _ in likelihood) / sum(tokens for _, tokens in likelihood)
    spread = ratio_interval([(-total, tokens) for total, tokens in likelihood])
    passes = sum(record.rounds for record in records) / len(records)
    accepted, drafted = (sum(getattr(record, name) for record in records) for name in ("accepted", "drafted"))
    cells = [
        entry.title,
        f"{100 * solved / len(records):.0f} ({100 * low:.0f} to {100 * high:.0f})",
        f"{mean:.3f}" + ("" if spread is None else f" ({-spread[1]:.3f} to {-spread[0]:.3f})"),
        f"{sum(record.tokens for record in records) / len(records):.0f}",
        f"{passes:.1f}",
        f"{100 * accepted / drafted:.0f}" if drafted else "–",
        "–" if entry.against is None else times_as_fast(entry, entries[entry.against]),
    ]
    return f"| {' | '.join(cells)} |".replace("-0.", "−0.")


def document(entries: list[Contender], asked: argparse.Namespace) -> str:
    """Return the page of results."""
    head = (
        "| Setting | Solved (%) | Mean log-likelihood per token | Tokens | Target passes | Layers accepted (%) "
        "| Times as fast as beam sampling |\n|---|---|---|---|---|---|---|"
    )
    options = f"--pair {asked.pair} --prompts {asked.prompts} --seed {asked.seed} --longest {asked.longest}"
    return "\n".join(
        [
            f"# Beams beside sampling: {get_pair(asked.pair).tasks[0]}, temperature 1", "",
            f"{asked.prompts} prompts of `{asked.pair}`, at most {asked.longest} tokens, drafts of 4 layers, CPU "
            f"(commit `{commit()}`).",
            "Each prompt was answered by all settings in turn, in an order that rotates. Times are ratios of sums over",
            "the same prompts. In brackets: 95 % intervals. Likelihood is the raw target's.", "",
            "```", f"python -m tools.beam_quality {options}", "```", "",
            head, *(row(entry, entries) for entry in entries), "",
        ]
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", default="bundled")
    parser.add_argument("--prompts", type=int, default=60)
    parser.add_argument("--longest", type=int, default=128, help="tokens of an answer")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    entries = contenders(asked.longest)
    answer_in_turns(asked.pair, entries, asked.prompts, asked.seed)
    print(document(entries, asked))


if __name__ == "__main__":
    main()
