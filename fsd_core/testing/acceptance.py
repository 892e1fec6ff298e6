"""Contract of an acceptance rule: :func:`check_rule`, for built-in rules and for plug-ins."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise, product

import torch
from torch import Tensor

from fsd_core.config import DecodingConfig, SettingConfig
from fsd_core.frozen import kind_of
from fsd_core.ops.sampling import draw
from fsd_core.ops.scored_draft import ScoredDraft
from fsd_core.rules import RULES, Fuzzy, FuzzyReducible, Rule, Speculative, Verifier
from fsd_core.testing.fit import Q_FAR, Q_NEAR, P, fit, require
from fsd_core.testing.verifiers import check_verifier


@dataclass(frozen=True)
class Trial:
    """Tokens that a rule wrote at one position, many times over. emitted: int64 [N]; accepted, strict: bool [N]."""

    emitted: Tensor
    accepted: Tensor
    strict: Tensor


def judging_rules() -> dict[str, type[Rule]]:
    """Return the rules that judge single drafts, by kind."""
    return {kind: r for kind, r in RULES.items() if not (r.baseline or r.writes_beams or issubclass(r, Verifier))}


def cases(rule: type[Rule]) -> list[Rule]:
    """Return a rule with its defaults, at its strict value, and over its knob's grid."""
    configs = [rule.checked()]
    if (knob := rule.knob) is not None:
        strict = [knob.strict] if rule.can_be_off() else []
        configs += [rule.checked(**{knob.field: value}) for value in (*strict, *knob.grid)]
    return list(dict.fromkeys(configs))


ROUNDING = 1e-6
"""how far a computed distribution may be from the target's, in float32"""
_BELOW_ONE = 1 - 2.0**-53
"""the largest uniform that can be drawn"""
_MORE: tuple[Rule, ...] = (
    Fuzzy(divergence="kl", threshold=0.3),
    Fuzzy(divergence="random", threshold=0.5),
    FuzzyReducible(divergence="tv", threshold=0.3),
    FuzzyReducible(divergence="top-k-reverse-kl", threshold=0.3, divergence_top_k=3),
)
CASES: tuple[Rule, ...] = tuple(
    dict.fromkeys([config for r in judging_rules().values() for config in cases(r)] + [*_MORE])
)


def is_lossless(config: Rule) -> bool:
    """Return whether this configuration promises the target's distribution."""
    knob = config.knob
    return config.lossless or (knob is not None and config.can_be_off() and config.knob_value == knob.strict)


def check_rule(rule: type[Rule], count: int = 20_000) -> None:
    """Raise ``AssertionError`` with a sentence if a rule violates the contract.

    A rule has a title and an explanation, and its settings survive JSON. At every value of its grid it accepts and
    corrects as an acceptance rule does. If it promises the target's distribution, :func:`written_distribution` must
    equal it to ``ROUNDING``, and a χ² test over ``count`` tokens must agree. At its strict value it is speculative
    decoding token for token. A more lenient value of a monotone knob never accepts less. A verifier of several drafts
    keeps the contract of :func:`fsd_core.testing.verifiers.check_verifier`. A plug-in's author calls this in a test of
    the package.
    """
    kind = kind_of(rule)
    for text in (rule.title, rule.explanation):
        require(bool(text.strip()), f"The rule '{kind}' has no title or explanation.")
    if issubclass(rule, Verifier):
        check_verifier(rule, max(count, 100_000))
    else:
        for config, q in product(cases(rule), (Q_NEAR, Q_FAR)):
            _check_config(config, q, count)
        _check_monotone(rule, count)
    for config in cases(rule):
        decoding = DecodingConfig(acceptance=config)
        restored = SettingConfig.model_validate(SettingConfig(decoding=decoding).as_json()).decoding.acceptance
        require(restored == config, f"The rule {config!r} is read back from JSON as {restored!r}.")


def _check_config(config: Rule, q: Tensor, count: int) -> None:
    trial = try_position(config, P, q, count, seed=1)
    speculative = try_position(Speculative(), P, _draft_distribution(config, q), count, seed=1)
    require(
        torch.equal(trial.strict, speculative.strict), f"{config!r} marks other tokens as strictly accepted than SD."
    )
    if is_lossless(config):
        exact = fit(trial.emitted, P) > 1e-6
        if not reads_noise(config):
            exact = exact and bool((written_distribution(config, P, q) - P).abs().max() < ROUNDING)
        require(exact, f"{config!r} is lossless, and writes another distribution than the target's.")
        if not config.lossless:
            same = torch.equal(trial.emitted, speculative.emitted) and torch.equal(trial.accepted, speculative.accepted)
            require(same, f"{config!r} stands at its strict value, and writes other tokens than SD.")
    rows = _scored(config, P, q, draw(q.expand(4, 1, -1), torch.rand(4, 1, dtype=torch.float64)), None)
    weights = config.correction(rows, config.judge(rows, torch.rand(4, 1), torch.rand(4, 1)))
    require(weights.shape == (4, 1, len(P)), f"{config!r} corrects by weights of the shape {tuple(weights.shape)}.")
    require(bool((weights >= 0).all() and (weights.sum(-1) > 0).all()), f"{config!r} corrects by weights below zero.")
    if not config.judges_together:
        _check_independence(config, q)


def _check_independence(config: Rule, q: Tensor) -> None:
    """Judge 200 drafts of four tokens, each position by itself and together with the others."""
    u = torch.rand(2, 800, 1, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    single = _scored(config, P, q, draw(_draft_distribution(config, q).expand(800, 1, -1), u[0]), None)
    assert single.logits is not None
    joint = replace(
        single, tokens=single.tokens.view(200, 4), target=single.target.reshape(200, 4, -1),
        draft=single.draft.reshape(200, 4, -1), target_raw=single.target_raw.reshape(200, 4, -1),
        draft_raw=single.draft_raw.reshape(200, 4, -1), logits=single.logits.reshape(200, 4, -1),
    )  # fmt: skip
    accepted = config.judge(single, u[1], u[1]).accepted.view(200, 4)
    same = torch.equal(accepted, config.judge(joint, u[1].view(200, 4), u[1].view(200, 4)).accepted)
    require(same, f"{config!r} judges a position by others beside it, and does not say that it judges_together.")


def _check_monotone(rule: type[Rule], count: int) -> None:
    if (knob := rule.knob) is None or not knob.monotone:
        return
    direction = "larger" if knob.rising else "smaller"
    for q in (Q_NEAR, Q_FAR):
        configs = [rule.checked(**{knob.field: value}) for value in knob.by_leniency(knob.grid)]
        accepted = [
            try_position(config, P, q, count, seed=2).accepted.double().mean().item()
            if reads_noise(config)
            else accepted_share(config, P, q)
            for config in configs
        ]
        rises = all(more > less - 1e-6 for less, more in pairwise(accepted))
        require(rises, f"The rule '{kind_of(rule)}' accepts less with a {direction} {knob.field}: {accepted}.")


def try_position(rule: Rule, p: Tensor, q: Tensor, count: int, seed: int, allowed: Tensor | None = None) -> Trial:
    """Draft from q and judge against p, ``count`` times at once. p, q: [V]; allowed: bool [V]."""
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(4, count, 1, generator=generator, dtype=torch.float64)
    drafted = draw(_draft_distribution(rule, q).expand(count, 1, -1), u[0])
    rows = _scored(rule, p, q, drafted, allowed)
    result = rule.judge(rows, u[1], u[2])
    correction = draw(rule.correction(rows, result), u[3])
    emitted = torch.where(result.accepted, drafted, correction)
    return Trial(emitted[:, 0], result.accepted[:, 0], result.strict[:, 0])


def written_distribution(rule: Rule, p: Tensor, q: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Return a rule's output distribution at a position, summed over drafted tokens and their uniforms: float64 [V].

    p, q: [V]; allowed: bool [V]. It is not sampled but exact to rounding, see :func:`accepted_chance`. It is
    meaningless for a rule that :func:`reads_noise`.
    """
    drafting, accepted = _draft_distribution(rule, q).double(), accepted_chance(rule, p, q, allowed)
    rows = _scored(rule, p, q, torch.arange(len(p))[:, None], allowed)
    refusing = torch.full((len(p), 1), _BELOW_ONE, dtype=torch.float64)
    weights = rule.correction(rows, rule.judge(rows, refusing, refusing))[:, 0].double()
    recovered = (drafting * (1 - accepted))[:, None] * weights / weights.sum(-1, keepdim=True)
    return drafting * accepted + recovered.sum(0)


def accepted_chance(rule: Rule, p: Tensor, q: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Return the chance, over its uniform, that each token is accepted if drafted: float64 [V].

    A token's uniforms fall into accepted and rejected intervals. A grid of 256 finds the intervals, and bisection finds
    their ends to 1e-9. An interval narrower than 1/256 may be missed.
    """
    count, ends = len(p), torch.linspace(0, 1, 257, dtype=torch.float64).clamp_max(_BELOW_ONE)

    def accepts(tokens: Tensor, uniforms: Tensor) -> Tensor:
        rows = _scored(rule, p, q, tokens[:, None], allowed)
        return rule.judge(rows, uniforms[:, None], uniforms[:, None]).accepted[:, 0]

    tokens = torch.arange(count)
    grid = accepts(tokens.repeat_interleave(len(ends)), ends.repeat(count)).view(count, -1)
    both = (grid[:, 1:] & grid[:, :-1]).double() @ ends.diff()
    token, index = (grid[:, 1:] != grid[:, :-1]).nonzero(as_tuple=True)
    low, high, rising = ends[index].clone(), ends[index + 1].clone(), grid[token, index + 1]
    for _ in range(24 if len(token) else 0):
        middle = (low + high) / 2
        beyond = accepts(token, middle) == rising
        low, high = torch.where(beyond, low, middle), torch.where(beyond, middle, high)
    share = torch.where(rising, ends[index + 1] - high, low - ends[index])
    return both.index_add(0, token, share).div(_BELOW_ONE)


def accepted_share(rule: Rule, p: Tensor, q: Tensor) -> float:
    """Return the share of tokens drafted from q that is accepted, as exact as :func:`accepted_chance`. p, q: [V]"""
    return (_draft_distribution(rule, q).double() @ accepted_chance(rule, p, q)).item()


def reads_noise(rule: Rule) -> bool:
    """Return whether a rule draws random numbers besides its test, so that its output can only be sampled."""
    tokens = torch.arange(len(P)).repeat(64)[:, None]
    rows, noise = _scored(rule, P, Q_FAR, tokens, None), torch.linspace(0.01, 0.99, len(tokens), dtype=torch.float64)
    uniforms = torch.full((len(tokens), 1), 0.999, dtype=torch.float64)
    accepted = [rule.judge(rows, uniforms, x[:, None]).accepted for x in (noise, noise.flip(0))]
    return not torch.equal(*accepted)


def _scored(rule: Rule, p: Tensor, q: Tensor, drafted: Tensor, allowed: Tensor | None) -> ScoredDraft:
    """Return p and q at the positions of the tokens ``drafted``, int64 [N,1]."""
    expanded = [x.expand(len(drafted), 1, -1) for x in (p, q, _draft_distribution(rule, q))]
    mask = None if allowed is None else allowed.expand(len(drafted), 1, -1)
    return ScoredDraft(drafted, expanded[0], expanded[2], expanded[0], expanded[1], mask, expanded[0].log() + 5)


def _draft_distribution(rule: Rule, q: Tensor) -> Tensor:
    """Return the distribution that the draft is sampled from: q, or its likeliest token. [V]"""
    return torch.zeros_like(q).index_fill(0, q.argmax(), 1) if rule.greedy_draft else q
