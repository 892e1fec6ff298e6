"""Texts written by a configuration with given models, and what they must be."""

from __future__ import annotations

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
    """A text about to be written by a configuration with these models."""
    return DecodingSession(compose(ModelSet(target, draft, head), config), prompt, seed, eos)


def run(session: DecodingSession) -> DecodingSession:
    """The session, run to its end."""
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
    """The tokens that a configuration writes behind a prompt; ``ends``: whether end tokens end it."""
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
    """The first tokens of so many texts behind one prompt, with a seed each and no end token: int64 [texts,length].

    What can be written side by side is, which makes no difference to a text (``tests/contract/test_batch.py``).
    """
    found = []
    speculation = compose(ModelSet(target, draft, head), config).speculation
    if speculation is not None and speculation.drafter.side_by_side and speculation.topology.side_by_side:
        decoder = PairDecoder(in_memory(target, draft), config)
        decoder.eos = frozenset()
        found = [text.tokens[:length] for _, text in decoder.generate_all([prompt] * texts, range(texts), rows=500)]
    else:
        for seed in range(texts):
            with open_session(target, draft, config, prompt, seed, frozenset(), head) as session:
                while len(session.history) < len(prompt) + length:
                    session.run_round()
                found.append(session.history[len(prompt) :][:length])
    return torch.tensor(found)


@torch.inference_mode()
def recomputed_logits(model: LanguageModel, tokens: list[int]) -> Tensor:
    """Logits behind ``tokens``, with nothing cached: [V]."""
    fed, cache = torch.tensor([tokens], device=model.device), model.new_cache(len(tokens))
    return model.forward(fed, cache, logits_to_keep=1)[0, 0]


def distribution_of_texts(
    target: LanguageModel, prompt: list[int], length: int, near: tuple[LanguageModel, float] | None = None
) -> Tensor:
    """Probability of every text of ``length`` tokens behind a prompt, sampled at temperature 1, by enumeration:
    [V^length]. ``near``: a draft that writes instead where its Jensen-Shannon divergence is at most so much."""
    vocabulary = target.vocabulary

    def step(prefix: tuple[int, ...]) -> Tensor:
        models = (target,) if near is None else (target, near[0])
        distributions = [recomputed_logits(model, prompt + list(prefix)).softmax(-1) for model in models]
        return distributions[-1] if near is not None and js(*distributions) <= near[1] else distributions[0]

    known = {prefix: step(prefix) for n in range(length) for prefix in product(range(vocabulary), repeat=n)}
    texts = product(range(vocabulary), repeat=length)
    return torch.tensor([prod(known[text[:i]][token].item() for i, token in enumerate(text)) for text in texts])


@torch.inference_mode()
def next_logits(session: DecodingSession) -> Tensor:
    """Logits behind a session's text by way of its own cache, which is left as it was: [V]."""
    cache, length = session.cache, session.cache.length
    rest = torch.tensor([session.history[length:]], device=session.model.device)
    logits = session.model.forward(rest, cache, logits_to_keep=1)[0, 0]
    cache.rollback(length)
    return logits
