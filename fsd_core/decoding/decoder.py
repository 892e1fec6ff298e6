"""Decodes texts with a loaded pair and one configuration, also inside transformers' ``generate``.

Our methods inside transformers' ``generate``.

    model.generate(**inputs, custom_generate=fsd_core.generate, assistant_model=draft,
                   acceptance="fsd-reducible", divergence="js", threshold=0.2)

transformers (5.23) keeps its named arguments ``assistant_model`` and ``streamer`` to
itself when the decoding method is a callable, so they are read from the calling
frame. ``draft_model=`` is passed on like any other argument.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteriaList,
)
from transformers.generation import GenerateDecoderOnlyOutput

from fsd_core.config import TREE, DecodingConfig
from fsd_core.config.decoding_config import EVERYWHERE
from fsd_core.config.options import METHOD_OPTIONS, by_name, method
from fsd_core.decoding.beams import BeamBatch, BeamText
from fsd_core.decoding.loop import Batch, Closing, Method, SequenceState, compose
from fsd_core.decoding.trace import RoundRecord
from fsd_core.drafters import MissingHead
from fsd_core.errors import NotApplicable, NotGiven
from fsd_core.models.caches import KVCache
from fsd_core.models.conversation import Message
from fsd_core.models.draft_weights import EagleHead
from fsd_core.models.language_model import LanguageModel, end_ids
from fsd_core.models.loading import LoadedPair, ModelSet, over_one_vocabulary
from fsd_core.models.prompt import encode_prompt


def new_batch(
    method: Method, eos: frozenset[int], capacity: int, rows: int = 1, *, keep_logits: bool = False
) -> Batch | BeamBatch:
    """Return a writer of texts by a method. See :class:`Batch` for the arguments. Raises ``InvalidSetting``."""
    if method.beams is not None:
        return BeamBatch(method, eos, capacity, rows)
    return Batch(method, eos, capacity, rows, keep_logits=keep_logits)


class DecodingSession(Closing):
    """A text, written one round at a time. As a context manager it closes itself.

    ``prompt``: token ids. ``seed``: the uniforms' seed. ``eos``: ids that end the text. Raises ``InvalidSetting`` for
    an empty prompt, ``PromptTooLong`` for one that fills the context.
    """

    def __init__(
        self, method: Method, prompt: Sequence[int], seed: int, eos: frozenset[int], *, keep_logits: bool = False
    ) -> None:
        method.check_prompt(len(prompt))
        self._batch = new_batch(method, eos, method.capacity(len(prompt)), keep_logits=keep_logits)
        self._text = self._batch.put(0, prompt, seed)

    def close(self) -> None:
        """Release the caches, which may serve the next text. The text stays, but cannot be continued."""
        self._batch.close()

    @property
    def model(self) -> LanguageModel:
        """The model that writes: the target, or the draft if it decodes alone."""
        return self._batch.model

    @property
    def cache(self) -> KVCache:
        return self._batch.cache

    @property
    def history(self) -> list[int]:
        """Token ids of the prompt and of the text so far; of beams, as far as they agree."""
        return self._text.history

    @property
    def stop_reason(self) -> str | None:
        return self._text.stop_reason

    def run_round(self) -> RoundRecord:
        """Run one round, which writes 1 to draft length + 1 tokens, or of beams what they have come to agree on, if
        anything. Call this until ``stop_reason`` is set."""
        return self._batch.run_round()[0]

    @property
    def beams(self) -> list[list[int]]:
        """The live beams' token ids, the prompt included; the text itself if it is written alone."""
        return self._batch.live if isinstance(self._batch, BeamBatch) else [self.history]

    def likeliest(self) -> list[int]:
        """Return the target's likeliest token at each position of the last round. Empty if nothing was drafted, or
        without ``keep_logits``."""
        return self._batch.likeliest()[0]


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """A finished text. Times are wall seconds, including the prompt's forward."""

    tokens: list[int]
    records: list[RoundRecord]
    seconds: float
    time_to_first_token: float
    stop_reason: str
    """``eos``; ``length``: the requested number of tokens; ``context``: the model's context is full"""
    cpu_seconds: float | None = None
    """processor time of this process meanwhile; ``None`` where another device computes"""
    latency: float | None = None
    """wall seconds to its end, whatever else was decoded in its batch; ``None``: not measured"""


class PairDecoder:
    """A pair and a configuration, without state between texts. Raises whatever ``compose`` raises."""

    def __init__(self, pair: LoadedPair, config: DecodingConfig) -> None:
        self.pair, self.config = pair, config
        self.method = compose(
            ModelSet(pair.target, pair.draft if pair.spec.draft else None, pair.head, pair.tokenizer, pair.trigrams),
            config,
        )
        self.eos = self.method.model.eos_tokens  # a draft's own end tokens do not end the target's text

    def prompt_ids(self, prompt: str | Sequence[Message]) -> list[int]:
        """Return the token ids of a prompt or a conversation. Raises like ``encode_prompt``."""
        template = self.config.template.filled(self.pair.spec.template_arguments)
        return encode_prompt(self.pair.tokenizer, prompt, self.method.context, template)

    def fitting(self, prompt_ids: list[int]) -> list[int]:
        """Return the prompt unchanged. Raises ``PromptTooLong`` for one that fills the context."""
        self.method.check_prompt(len(prompt_ids))
        return prompt_ids

    def session(self, prompt_ids: list[int], seed: int, *, keep_logits: bool = False) -> DecodingSession:
        """Return a session for one text, which the caller closes. Raises ``PromptTooLong`` for a prompt that fills the
        context."""
        return DecodingSession(self.method, prompt_ids, seed, self.eos, keep_logits=keep_logits)

    def stream(self, prompt_ids: list[int], seed: int) -> Iterator[RoundRecord]:
        """Yield the rounds of one text as they happen."""
        with self.session(prompt_ids, seed) as session:
            while session.stop_reason is None:
                yield session.run_round()

    def generate_all(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], rows: int
    ) -> Iterator[tuple[int, GeneratedText]]:
        """Yield each text with its index among the prompts when it ends, decoding in batches of ``rows``.

        A text does not depend on the others in its batch, up to the rounding of the models' arithmetic. Its seconds are
        its shares of its rounds' wall times. The time to its first token is wall time. Raises ``PromptTooLong``.
        """
        rows = min(rows, len(prompts))
        with new_batch(self.method, self.eos, self.method.capacity(max(map(len, prompts))), rows) as batch:
            yield from self._generate_batch(batch, rows, prompts, seeds)

    def _generate_batch(
        self, batch: Batch | BeamBatch, rows: int, prompts: Sequence[Sequence[int]], seeds: Sequence[int]
    ) -> Iterator[tuple[int, GeneratedText]]:
        writing = [_Writing.begin(batch, row, row, prompts, seeds) for row in range(rows)]
        waiting = iter(range(rows, len(prompts)))
        while writing:
            cpu_started = time.process_time()
            records = batch.run_round()
            cpu_seconds = (time.process_time() - cpu_started) / len(writing)
            for text, record in zip(writing, records, strict=True):
                text.records.append(record)
                text.cpu += cpu_seconds
                text.first = text.first or (time.perf_counter() - text.started) * bool(record.emitted)
            for row, text in enumerate(writing):
                if text.ended:
                    generation = text.generation()
                    yield text.index, replace(generation, cpu_seconds=self._own(text.cpu))
                    index = next(waiting, None)
                    if index is not None:
                        writing[row] = _Writing.begin(batch, row, index, prompts, seeds)
            remaining = [row for row, text in enumerate(writing) if not text.ended]
            if remaining and len(remaining) < len(writing) and isinstance(batch, Batch):
                batch.keep_rows(remaining)
            writing = [writing[row] for row in remaining]

    def generate(self, prompt_ids: list[int], seed: int) -> GeneratedText:
        """Return one text, decoded to its end."""
        started, cpu_started = time.perf_counter(), time.process_time()
        with self.session(prompt_ids, seed) as session:
            records, first = [], 0.0
            while session.stop_reason is None:
                records.append(session.run_round())
                first = first or (time.perf_counter() - started) * bool(records[-1].emitted)
            seconds, cpu_seconds = time.perf_counter() - started, self._own(time.process_time() - cpu_started)
        tokens = session.history[len(prompt_ids) :]
        return GeneratedText(tokens, records, seconds, first, session.stop_reason, cpu_seconds, seconds)

    def _own(self, cpu_seconds: float) -> float | None:
        """Return the processor time that decoding took, or ``None`` where another device computes."""
        return cpu_seconds if self.pair.device == "cpu" else None


@dataclass
class _Writing:
    """A text of a batch while it is written."""

    index: int
    """index among the prompts"""
    text: SequenceState | BeamText
    prompt_length: int
    started: float
    reading: float
    """seconds spent on its prompt"""
    records: list[RoundRecord] = field(default_factory=list)
    first: float = 0.0
    cpu: float = 0.0
    """processor seconds of its prompt and of its shares of the rounds"""

    @classmethod
    def begin(
        cls, batch: Batch | BeamBatch, row: int, index: int, prompts: Sequence[Sequence[int]], seeds: Sequence[int]
    ) -> _Writing:
        started, cpu_started = time.perf_counter(), time.process_time()
        text = batch.put(row, prompts[index], seeds[index])
        reading, cpu = time.perf_counter() - started, time.process_time() - cpu_started
        return cls(index, text, len(prompts[index]), started, reading, cpu=cpu)

    @property
    def ended(self) -> bool:
        return self.text.stop_reason is not None

    def generation(self) -> GeneratedText:
        assert self.text.stop_reason is not None
        seconds = self.reading + sum(record.seconds for record in self.records)
        return GeneratedText(
            self.text.history[self.prompt_length :], self.records, seconds, self.first, self.text.stop_reason,
            latency=time.perf_counter() - self.started,
        )  # fmt: skip


_SUPPORTED = {"TemperatureLogitsWarper", "TopKLogitsWarper", "TopPLogitsWarper", "MinPLogitsWarper"}
OPTION_NAMES = [
    name
    for option in METHOD_OPTIONS.values()
    if option.part not in ("sampling", "template") and option.name != "max_new_tokens"
    for name in (option.name, *option.aliases)
]
_NOT_RETURNED = ("output_scores", "output_logits", "output_hidden_states", "output_attentions")
_STOPS = {"MaxLengthCriteria", "EosTokenCriteria"}


def _from_caller(name: str) -> Any:
    """Return a local variable of ``GenerationMixin.generate`` if it called us, else ``None``."""
    frame = sys._getframe(2)
    return frame.f_locals.get(name) if frame.f_code.co_name == "generate" else None


def _config(settings: GenerationConfig, prompt_length: int, options: Mapping[str, Any]) -> DecodingConfig:
    sampling: dict[str, Any] = {}
    if settings.do_sample:
        sampling = {"temperature": settings.temperature, "top_k": settings.top_k, "top_p": settings.top_p}
        sampling["min_p"] = settings.min_p
        sampling["temperature"] = 1.0 if settings.temperature is None else settings.temperature
    return method({**options, **sampling, "max_new_tokens": settings.max_length - prompt_length})


def _refuse_unsupported(settings: GenerationConfig, processors: LogitsProcessorList | None) -> None:
    unsupported = [type(p).__name__ for p in processors or () if type(p).__name__ not in _SUPPORTED]
    if unsupported:
        raise NotApplicable(
            f"{', '.join(unsupported)} would change the target's distribution in an unsupported way: use only "
            "temperature, top_k, top_p and min_p."
        )
    if settings.num_beams not in (None, 1) or settings.num_return_sequences not in (None, 1):
        raise NotApplicable("Beams and several returned sequences are not supported: leave both at 1.")
    missing = [name for name in _NOT_RETURNED if getattr(settings, name)] if settings.return_dict_in_generate else []
    if missing:
        raise NotApplicable(
            f"{', '.join(missing)} cannot be returned: most tokens are not written from a forward of their own. Leave "
            "it out, and ask the model for the returned sequences in one forward."
        )


def generate(
    model: PreTrainedModel,
    input_ids: Tensor,
    logits_processor: LogitsProcessorList | None = None,
    stopping_criteria: StoppingCriteriaList | None = None,
    generation_config: GenerationConfig | None = None,
    *,
    assistant_model: PreTrainedModel | None = None,
    draft_model: PreTrainedModel | None = None,
    tree: bool = False,
    head: EagleHead | None = None,
    seed: int | None = None,
    **options: Any,
) -> GenerateDecoderOnlyOutput | Tensor:
    """Decode ``input_ids`` [B,T] by one of our rules. transformers' ``generate`` calls this and returns its result.

    ``options``: ``acceptance``, ``divergence``, ``threshold`` (also ``"off"``), ``drafter``, ``draft_length`` and all
    others that make a decoding method (``fsd_core.config.options.METHOD_OPTIONS``; they are in the signature).
    Temperature, top-k, top-p, min-p, sampling or not, length and end tokens come from the generation config instead.
    ``tree=True`` is ``topology="dynamic-tree"``. ``lenient_in`` reads the texts with ``tokenizer``. ``head``: for the
    drafter ``eagle``, from ``models.eagle_files.load_head``. ``seed``: by default drawn from torch's generator, so
    ``torch.manual_seed`` governs it. Rows of a batch are decoded one after the other. Returns int64
    [B, T + longest new text], padded on the right, or a ``GenerateDecoderOnlyOutput`` if the config requests one.
    Raises ``InvalidSetting`` for a setting that is not supported.
    """
    settings = generation_config or model.generation_config
    draft_module = draft_model or assistant_model or _from_caller("assistant_model")
    streamer = _from_caller("streamer")
    _refuse_unsupported(settings, logits_processor)
    if options.get("inputs_embeds") is not None or not input_ids.shape[1]:
        raise NotApplicable("A prompt of embeddings has no tokens for the draft to read: give input_ids.")
    method_options = {name: options.pop(name) for name in OPTION_NAMES if name in options}
    config = _config(settings, input_ids.shape[1], by_name(method_options) | ({"topology": TREE} if tree else {}))
    decoding = _method(model, draft_module, head, config, _from_caller("tokenizer") or options.get("tokenizer"))
    eos = end_ids(settings.eos_token_id)
    criteria = [c for c in stopping_criteria or () if type(c).__name__ not in _STOPS]
    first_seed = int(torch.randint(2**31, ()).item()) if seed is None else seed

    mask = options.get("attention_mask")
    texts = []
    for row in range(input_ids.shape[0]):
        prompt = input_ids[row] if mask is None else input_ids[row][mask[row].bool()]
        with DecodingSession(decoding, prompt.tolist(), first_seed + row, eos) as session:
            texts.append(_write(session, prompt, streamer if input_ids.shape[0] == 1 else None, criteria))
    pad = settings.pad_token_id if settings.pad_token_id is not None else next(iter(eos), 0)
    longest = max(len(text) for text in texts)
    new = torch.tensor([text + [pad] * (longest - len(text)) for text in texts], dtype=torch.int64)
    sequences: Any = torch.cat([input_ids, new.to(input_ids.device)], 1)
    return GenerateDecoderOnlyOutput(sequences=sequences) if settings.return_dict_in_generate else sequences


_signature = inspect.signature(generate)
_named_parameters = [p for p in _signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
# transformers passes on only the arguments in the signature.
generate.__signature__ = _signature.replace(  # pyright: ignore[reportFunctionMemberAccess]
    parameters=[
        *_named_parameters,
        *(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in OPTION_NAMES),
        next(p for p in _signature.parameters.values() if p.kind is p.VAR_KEYWORD),
    ]
)


def _method(
    module: PreTrainedModel,
    draft_module: PreTrainedModel | None,
    head: EagleHead | None,
    config: DecodingConfig,
    tokenizer: PreTrainedTokenizerBase | None,
) -> Method:
    """Return the method over the caller's modules, which run unchanged."""
    target, draft = over_one_vocabulary(module, draft_module, lean=False)
    try:
        # The strings that end texts are transformers' stopping criteria here.
        needed = tokenizer if config.lenient_in != EVERYWHERE else None
        return compose(ModelSet(target, draft, head, needed), config)
    except MissingHead:
        raise NotGiven(
            "The drafter 'eagle' drafts with a head: give head=load_head(folder, model) of "
            "fsd_core.models.eagle_files, or choose the drafter 'draft-model'."
        ) from None


def _write(session: DecodingSession, prompt: Tensor, streamer: Any, criteria: list[Any]) -> list[int]:
    """Run a session to its end. Stopping criteria are checked after each token and cut the text there."""
    start = len(session.history)
    num_checked = start
    while session.stop_reason is None:
        session.run_round()
        for end in range(num_checked + 1, len(session.history) + 1):
            prefix = torch.tensor([session.history[:end]], device=prompt.device)
            if streamer is not None:
                streamer.put(prefix[0, -1:].cpu())
            if any(bool(criterion(prefix, None).all()) for criterion in criteria):
                if streamer is not None:
                    streamer.end()
                return session.history[start:end]
        num_checked = len(session.history)
    if streamer is not None:
        streamer.end()
    return session.history[start:]
