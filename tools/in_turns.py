"""Every prompt by all contenders in turn, so that a machine that slows down slows all alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fsd_core.config import DecodingConfig
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.evaluation.harness import prompt_seed, run_example
from fsd_core.library.text_decoder import load_pair
from fsd_core.models.model_pairs import get_pair
from fsd_core.statistics.intervals import quotient_interval
from fsd_core.storage.records import GenerationRecord
from fsd_core.tasks import get_task


@dataclass
class Contender:
    """A setting and its answers."""

    title: str
    config: DecodingConfig
    against: int | None = None
    """index of the contender that its time is compared with"""
    records: list[GenerationRecord] = field(default_factory=list)


def answer_in_turns(name: str, entries: Sequence[Contender], prompts: int, seed: int) -> None:
    """Answer the first prompts of the pair's own task with all contenders, in an order that rotates."""
    pair, task = load_pair(name), get_task(get_pair(name).tasks[0])
    examples = task.examples(prompts)
    for entry in entries:  # the first texts of a process are slow; what these decoders remember is not kept
        run_example(PairDecoder(pair, entry.config), task, examples[0], 0, prompt_seed(seed, prompts))
    decoders = [PairDecoder(pair, entry.config) for entry in entries]
    for position, example in enumerate(examples):
        for turn in range(len(entries)):
            index = (position + turn) % len(entries)
            record = run_example(decoders[index], task, example, position, prompt_seed(seed, position))
            entries[index].records.append(record)
        print(position + 1, flush=True)


def times_as_fast(entry: Contender, other: Contender) -> str:
    """Return how many times as fast a contender answered as another, as ``1.14× (1.02 to 1.28)``."""
    theirs, ours = ([(record.seconds, 1.0) for record in one.records] for one in (other, entry))
    ratio = sum(seconds for seconds, _ in theirs) / sum(seconds for seconds, _ in ours)
    interval = None if entry is other else quotient_interval(theirs, ours)
    return f"{ratio:.2f}×" + ("" if interval is None else f" ({interval[0]:.2f} to {interval[1]:.2f})")
