"""The contract of an acceptance rule: :func:`check_rule`, for every rule that there is and for those of plug-ins."""

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
    """What a rule wrote at one position, many times over. emitted int64 [N]; accepted, strict: bool [N]."""

    emitted: Tensor
    accepted: Tensor
    strict: Tensor


def judging_rules() -> dict[str, type[Rule]]:
    """The rules that judge single drafts, by their kind."""
    return {kind: r for kind, r in RULES.items() if not r.baseline and not issubclass(r, Verifier)}


def cases(rule: type[Rule]) -> list[Rule]:
    """A rule as it is by default, at its strict value, and over its knob's grid."""
    found = [rule.checked()]
    if (knob := rule.knob) is not None:
        strict = [knob.strict] if rule.can_be_off() else []
        found += [rule.checked(**{knob.field: value}) for value in (*strict, *knob.grid)]
    return list(dict.fromkeys(found))


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
CASES: tuple[Rule, ...] = tuple(dict.fromkeys([case for r in judging_rules().values() for case in cases(r)] + [*_MORE]))


def is_lossless(config: Rule) -> bool:
    """Whether this very configuration promises the target's distribution."""
    knob = config.knob
    return config.lossless or (knob is not None and config.can_be_off() and config.knob_value == knob.strict)


def check_rule(rule: type[Rule], count: int = 20_000) -> None:
    """Raises ``AssertionError`` with a sentence where a rule does not keep the contract.

    A rule is told in words, and its settings survive JSON. At every value of its grid it accepts and corrects as an
    acceptance rule does. Where it promises the target's distribution, :func:`written_distribution` must be it to
    ``ROUNDING``, and a χ² test over ``count`` tokens must find it. At its strict value it is speculative decoding token
    for token, and a larger knob never accepts less. A verifier of several drafts keeps the contract of
    :func:`fsd_core.testing.verifiers.check_verifier`. A plug-in's author calls this in a test of the package.
    """
    kind = kind_of(rule)
    for words in (rule.title, rule.explanation):
        require(bool(words.strip()), f"The rule '{kind}' has no title or explanation.")
    if issubclass(rule, Verifier):
        check_verifier(rule, max(count, 100_000))
    else:
        for case, q in product(cases(rule), (Q_NEAR, Q_FAR)):
            _check_case(case, q, count)
        _check_monotone(rule, count)
    for case in cases(rule):
        decoding = DecodingConfig(acceptance=case)
        again = SettingConfig.model_validate(SettingConfig(decoding=decoding).as_json()).decoding.acceptance
        require(again == case, f"The rule {case!r} is read back from JSON as {again!r}.")


def _check_case(case: Rule, q: Tensor, count: int) -> None:
    trial = try_position(case, P, q, count, seed=1)
    strict = try_position(Speculative(), P, _drafting(case, q), count, seed=1)
    require(torch.equal(trial.strict, strict.strict), f"{case!r} marks other tokens as strictly accepted than SD.")
    if is_lossless(case):
        exact = fit(trial.emitted, P) > 1e-6
        if not reads_noise(case):
            exact = exact and bool((written_distribution(case, P, q) - P).abs().max() < ROUNDING)
        require(exact, f"{case!r} is lossless, and writes another distribution than the target's.")
        if not case.lossless:
            same = torch.equal(trial.emitted, strict.emitted) and torch.equal(trial.accepted, strict.accepted)
            require(same, f"{case!r} stands at its strict value, and writes other tokens than SD.")
    rows = _rows(case, P, q, draw(q.expand(4, 1, -1), torch.rand(4, 1, dtype=torch.float64)), None)
    weights = case.correction(rows, case.judge(rows, torch.rand(4, 1), torch.rand(4, 1)))
    require(weights.shape == (4, 1, len(P)), f"{case!r} corrects by weights of the shape {tuple(weights.shape)}.")
    require(bool((weights >= 0).all() and (weights.sum(-1) > 0).all()), f"{case!r} corrects by weights below zero.")
    if not case.judges_together:
        _check_alone(case, q)


def _check_alone(case: Rule, q: Tensor) -> None:
    """Of 200 drafts of four tokens, each position by itself and beside the others."""
    u = torch.rand(2, 800, 1, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    alone = _rows(case, P, q, draw(_drafting(case, q).expand(800, 1, -1), u[0]), None)
    assert alone.logits is not None
    beside = replace(
        alone, tokens=alone.tokens.view(200, 4), target=alone.target.reshape(200, 4, -1),
        draft=alone.draft.reshape(200, 4, -1), target_raw=alone.target_raw.reshape(200, 4, -1),
        draft_raw=alone.draft_raw.reshape(200, 4, -1), logits=alone.logits.reshape(200, 4, -1),
    )  # fmt: skip
    own = case.judge(alone, u[1], u[1]).accepted.view(200, 4)
    same = torch.equal(own, case.judge(beside, u[1].view(200, 4), u[1].view(200, 4)).accepted)
    require(same, f"{case!r} judges a position by others beside it, and does not say that it judges_together.")


def _check_monotone(rule: type[Rule], count: int) -> None:
    if (knob := rule.knob) is None or not knob.monotone:
        return
    way = "larger" if knob.rising else "smaller"
    for q in (Q_NEAR, Q_FAR):
        cases = [rule.checked(**{knob.field: value}) for value in knob.by_leniency(knob.grid)]
        accepted = [
            try_position(case, P, q, count, seed=2).accepted.double().mean().item()
            if reads_noise(case)
            else accepted_share(case, P, q)
            for case in cases
        ]
        rises = all(more > less - 1e-6 for less, more in pairwise(accepted))
        require(rises, f"The rule '{kind_of(rule)}' accepts less with a {way} {knob.field}: {accepted}.")


def try_position(rule: Rule, p: Tensor, q: Tensor, count: int, seed: int, allowed: Tensor | None = None) -> Trial:
    """Drafts from q and judges against p, ``count`` times at once. p, q: [V]; allowed: bool [V]."""
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(4, count, 1, generator=generator, dtype=torch.float64)
    drafted = draw(_drafting(rule, q).expand(count, 1, -1), u[0])
    rows = _rows(rule, p, q, drafted, allowed)
    verdict = rule.judge(rows, u[1], u[2])
    correction = draw(rule.correction(rows, verdict), u[3])
    emitted = torch.where(verdict.accepted, drafted, correction)
    return Trial(emitted[:, 0], verdict.accepted[:, 0], verdict.strict[:, 0])


def written_distribution(rule: Rule, p: Tensor, q: Tensor, allowed: Tensor | None = None) -> Tensor:
    """What a rule writes at a position, by summing over drafted tokens and their uniforms: float64 [V].

    p, q: [V]; allowed: bool [V]. No draws: exact to rounding, see :func:`accepted_chance`. Of a rule that
    :func:`reads_noise` it means nothing.
    """
    drafting, accepted = _drafting(rule, q).double(), accepted_chance(rule, p, q, allowed)
    rows = _rows(rule, p, q, torch.arange(len(p))[:, None], allowed)
    refusing = torch.full((len(p), 1), _BELOW_ONE, dtype=torch.float64)
    weights = rule.correction(rows, rule.judge(rows, refusing, refusing))[:, 0].double()
    recovered = (drafting * (1 - accepted))[:, None] * weights / weights.sum(-1, keepdim=True)
    return drafting * accepted + recovered.sum(0)


def accepted_chance(rule: Rule, p: Tensor, q: Tensor, allowed: Tensor | None = None) -> Tensor:
    """The chance, over its uniform, that each token is accepted where it is drafted: float64 [V].

    A token's uniforms fall into intervals that are accepted and intervals that are not. A grid of 256 finds the
    intervals, and bisection where each ends, to 1e-9. One narrower than 1/256 may be missed.
    """
    count, ends = len(p), torch.linspace(0, 1, 257, dtype=torch.float64).clamp_max(_BELOW_ONE)

    def accepts(tokens: Tensor, uniforms: Tensor) -> Tensor:
        rows = _rows(rule, p, q, tokens[:, None], allowed)
        return rule.judge(rows, uniforms[:, None], uniforms[:, None]).accepted[:, 0]

    tokens = torch.arange(count)
    grid = accepts(tokens.repeat_interleave(len(ends)), ends.repeat(count)).view(count, -1)
    both = (grid[:, 1:] & grid[:, :-1]).double() @ ends.diff()
    token, left = (grid[:, 1:] != grid[:, :-1]).nonzero(as_tuple=True)
    low, high, rising = ends[left].clone(), ends[left + 1].clone(), grid[token, left + 1]
    for _ in range(24 if len(token) else 0):
        middle = (low + high) / 2
        beyond = accepts(token, middle) == rising
        low, high = torch.where(beyond, low, middle), torch.where(beyond, middle, high)
    share = torch.where(rising, ends[left + 1] - high, low - ends[left])
    return both.index_add(0, token, share).div(_BELOW_ONE)


def accepted_share(rule: Rule, p: Tensor, q: Tensor) -> float:
    """The share of the tokens drafted from q that is accepted, exact as :func:`accepted_chance` is. p, q: [V]"""
    return (_drafting(rule, q).double() @ accepted_chance(rule, p, q)).item()


def reads_noise(rule: Rule) -> bool:
    """Whether a rule draws by chance beside its test, so that only draws tell what it writes."""
    tokens = torch.arange(len(P)).repeat(64)[:, None]
    rows, noise = _rows(rule, P, Q_FAR, tokens, None), torch.linspace(0.01, 0.99, len(tokens), dtype=torch.float64)
    uniforms = torch.full((len(tokens), 1), 0.999, dtype=torch.float64)
    accepted = [rule.judge(rows, uniforms, x[:, None]).accepted for x in (noise, noise.flip(0))]
    return not torch.equal(*accepted)


def _rows(rule: Rule, p: Tensor, q: Tensor, drafted: Tensor, allowed: Tensor | None) -> ScoredDraft:
    """p and q at the positions of the tokens ``drafted``, int64 [N,1]."""
    wide = [x.expand(len(drafted), 1, -1) for x in (p, q, _drafting(rule, q))]
    mask = None if allowed is None else allowed.expand(len(drafted), 1, -1)
    return ScoredDraft(drafted, wide[0], wide[2], wide[0], wide[1], mask, wide[0].log() + 5)


def _drafting(rule: Rule, q: Tensor) -> Tensor:
    """What the draft is drawn from: q, or its likeliest token. [V]"""
    return torch.zeros_like(q).index_fill(0, q.argmax(), 1) if rule.greedy_draft else q
