"""Texts decoded by a configuration with given models, and their expected values."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod

import torch
from torch import Tensor

from fsd_core.config import DecodingConfig
from fsd_core.decoding.composition import compose
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.decoding.session import DecodingSession
from fsd_core.models.eagle import EagleHead
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.model_set import ModelSet
from fsd_core.ops.divergences import js
from fsd_core.testing.toy import in_memory


def open_session(
    target: LanguageModel,
    draft: LanguageModel | None,
    config: DecodingConfig,
    prompt: list[int],
    seed: int,
    eos: frozenset[int],
    head: EagleHead | None = None,
) -> DecodingSession:
    """Return a session about to decode a text with these models."""
    return DecodingSession(compose(ModelSet(target, draft, head), config), prompt, seed, eos)


def run(session: DecodingSession) -> DecodingSession:
    """Run the session to its end and return it."""
    while session.stop_reason is None:
        session.run_round()
    return session


def written(
    target: LanguageModel,
    draft: LanguageModel,
    config: DecodingConfig,
    prompt: list[int],
    seed: int = 0,
    ends: bool = True,
    head: EagleHead | None = None,
) -> list[int]:
    """Return the tokens that a configuration writes after a prompt. ``ends``: whether end tokens stop it."""
    eos = target.eos_tokens if ends else frozenset()
    with open_session(target, draft, config, prompt, seed, eos, head) as text:
        return run(text).history[len(prompt) :]


def beginnings(
    target: LanguageModel,
    draft: LanguageModel,
    config: DecodingConfig,
    prompt: list[int],
    length: int,
    texts: int,
    head: EagleHead | None = None,
) -> Tensor:
    """Return the first tokens of ``texts`` texts after one prompt, one seed each, no end token: int64 [texts,length].

    Texts are decoded in batches if possible, which does not change them (``tests/contract/test_batch.py``).
    """
    results = []
    speculation = compose(ModelSet(target, draft, head), config).speculation
    if speculation is not None and speculation.drafter.side_by_side and speculation.topology.side_by_side:
        decoder = PairDecoder(in_memory(target, draft), config)
        decoder.eos = frozenset()
        results = [text.tokens[:length] for _, text in decoder.generate_all([prompt] * texts, range(texts), rows=500)]
    else:
        for seed in range(texts):
            with open_session(target, draft, config, prompt, seed, frozenset(), head) as session:
                while len(session.history) < len(prompt) + length:
                    session.run_round()
                results.append(session.history[len(prompt) :][:length])
    return torch.tensor(results)


@torch.inference_mode()
def recomputed_logits(model: LanguageModel, tokens: list[int]) -> Tensor:
    """Return the logits after ``tokens``, with nothing cached: [V]."""
    fed, cache = torch.tensor([tokens], device=model.device), model.new_cache(len(tokens))
    return model.forward(fed, cache, logits_to_keep=1)[0, 0]


def distribution_of_texts(
    target: LanguageModel,
    prompt: list[int],
    length: int,
    near: tuple[LanguageModel, float] | None = None,
    where: Callable[[tuple[int, ...]], bool] = lambda prefix: True,
) -> Tensor:
    """Return the probability of every text of ``length`` tokens after a prompt at temperature 1: [V^length].

    Texts are enumerated. ``near``: a draft and a threshold; the draft writes where its Jensen-Shannon divergence is at
    most the threshold, behind the prefixes of texts that ``where`` says.
    """
    vocabulary = target.vocabulary

    def step(prefix: tuple[int, ...]) -> Tensor:
        models = (target,) if near is None else (target, near[0])
        distributions = [recomputed_logits(model, prompt + list(prefix)).softmax(-1) for model in models]
        is_near = near is not None and where(prefix) and bool(js(*distributions) <= near[1])
        return distributions[-1] if is_near else distributions[0]

    by_prefix = {prefix: step(prefix) for n in range(length) for prefix in product(range(vocabulary), repeat=n)}
    texts = product(range(vocabulary), repeat=length)
    return torch.tensor([prod(by_prefix[text[:i]][token].item() for i, token in enumerate(text)) for text in texts])


@torch.inference_mode()
def next_logits(session: DecodingSession) -> Tensor:
    """Return the logits after a session's text through its own cache, which is restored: [V]."""
    cache, length = session.cache, session.cache.length
    uncached = torch.tensor([session.history[length:]], device=session.model.device)
    logits = session.model.forward(uncached, cache, logits_to_keep=1)[0, 0]
    cache.rollback(length)
    return logits
