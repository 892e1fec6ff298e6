"""Our methods inside transformers' ``generate``.

    model.generate(**inputs, custom_generate=fsd_core.generate, assistant_model=draft,
                   acceptance="fsd-reducible", divergence="js", threshold=0.2)

transformers (5.23) keeps its named arguments ``assistant_model`` and ``streamer`` to
itself when the decoding method is a callable, so they are read from the calling
frame. ``draft_model=`` is passed on like any other argument.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
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
from fsd_core.config.building import method
from fsd_core.config.decoding_config import EVERYWHERE
from fsd_core.config.options import METHOD_OPTIONS, by_name
from fsd_core.decoding.composition import Method, compose
from fsd_core.decoding.session import DecodingSession
from fsd_core.drafters.eagle import MissingHead
from fsd_core.errors import NotApplicable, NotGiven
from fsd_core.models.eagle import EagleHead
from fsd_core.models.language_model import end_ids
from fsd_core.models.model_set import ModelSet, over_one_vocabulary

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
