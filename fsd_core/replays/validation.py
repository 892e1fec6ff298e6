"""Predicted against measured: the same settings decoded on the prompts of a trace, with its pair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fsd_core.config import Autoregressive, DecodingConfig
from fsd_core.decoding.decoder import GeneratedText, PairDecoder
from fsd_core.errors import UnfitTrace
from fsd_core.evaluation.harness import prompt_seed
from fsd_core.models.loading import LoadedPair
from fsd_core.models.prompt import prompt_hash
from fsd_core.replays.prediction import Prediction, estimates
from fsd_core.replays.replay_trace import Trace
from fsd_core.replays.strict_run import check_pair
from fsd_core.statistics.intervals import Estimate
from fsd_core.statistics.ratios import difference_ends
from fsd_core.tasks import Task


@dataclass(frozen=True)
class Validated:
    """A prediction and the measurement on the same prompts.

    ``acceptance_error``: predicted less measured acceptance rate, with its interval paired by prompt. ``length``:
    tokens of the measured answers over those of the strict ones, which the prediction assumes. ``speed_up``: over the
    target alone, timed in turns with it.
    """

    prediction: Prediction
    acceptance_rate: Estimate
    acceptance_error: Estimate
    tokens_per_pass: Estimate
    passes: Estimate
    length: float
    speed_up: Estimate


def measure(
    pair: LoadedPair,
    trace: Trace,
    predictions: Sequence[Prediction],
    task: Task,
    on_prompt: Callable[[int], None] = lambda done: None,
) -> list[Validated]:
    """Decode the prompts of the trace with the setting of each prediction. All settings write a prompt before the next.

    ``task``: the recorded task. Raises ``InvalidSetting`` if the trace is not of this pair, or of other prompts.
    """
    info = trace.info
    check_pair(info, pair)
    examples = task.examples(max(prompt.prompt for prompt in trace.prompts) + 1)
    configs = [prediction.config for prediction in predictions]
    target_config = DecodingConfig(
        acceptance=Autoregressive(), sampling=info.sampling, template=info.template, max_new_tokens=info.max_new_tokens
    )  # fmt: skip
    decoders = [PairDecoder(pair, config) for config in (target_config, *configs)]
    counts = np.zeros((len(decoders), len(trace.prompts), 5))
    for row, prompt in enumerate(trace.prompts):
        ids, seed = decoders[0].prompt_ids(examples[prompt.prompt].model_input), prompt_seed(info.seed, prompt.prompt)
        if prompt.prompt_hash not in (None, prompt_hash(ids)):
            raise UnfitTrace(
                f"The prompt {prompt.prompt} is rendered to other tokens than when the trace was recorded, because the "
                "template, the tokenizer or transformers has changed: record this pair again."
            )
        if not row:
            decoders[0].generate(ids, seed)  # warm-up: the first text's extra time is not its method's
        for turn in range(len(decoders)):
            index = (turn + row) % len(decoders)
            counts[index, row] = _counts(decoders[index].generate(ids, seed))
        on_prompt(row + 1)
    return [
        _checked(prediction, setting_counts, counts[0])
        for prediction, setting_counts in zip(predictions, counts[1:], strict=True)
    ]


def _counts(done: GeneratedText) -> list[float]:
    """Return tokens, rounds, drafted and accepted tokens, and seconds."""
    records = done.records
    drafted, accepted = sum(len(record.drafted) for record in records), sum(record.accepted for record in records)
    return [len(done.tokens), len(records), drafted, accepted, done.seconds]


def _checked(prediction: Prediction, counts: np.ndarray, target_counts: np.ndarray) -> Validated:
    tokens, rounds, drafted, accepted, seconds = counts.T[..., None]
    (rate,), (per_pass,) = estimates(accepted, drafted, is_share=True), estimates(tokens, rounds)
    (passes,) = estimates(rounds, np.ones_like(rounds))
    pairs = np.concatenate([prediction.counts[:, [3, 2]], counts[:, [3, 2]]], 1)
    low, high = (float(end) for end in difference_ends(pairs))
    error = Estimate(prediction.acceptance_rate.value - rate.value, *((low, high) if low == low else (None, None)))
    (speed,) = estimates(tokens * target_counts[:, 4:].sum() / target_counts[:, 0].sum(), seconds)
    length = float(tokens.sum() / prediction.counts[:, 0].sum())
    return Validated(prediction, rate, error, per_pass, passes, length, speed)
