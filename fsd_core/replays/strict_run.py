"""One strict run of a task, recorded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import torch

from fsd_core.config import ChainTopology, DecodingConfig, SamplingConfig, TemplateConfig
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.errors import FsdError, OutOfRange, PromptTooLong, UnfitTrace
from fsd_core.evaluation.harness import prompt_seed
from fsd_core.models.loading import LoadedPair, gpu_name
from fsd_core.replays.costs import ROUNDS, measure_costs
from fsd_core.replays.recording import RecordingRule, recorder_of
from fsd_core.replays.replay_trace import PromptTrace, Trace, TraceInfo
from fsd_core.tasks import Example, Task
from fsd_core.tracking import provenance

TOP = 10
FEWEST, LONGEST = 3, 32
"""minimum number of individually stored tokens; longest draft that is recorded"""


def check(draft_length: int, top: int) -> None:
    """Raise ``InvalidSetting`` for parameters that cannot be recorded."""
    if not 1 <= draft_length <= LONGEST:
        raise OutOfRange(f"The draft length is {draft_length}: expected 1 to {LONGEST} for a recording.")
    if top != 0 and top < FEWEST:
        raise OutOfRange(f"{top} tokens are to be told apart: expected at least {FEWEST}, or 0 for full rows.")


def record(
    pair: LoadedPair,
    task: Task,
    prompts: int | Mapping[int, Example],
    *,
    seed: int = 0,
    sampling: SamplingConfig | None = None,
    template: TemplateConfig | None = None,
    draft_length: int = 8,
    max_new_tokens: int = 128,
    top: int = TOP,
    timed_rounds: int = ROUNDS,
    on_prompt: Callable[[int], None] = lambda done: None,
) -> Trace:
    """Decode prompts of a task strictly with the draft model, and return what replay needs.

    ``prompts``: how many, from the first, or these, by position. ``top``: tokens of either model stored individually at
    a position; 0 stores full rows. ``timed_rounds``: rounds to time at each draft length; with 0 the pair is not timed,
    and replay predicts no speeds. ``on_prompt`` is called with the number of prompts done. A prompt that fills the
    context is left out. Raises ``InvalidSetting``, or ``FsdError`` if no draft was judged.
    """
    check(draft_length, top)
    task.check_alone("replay")
    sampling, template, vocabulary = sampling or SamplingConfig(), template or TemplateConfig(), pair.target.vocabulary
    examples = dict(enumerate(task.examples(prompts))) if isinstance(prompts, int) else prompts
    info = TraceInfo(
        pair=pair.spec.name, task=task.name, seed=seed, prompts=len(examples), vocabulary=vocabulary,
        tokenizer=tokenizer_hash(pair), sampling=sampling, template=template,
        draft_length=draft_length, max_new_tokens=max_new_tokens, top=top or vocabulary,
        provenance=provenance.collect(pair.computed_on, pair.dtype, torch.get_num_threads(), gpu_name(pair.device)),
    )  # fmt: skip
    recorder = recorder_of(info)
    decoder = PairDecoder(pair, DecodingConfig(
        acceptance=RecordingRule(recorder.keep), topology=ChainTopology(length=draft_length), sampling=sampling,
        template=template, max_new_tokens=max_new_tokens,
    ))  # fmt: skip
    recorded: list[PromptTrace] = []
    for done, (position, example) in enumerate(examples.items(), 1):
        try:
            ids = decoder.fitting(decoder.prompt_ids(example.model_input))
        except PromptTooLong:
            continue
        generation = decoder.generate(ids, prompt_seed(seed, position))
        answer_limit = min(max_new_tokens, decoder.method.context - len(ids))
        recorded.append(recorder.prompt(position, ids, generation, answer_limit))
        on_prompt(done)
    if not any(prompt.size for prompt in recorded):
        raise FsdError(f"No draft of {task.name} was judged, so there is nothing to replay: allow longer answers.")
    costs = measure_costs(pair, sampling, draft_length, timed_rounds) if timed_rounds else None
    return Trace(info.model_copy(update={"costs": costs, "prompts": len(recorded)}), tuple(recorded))


def tokenizer_hash(pair: LoadedPair) -> str:
    """Return the first 16 hex digits of the SHA-256 of the tokens and their ids."""
    tokenizer: Any = pair.tokenizer
    vocabulary = json.dumps(sorted(tokenizer.get_vocab().items()))
    return hashlib.sha256(vocabulary.encode()).hexdigest()[:16]


def check_name(info: TraceInfo, pair: str) -> None:
    """Raise ``InvalidSetting`` if ``pair`` is not the name of the pair that recorded."""
    if info.pair != pair:
        raise UnfitTrace(
            f"The trace is of '{info.pair}', not of '{pair}': choose the pair that recorded it, or record this one."
        )


def check_pair(info: TraceInfo, pair: LoadedPair) -> None:
    """Raise ``InvalidSetting`` unless the trace can be of this pair."""
    check_name(info, pair.spec.name)
    if (info.tokenizer, info.vocabulary) != (tokenizer_hash(pair), pair.target.vocabulary):
        raise UnfitTrace(
            f"The trace was recorded with another tokenizer than '{pair.spec.name}' has here: choose the pair that "
            "recorded it, or record this one."
        )
