"""Sentences on the engine and the load of a run. No torch: the pages read this."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fsd_core.engines.engine_traits import TRAITS
from fsd_core.formatting import count
from fsd_core.rules import Served

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView


def engine_sentences(run: RunView) -> list[str]:
    """Return what people must know of a run of an engine; empty for a run of our own loop."""
    served = run.decoding.acceptance
    if not isinstance(served, Served):
        return []
    sentences = [f"Measured on {measured_on(run)}."]
    counts = (run.metrics or {}).get("engine")
    if not isinstance(counts, dict):
        return sentences
    if counts.get("other_traffic") is True:
        sentences.append(
            f"It wrote {counts['generated'] - counts['tokens']:,} tokens for others meanwhile, so its speed is not "
            "that of this load, and its acceptance is left out."
        )
    if reason := counts.get("left_out"):
        if TRAITS[served.engine].no_acceptance is None:  # each answer tells its drafted tokens
            sentences.append(f"{reason} So whether it wrote for others meanwhile cannot be told.")
        else:
            sentences.append(f"Its acceptance is left out. {reason}")
    if number := counts.get("counted_here"):
        answers = count(number, "answer")
        sentences.append(f"It gave no usage figures for {answers}, whose tokens the pair's tokenizer counted.")
    if number := counts.get("held"):
        sentences.append(
            f"{number} of {count(counts['requests'], 'prompt')} were held back on arrival, since {run.config.batch} "
            "were open: at this rate it fell behind."
        )
    if number := counts.get("prompts_differ"):
        sentences.append(
            f"{count(number, 'prompt')} had another number of tokens there than here: the pair is of another model, or "
            "the engine adds tokens."
        )
    return sentences


def measured_on(run: RunView) -> str:
    """Return on which engine, where, on what and under which load a run was measured; empty for our own loop."""
    served, facts, load = run.decoding.acceptance, run.provenance or {}, run.config.batch
    rate = run.config.rate
    if not isinstance(served, Served):
        return ""
    place = urlsplit(served.url).netloc
    engine = f"{facts['engine']} at {place}" if facts.get("engine") else f"{place}, which has not answered yet"
    hardware = f" ({facts['gpu']})" if facts.get("gpu") else ""
    if rate:
        return f"{engine}{hardware}, {rate:g} prompt{'' if rate == 1 else 's'} a second, at most {load} at once"
    return f"{engine}{hardware}, {load} prompt{'' if load == 1 else 's'} at once"


def latency_sentence(run: RunView) -> str:
    """Return a run's times as servers tell them; empty if they are not known."""
    figures = run.metrics or {}
    names = ("time_to_first_token", "time_per_output_token", "time_per_output_token_p90", "time_per_output_token_p99")
    told = [figures[name] for name in names if figures.get(name) is not None]
    per_answer = figures.get("seconds_per_answer")
    if len(told) < len(names) or not per_answer:
        return ""
    first, *between = told
    median, p90, p99 = (f"{1000 * value:.3g}" for value in between)
    return (
        f"First token after {1000 * first:.3g} ms; time per output token {median} ms, 90 % below {p90}, 99 % below "
        f"{p99}; {1 / per_answer:.3g} answers a second."
    )
