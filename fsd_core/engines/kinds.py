"""The kinds of engines: how each is asked, and how it counts its drafts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from io import StringIO
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self
from urllib.parse import urlsplit

from pydantic import Field

from fsd_core.frozen import Frozen
from fsd_core.rules import Served
from fsd_core.texts import count

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView


Takes = Literal["ids", "text", "messages"]


@dataclass(frozen=True)
class CounterNames:
    """Prometheus counters of an engine, without ``_total``; empty where there is none."""

    generated: str
    """tokens that it has written for anybody"""
    drafts: str = ""
    """rounds that drafted"""
    drafted: str = ""
    accepted: str = ""
    accepted_at: str = ""
    """accepted tokens by the label ``position``"""


@dataclass(frozen=True)
class EngineTraits:
    """How one kind of engine is asked."""

    takes: Takes
    """form of its prompts: token ids, a text that it tokenizes, or messages that its own template renders"""
    neutral: Mapping[str, Any] = field(default_factory=dict)
    """options that switch off what the model's files or the engine would add to the sampling"""
    truncates: tuple[str, ...] = ()
    """those of top_k and min_p that it takes"""
    counters: CounterNames | None = None
    no_acceptance: str | None = ""
    """why its counters say no acceptance, in one sentence; empty if they do, ``None`` if each answer does"""
    version_path: str = ""
    """address of its version"""
    lists_models: bool = True
    """whether its list of models has what it serves; otherwise it is asked for its health"""


_OFF = "The engine keeps no count of drafted tokens."
TRAITS: dict[str, EngineTraits] = {
    "vllm": EngineTraits(
        "ids", {"repetition_penalty": 1.0, "return_token_ids": True}, ("top_k", "min_p"),
        CounterNames(
            "vllm:generation_tokens", "vllm:spec_decode_num_drafts", "vllm:spec_decode_num_draft_tokens",
            "vllm:spec_decode_num_accepted_tokens", "vllm:spec_decode_num_accepted_tokens_per_pos",
        ),
        version_path="/version",
    ),
    "sglang": EngineTraits(
        "ids", {"repetition_penalty": 1.0}, ("top_k", "min_p"), CounterNames("sglang:generation_tokens"),
        "SGLang tells its acceptance as a gauge of the last moments, which cannot be converted to a count.",
        "/get_server_info",
    ),
    "llama.cpp": EngineTraits(
        "ids", {"repeat_penalty": 1.0, "typical_p": 1.0}, ("top_k", "min_p"), CounterNames("llamacpp:tokens_predicted"),
        no_acceptance=None, version_path="/props",
    ),
    "transformers-serve": EngineTraits("text", no_acceptance=_OFF, lists_models=False),
    "openai": EngineTraits("messages", no_acceptance=_OFF),
}  # fmt: skip
"""by the ``engine`` of :class:`fsd_core.rules.Served`"""


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


_SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*", re.ASCII)
_LABEL = re.compile(r'(?<!\w)([a-zA-Z_]\w*+)\s*+=\s*+"((?:[^"\\]|\\.)*+)"', re.ASCII)
_ESCAPED = re.compile(r"\\(.)")
_STARTED = "process_start_time_seconds"
_MOST_POSITIONS = 1_024
"""of a draft, in tokens"""
_LARGEST_COUNT = 2.0**53


class Sample(NamedTuple):
    """One line of a page of metrics."""

    name: str
    labels: Mapping[str, str]
    value: float


def read_metrics(page: str) -> Iterator[Sample]:
    """Yield the samples of a page in Prometheus' text format. Lines of another form are passed over.

    Source: https://prometheus.io/docs/instrumenting/exposition_formats/
    """
    for line in StringIO(page):
        match = None if line.startswith("#") else _SAMPLE.fullmatch(line)
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        labels = {name: _ESCAPED.sub(_unescaped, text) for name, text in _LABEL.findall(match[2] or "")}
        yield Sample(match[1], labels, value)


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


@dataclass(frozen=True)
class Snapshot:
    """An engine's counters at one moment; ``None`` for those that it has not."""

    generated: float | None = None
    drafts: float | None = None
    drafted: float | None = None
    accepted: float | None = None
    accepted_at: tuple[float, ...] = ()
    """by position in the draft, from 0"""
    started: float | None = None
    """when its process began, in seconds since 1970"""

    @classmethod
    def of(cls, samples: Iterable[Sample], names: CounterNames, model: str) -> Self | None:
        """Return the counters of one model, over all its engines. A sample without a label of a model counts.

        Return ``None`` without samples, and for a number or a position that no counter can have.
        """
        wanted = {names.generated, names.drafts, names.drafted, names.accepted, names.accepted_at, _STARTED} - {""}
        sums, positions, is_page = dict[str, float](), dict[int, float](), False
        for sample in samples:
            is_page, name = True, sample.name.removesuffix("_total")
            if name not in wanted or sample.labels.get("model_name", model) != model:
                continue
            sums[name] = sums.get(name, 0.0) + sample.value
            if not 0 <= sample.value <= sums[name] <= _LARGEST_COUNT:
                return None
            if name == names.accepted_at and (text := sample.labels.get("position", "")).isdecimal():
                position = int(text[:9])
                if position >= _MOST_POSITIONS:
                    return None
                positions[position] = positions.get(position, 0.0) + sample.value
        return cls(
            sums.get(names.generated), sums.get(names.drafts), sums.get(names.drafted), sums.get(names.accepted),
            tuple(positions.get(i, 0.0) for i in range(max(positions, default=-1) + 1)), sums.get(_STARTED),
        ) if is_page else None  # fmt: skip


RESTARTED = "The engine was restarted while it was measured, so its counters began anew."
NO_METRICS = "The engine's page of metrics could not be read."
NOT_COUNTED = "The engine drafted nothing that it counts."


class EngineReading(Frozen):
    """Counts of one stretch of a run, from its requests and from the engine's own counters."""

    requests: int = 0
    """answered to their end"""
    unfinished: int = 0
    """the engine may have written tokens of these that never arrived"""
    tokens: int = 0
    """of the answers"""
    counted_here: int = 0
    """answers without usage figures, whose tokens our tokenizer counted"""
    prompts_differ: int = 0
    """answers whose prompt had another number of tokens at the engine than here"""
    held: int = Field(default=0, exclude_if=lambda number: not number)
    """answers to prompts that were held back on arrival, since as many were open as may be"""
    generated: int | None = None
    """tokens that the engine counted meanwhile, whoever asked; ``None``: unknown"""
    drafts: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    accepted_at: tuple[int, ...] = ()
    left_out: str = ""
    """why the engine's counters say nothing; empty if they do"""

    @property
    def other_traffic(self) -> bool | None:
        """Whether the engine wrote for others too; ``None`` if that cannot be told."""
        if self.generated is None or (self.unfinished and self.generated > self.tokens):
            return None
        return self.generated > self.tokens

    def counted(self, before: Snapshot | None, after: Snapshot | None, no_acceptance: str | None) -> EngineReading:
        """Return the reading with what moved between two snapshots. ``None`` is a page that could not be read.

        ``no_acceptance`` says why drafted tokens are not counted there; ``None`` if each answer tells them.
        """
        if before is None or after is None:
            return self._with(left_out=no_acceptance or NO_METRICS)
        if _restarted(before, after):
            return self._with(left_out=RESTARTED)

        def moved(name: str) -> int | None:
            first, last = getattr(before, name), getattr(after, name)
            return None if last is None else round(last - (first or 0.0))  # a counter may appear with its first event

        reading = self._with(generated=moved("generated"))
        drafts, drafted, accepted = moved("drafts"), moved("drafted"), moved("accepted")
        if no_acceptance is None:
            return reading
        if no_acceptance or not drafts or drafted is None or accepted is None:
            return reading._with(left_out=no_acceptance or NOT_COUNTED)
        first = before.accepted_at + (0.0,) * len(after.accepted_at)
        positions = tuple(round(last - begun) for begun, last in zip(first, after.accepted_at, strict=False))
        return reading._with(drafts=drafts, drafted=drafted, accepted=accepted, accepted_at=positions)

    def _with(self, **values: Any) -> EngineReading:
        return self.model_copy(update=values)

    def plus(self, other: EngineReading) -> EngineReading:
        """Return two stretches as one. Its counters are those of the stretches that have any."""
        positions = range(max(len(self.accepted_at), len(other.accepted_at)))
        sums = {name: getattr(self, name) + getattr(other, name) for name in _COUNTS}
        sums |= {name: _sum(getattr(self, name), getattr(other, name)) for name in ("drafts", "drafted", "accepted")}
        sums["generated"] = None if None in (self.generated, other.generated) else _sum(self.generated, other.generated)
        at = tuple(sum(r.accepted_at[i] for r in (self, other) if i < len(r.accepted_at)) for i in positions)
        reasons = dict.fromkeys(reason for reason in (self.left_out, other.left_out) if reason)
        return self._with(**sums, accepted_at=at, left_out=" ".join(reasons))


_COUNTS = ("requests", "unfinished", "tokens", "counted_here", "prompts_differ", "held")


def _sum(first: int | None, second: int | None) -> int | None:
    return second if first is None else first if second is None else first + second


def _restarted(before: Snapshot, after: Snapshot) -> bool:
    if before.started is not None and after.started is not None and not math.isclose(before.started, after.started):
        return True
    values = [(getattr(before, name), getattr(after, name)) for name in ("generated", "drafts", "drafted", "accepted")]
    return any(first is not None and (last is None or last < first) for first, last in values)


def engine_figures(readings: Iterable[EngineReading]) -> dict[str, Any]:
    """Return the figures of a run that an engine's counters give, ready for JSON; ``{}`` without readings.

    ``engine`` holds the counts of all stretches, for :func:`with_engine_rates`.
    """
    total = None
    for reading in readings:
        total = reading if total is None else total.plus(reading)
    if total is None:
        return {}
    return with_engine_rates({"engine": total.as_json() | {"other_traffic": total.other_traffic}})


def with_engine_rates(metrics: dict[str, Any]) -> dict[str, Any]:
    """Return a run's metrics with the rates that follow from its ``engine``, if that counted and wrote for nobody else.

    They have the names of our own metrics, by docs/terms.md's formulas. The engine's mean acceptance length is a figure
    of its own, because it leaves out rounds that drafted nothing.
    """
    engine = metrics.get("engine") or {}
    total = EngineReading.model_validate({name: engine[name] for name in EngineReading.model_fields if name in engine})
    if not total.drafted or not total.drafts or total.accepted is None or total.other_traffic is True:
        return metrics
    return metrics | {
        "acceptance_rate": total.accepted / total.drafted,
        "engine_mean_acceptance_length": 1 + total.accepted / total.drafts,
        "acceptance_at_position": [accepted / total.drafts for accepted in total.accepted_at],
    }
