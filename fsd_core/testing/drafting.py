"""Contract of drafters and topologies: :func:`check_drafter` and :func:`check_topology`, built-in or plug-in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, TypeVar, get_args, get_origin

import torch
from torch import Tensor

from fsd_core.config import (
    CHAIN,
    RULES,
    TREE,
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    DrafterSettings,
    DraftModelDrafter,
    DynamicTreeTopology,
    Frozen,
    Fuzzy,
    MultiDraftTopology,
    PromptLookupDrafter,
    Rule,
    SamplingConfig,
    SearchTreeTopology,
    SettingConfig,
    Speculative,
    TopologySettings,
)
from fsd_core.decoding.composition import Method, compose
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.decoding.session import DecodingSession
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import LoadedPair
from fsd_core.models.model_set import ModelSet
from fsd_core.ops.scored_draft import DraftDistribution
from fsd_core.rules import KSeq
from fsd_core.testing.decoding_checks import beginnings, distribution_of_texts, next_logits, recomputed_logits
from fsd_core.testing.fit import fit, require
from fsd_core.testing.toy import in_memory, related, toy_head, toy_model

_PROMPTS: tuple[Sequence[int], ...] = ((3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5), (7,), (2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4))
_SAMPLED = SamplingConfig(temperature=0.8, top_k=20, top_p=0.95)
_TOKENS = 24
_CHAIN = (Speculative(), ChainTopology())
_CHAINS = (
    _CHAIN,
    (Speculative(), ChainTopology(length=1)),
    (Fuzzy(threshold=None, judge_bonus=True), ChainTopology(length=8)),
)
"""the last one drafts a bonus token"""
_TREES = ((Speculative(), DynamicTreeTopology(top_k=3, length=4, total_tokens=12)), (KSeq(), MultiDraftTopology()))
_SEARCH_TREES = ((Speculative(), SearchTreeTopology(total_tokens=9)),)
Settings = TypeVar("Settings", bound=Frozen)


@cache
def toy_models() -> ModelSet:
    """Return a random target, a draft that mostly agrees with it, and a random head: 40 tokens each."""
    target = toy_model(40, seed=11)
    return ModelSet(LanguageModel(target), LanguageModel(related(target, noise=0.15, seed=12)), toy_head(target))


def settings_of(kind: type[Settings]) -> list[Settings]:
    """Return a drafter or a topology with its defaults, with each of its options at the ends of its range, and with
    each of its choices. An option that another has to allow comes with the first value that allows it."""
    settings = [kind.checked()]
    for name, field in kind.model_fields.items():
        ends = [getattr(bound, end) for bound in field.metadata for end in ("ge", "le") if hasattr(bound, end)]
        choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        needs: Any = extra.get("needs", {})
        read = {other: values[0] for other, values in needs.items() if other in kind.model_fields}
        settings += [kind.checked(**read, **{name: value}) for value in (*ends, *choices)]
    return list(dict.fromkeys(settings))


def check_drafter(drafter: type[DrafterSettings], models: ModelSet | None = None) -> None:
    """Raise ``AssertionError`` with a sentence if a drafter violates the contract.

    It has a title, and its settings survive JSON. In chains and in the trees that it can draft, and with each of its
    options at the ends of its range, it returns distributions. Exact decoding then writes the greedy target's text
    token for token. The same seed gives the same text, whatever was written in between. The target's cache holds the
    accepted tokens only. Each text of a batch equals its batch-size-1 result. A drafter that learns from the run is
    held to its greedy texts. A plug-in's author calls this in a test of the package. ``models``: models to draft with,
    if tiny random ones are unsuitable.
    """
    default, *variants = settings_of(drafter)
    for settings in (default, *variants):
        _check_settings(settings, drafter.title)
    trees = (*_TREES * default.has_distribution, *_SEARCH_TREES * default.has_successors)
    for rule, topology in (*_CHAINS, *trees):
        _check(DecodingConfig.checked(acceptance=rule, drafter=default, topology=topology), models)
    for settings in variants:
        _check(DecodingConfig(acceptance=_CHAIN[0], drafter=settings, topology=_CHAIN[1]), models)


def check_topology(topology: type[TopologySettings], texts: int = 600) -> None:
    """Raise ``AssertionError`` with a sentence if a topology violates the contract.

    The contract is that of :func:`check_drafter`, with the draft model, or with prompt lookup for one that searches. A
    χ² test of ``texts`` texts must find the target's distribution.
    """
    for settings in settings_of(topology):
        _check_settings(settings, topology.title)
        _check(DecodingConfig.checked(**_drafted(settings)), None)
    vocabulary, prompt, length = 5, [0, 1, 2, 1], 2
    module = toy_model(vocabulary, seed=21, layers=1, hidden=16)
    target, draft = LanguageModel(module), LanguageModel(related(module, noise=0.6, seed=22))
    config = DecodingConfig(
        **_drafted(topology.checked(length=2)),
        sampling=SamplingConfig(temperature=1.0),
        max_new_tokens=length + 1,
    )
    emitted = beginnings(target, draft, config, prompt, length, texts)
    exact = distribution_of_texts(target, prompt, length)
    likely = fit(emitted[:, 0] * vocabulary + emitted[:, 1], exact) > 1e-6
    require(likely, f"Exact decoding with {settings_of(topology)[0]!r} writes another distribution.")


def _drafted(topology: TopologySettings) -> dict[str, Any]:
    """Return the parts of a lossless method with a topology."""
    drafter = PromptLookupDrafter() if topology.searches else DraftModelDrafter()
    return {"acceptance": _exact(topology.judged_as), "drafter": drafter, "topology": topology}


def _exact(judged_as: str) -> Rule:
    """Return a lossless rule that judges drafts of this kind."""
    if judged_as in (CHAIN, TREE):
        return Speculative()
    kinds = (rule for rule in RULES.values() if rule.lossless and judged_as in rule.shapes and rule.drafts is None)
    return next(kinds).checked()


def _check_settings(settings: DrafterSettings | TopologySettings, title: str) -> None:
    require(bool(title.strip()), f"{settings!r} has no title.")
    part = "drafter" if isinstance(settings, DrafterSettings) else "topology"
    drafted = _drafted(settings) if isinstance(settings, TopologySettings) else {"drafter": settings}
    decoding = DecodingConfig.checked(**{"acceptance": Speculative()} | drafted)
    restored = getattr(SettingConfig.model_validate(SettingConfig(decoding=decoding).as_json()).decoding, part)
    require(restored == settings, f"{settings!r} is read back from JSON as {restored!r}.")


def _check(config: DecodingConfig, models: ModelSet | None) -> None:
    models = models or toy_models()
    name = config.label
    method = _watched(compose(models, config.model_copy(update={"max_new_tokens": _TOKENS})))
    for prompt in _PROMPTS:
        reference = _greedy(models, prompt)
        require(_text(method, prompt, 0) == reference, f"'{name}' writes another text than the greedy target.")
    if config.drafter is not None and config.drafter.learns_from_run:
        return  # its texts are promised at temperature 0 alone
    sampled = config.model_copy(update={"sampling": _SAMPLED, "max_new_tokens": _TOKENS})
    method = _watched(compose(models, sampled))
    first = _checked_text(method, name)
    _text(method, _PROMPTS[2], 4)
    require(
        _text(method, _PROMPTS[0], 3) == first, f"'{name}' writes another text with the same seed, after another one."
    )
    speculation = method.speculation
    if speculation is not None and speculation.drafter.side_by_side and speculation.topology.side_by_side:
        _check_side_by_side(models, sampled)


def _text(method: Method, prompt: Sequence[int], seed: int) -> list[int]:
    with DecodingSession(method, prompt, seed, frozenset()) as session:
        while session.stop_reason is None:
            session.run_round()
        return session.history[len(prompt) :]


def _checked_text(method: Method, name: str) -> list[int]:
    """Return a text, checking the target's cache after every round."""
    with DecodingSession(method, _PROMPTS[0], 3, frozenset()) as session:
        while session.stop_reason is None:
            session.run_round()
            cached, expected = session.cache.length, len(session.history) - 1
            require(cached == expected, f"'{name}' leaves {cached} tokens in the target's cache, not {expected}.")
            near = torch.allclose(
                next_logits(session), recomputed_logits(method.model, session.history), atol=1e-4, rtol=1e-4
            )
            require(near, f"'{name}' leaves rejected tokens in the target's cache.")
        return session.history[len(_PROMPTS[0]) :]


def _check_side_by_side(models: ModelSet, config: DecodingConfig) -> None:
    assert models.draft is not None
    pair: LoadedPair = replace(in_memory(models.target, models.draft), head=models.head)
    decoder = PairDecoder(pair, config)
    decoder.eos = frozenset()
    prompts = [list(prompt) for prompt in _PROMPTS]
    for index, text in decoder.generate_all(prompts, range(len(prompts)), rows=2):
        same = text.tokens == decoder.generate(prompts[index], index).tokens
        require(same, f"'{config.label}' writes another text beside others than alone.")


_greedy_texts: dict[tuple[int, tuple[int, ...]], list[int]] = {}


def _greedy(models: ModelSet, prompt: Sequence[int]) -> list[int]:
    """Return the target's greedy text, cached."""
    key = id(models.target), tuple(prompt)
    if key not in _greedy_texts:
        config = DecodingConfig(acceptance=Autoregressive(), max_new_tokens=_TOKENS)
        _greedy_texts[key] = _text(compose(models, config), prompt, 0)
    return _greedy_texts[key]


@dataclass
class _Watched:
    """A drafter whose outputs must be distributions."""

    drafter: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.drafter, name)

    def begin(self, tokens: Tensor, texts: Sequence[Sequence[int]]) -> DraftDistribution | None:
        return self._checked(self.drafter.begin(tokens, texts), len(texts))

    def extend(self, token: Tensor) -> DraftDistribution | None:
        return self._checked(self.drafter.extend(token), len(token))

    def extend_level(self, tokens: Tensor, parents: Tensor) -> DraftDistribution | None:
        return self._checked(self.drafter.extend_level(tokens, parents), tokens.shape[1])

    def _checked(self, row: DraftDistribution | None, count: int) -> DraftDistribution | None:
        for name, rows in () if row is None else (("warped", row.warped), ("raw", row.raw)):
            drafter = type(self.drafter).__name__
            require(
                rows.ndim == 2 and len(rows) == count,
                f"{drafter} answers with {name} of the shape {tuple(rows.shape)}.",
            )
            sums = (rows.sum(-1) - 1).abs() < 1e-3
            require(bool((rows >= 0).all() and sums.all()), f"{drafter} answers with {name} that is no distribution.")
        return row


def _watched(method: Method) -> Method:
    assert method.speculation is not None
    factory = method.speculation.drafter
    watched: Any = lambda capacity, rows: _Watched(factory.new(capacity, rows))  # noqa: E731
    return replace(method, speculation=replace(method.speculation, drafter=replace(factory, new=watched)))
