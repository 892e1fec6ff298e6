"""What a table of tri-grams learns from prompt to prompt, and suffixes: every prompt by all contenders in turn.

python -m tools.learning_curve --prompts 60    prints the table of docs/results/tri-grams-on-arithmetic.csv
python -m tools.learning_curve --pair smollm2-135m --prompts 30    another pair on the first of its own tasks

All tables but that of training texts begin empty. Each prompt goes to all contenders before the next one, in an order
that rotates, so that a machine that slows down slows all alike. Times are ratios only. Acceptance lengths are the
same on any machine.
"""

from __future__ import annotations

import argparse

from fsd_core.config import (
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    DrafterSettings,
    DraftModelDrafter,
    PromptLookupDrafter,
    SearchTreeTopology,
    Speculative,
    SuffixDrafter,
    TopologySettings,
    TrigramDrafter,
)
from fsd_core.models.model_pairs import get_pair
from fsd_core.storage.records import GenerationRecord
from tests.tools.documents import commit
from tools.in_turns import Contender, answer_in_turns, times_as_fast

STRETCH = 10
"""prompts at the beginning and at the end that are told apart"""


def contenders() -> list[Contender]:
    """The target alone, then what drafts for it."""

    def drafted(title: str, drafter: DrafterSettings, topology: TopologySettings) -> Contender:
        config = DecodingConfig(acceptance=Speculative(), drafter=drafter, topology=topology, max_new_tokens=128)
        return Contender(title, config)

    def tree(tokens: int, search: str = "best-first") -> SearchTreeTopology:
        return SearchTreeTopology.checked(total_tokens=tokens, search=search)

    run, text = TrigramDrafter(table="empty", memory="run"), TrigramDrafter(table="empty")
    read = TrigramDrafter()
    return [
        Contender("Target alone", DecodingConfig(acceptance=Autoregressive(), max_new_tokens=128)),
        drafted("Draft model, chain of 5", DraftModelDrafter(), ChainTopology(length=5)),
        drafted("Prompt lookup, chain of 5", PromptLookupDrafter(), ChainTopology(length=5)),
        drafted("Prompt lookup, tree of 24", PromptLookupDrafter(), tree(24)),
        drafted("Suffix, chain of 8", SuffixDrafter(), ChainTopology(length=8)),
        drafted("Suffix, tree of 24", SuffixDrafter(), tree(24)),
        drafted("Suffix with the run's answers, tree of 24", SuffixDrafter(memory="run"), tree(24)),
        drafted("Tri-grams of the text, tree of 24", text, tree(24)),
        drafted("Tri-grams of the run, chain of 4", run, ChainTopology(length=4)),
        drafted("Tri-grams of the run, tree of 9", run, tree(9)),
        drafted("Tri-grams of the run, tree of 24", run, tree(24)),
        drafted("Tri-grams of the run, tree of 24 by Monte Carlo", run, tree(24, "mcts")),
        drafted("Tri-grams of training texts, chain of 4", read, ChainTopology(length=4)),
        drafted("Tri-grams of training texts, tree of 9", read, tree(9)),
        drafted("Tri-grams of training texts, tree of 24", read, tree(24)),
        drafted("Tri-grams of training texts and the run, tree of 24", TrigramDrafter(memory="run"), tree(24)),
    ]


def per_round(records: list[GenerationRecord]) -> float:
    """Return the acceptance length of some answers."""
    return sum(record.tokens for record in records) / sum(record.rounds for record in records)


def row(entry: Contender, alone: Contender) -> str:
    """Return a contender's row of the table."""
    records = entry.records
    stretches = records[:STRETCH], records[-STRETCH:], records
    cells = [entry.title, *(f"{per_round(part):.2f}" for part in stretches), times_as_fast(entry, alone)]
    return f"| {' | '.join(cells)} |"


def document(entries: list[Contender], command: str, pair: str, task: str) -> str:
    """Return the page of results."""
    prompts = len(entries[0].records)
    texts = [[record.text for record in entry.records] for entry in entries]
    same = all(one == texts[0] for one in texts)
    head = (
        f"| Drafted by | Acceptance length, first {STRETCH} prompts | last {STRETCH} | all | Times as fast as the "
        "target alone |\n|---|---|---|---|---|"
    )
    return "\n".join(
        [
            f"# Tri-grams and suffixes on {task.replace('-', ' ')}, {pair}", "",
            "<!-- not run: it takes several minutes -->", "```", command, "```", "",
            f"model pair {pair}; task {task}; prompts {prompts}; at most 128 tokens; temperature 0; one thread of "
            f"a CPU; commit {commit()}", "",
            "Tables *of the text* and *of the run* begin empty; the latter are kept from prompt to prompt; those *of",
            "training texts* begin with the shipped table. `suffix` looks through the text, or the run's answers too.",
            "Each prompt was answered by all in turn, in an order that rotates. Times are ratios of sums over the same",
            f"prompts, with 95 % intervals. All wrote the same texts: {'yes' if same else 'no'}.", "",
            head, *(row(entry, entries[0]) for entry in entries), "",
        ]
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=60)
    parser.add_argument("--pair", default="bundled")
    asked = parser.parse_args()
    task = get_pair(asked.pair).tasks[0]
    command = f"FSD_THREADS=1 python -m tools.learning_curve --pair {asked.pair} --prompts {asked.prompts}"
    entries = contenders()
    answer_in_turns(asked.pair, entries, asked.prompts, 0)
    print(document(entries, command, asked.pair, task))


if __name__ == "__main__":
    main()
