"""Contracts of rules, verifiers, drafters and topologies, for built-in ones and for plug-ins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise, product
from math import prod
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import torch
from scipy.stats import chisquare
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from fsd_core.config import (
    CHAIN,
    TREE,
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    DrafterSettings,
    DraftModelDrafter,
    DynamicTreeTopology,
    Frozen,
    FuzzyReducible,
    MultiDraftTopology,
    PromptLookupDrafter,
    SamplingConfig,
    SearchTreeTopology,
    SettingConfig,
    TopologySettings,
)
from fsd_core.decoding.decoder import DecodingSession, PairDecoder
from fsd_core.decoding.loop import Method, compose
from fsd_core.decoding.verification import written_token
from fsd_core.frozen import kind_of
from fsd_core.models.draft_weights import EagleHead, Generation
from fsd_core.models.eagle_files import new_head
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import LoadedPair, ModelSet, make_pair
from fsd_core.models.sources import PairSpec
from fsd_core.ops.distributions import DraftDistribution, ScoredDraft, draw, draw_several, js, likeliest
from fsd_core.rules import RULES, Drafts, Fuzzy, KSeq, Rule, Speculative, Verifier
from fsd_core.rules.rates import acceptance_rate
from fsd_core.theory import optimal_acceptance

END = "<|end|>"
SAMPLED_FSD = DecodingConfig(
    acceptance=FuzzyReducible(threshold=0.05),
    topology=ChainTopology(length=3),
    sampling=SamplingConfig(temperature=1.0),
    max_new_tokens=10,
)
"""ten tokens by a fuzzy rule at temperature 1"""
Model = TypeVar("Model", bound=PreTrainedModel)


def toy_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token per byte and an end token, which has the last id."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate([*alphabet, END])}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([END])
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token=END, pad_token=END)


def toy_model(vocabulary: int, seed: int, layers: int = 2, hidden: int = 32, context: int = 256) -> LlamaForCausalLM:
    """Return a random Llama in float32. Its logits are spread wide, so some tokens are clearly likelier than others."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(LlamaConfig(**_shape(vocabulary, layers, hidden, context)))
    return model.eval()


def _shape(vocabulary: int, layers: int, hidden: int, context: int) -> dict[str, Any]:
    """Return the fields of a toy's configuration. Its last token ends a text."""
    return {
        "vocab_size": vocabulary, "hidden_size": hidden, "intermediate_size": 2 * hidden, "num_hidden_layers": layers,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": context,
        "initializer_range": 0.15, "tie_word_embeddings": False, "bos_token_id": None,
        "eos_token_id": vocabulary - 1, "pad_token_id": vocabulary - 1,
    }  # fmt: skip


def related(model: Model, noise: float, seed: int) -> Model:
    """Return a copy whose matrices are disturbed by ``noise`` of their standard deviation: a draft that mostly
    agrees."""
    generator = torch.Generator().manual_seed(seed)
    copy = deepcopy(model)
    with torch.no_grad():
        for weight in copy.parameters():
            if weight.ndim == 2:
                weight += noise * weight.std() * torch.randn(weight.shape, generator=generator).to(weight.device)
    return copy.eval()


TOY = PairSpec("toy", "Toy pair", "Random weights.", Path("toy/target"), Path("toy/draft"))


def toy_pair(noise: float = 0.3, seed: int = 0) -> LoadedPair:
    """Return a random target with a disturbed copy of it as draft."""
    tokenizer = toy_tokenizer()
    target = toy_model(len(tokenizer), seed)
    return make_pair(TOY, tokenizer, target, related(target, noise, seed + 1))


def in_memory(target: LanguageModel, draft: LanguageModel) -> LoadedPair:
    """Return two models as a pair, for prompts of token ids."""
    return LoadedPair(TOY, toy_tokenizer(), target, draft, str(target.device), "float32")


def save_toy_pair(folder: Path, noise: float = 0.3, seed: int = 0) -> str:
    """Write a toy pair under ``folder`` and return the name that loads it."""
    pair = toy_pair(noise, seed)
    for role, model in (("target", pair.target), ("draft", pair.draft)):
        model.module.save_pretrained(folder / role)
        pair.tokenizer.save_pretrained(folder / role)
    return f"path:{folder}"


def toy_head(
    target: PreTrainedModel, generation: Generation = 1, seed: int = 0, covered: int | None = None
) -> EagleHead:
    """Return a random EAGLE head for a random target. ``covered``: number of tokens it can draft, all by default."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return new_head(target, generation, None if covered is None else torch.arange(covered)).for_drafting()


P = torch.tensor([0.30, 0.25, 0.15, 0.12, 0.08, 0.05, 0.05, 0.00])
Q_NEAR = torch.tensor([0.25, 0.30, 0.17, 0.10, 0.08, 0.05, 0.05, 0.00])
Q_FAR = torch.tensor([0.05, 0.05, 0.10, 0.10, 0.20, 0.20, 0.00, 0.30])


def require(holds: bool, sentence: str) -> None:
    """Raise ``AssertionError`` with the sentence unless it holds."""
    if not holds:
        raise AssertionError(sentence)


def fit(emitted: Tensor, distribution: Tensor) -> float:
    """Return the p-value of a χ² test that ``emitted`` [N] follows ``distribution`` [V]; 0 with impossible tokens."""
    counts = torch.bincount(emitted, minlength=distribution.numel()).double()
    possible = distribution > 0
    if counts[~possible].any():
        return 0.0
    if possible.sum() == 1:
        return 1.0
    expected = distribution[possible].double() / distribution.double().sum() * counts.sum()
    return float(chisquare(counts[possible].numpy(), expected.numpy()).pvalue)


def drafted(verifier: type[Verifier], q: Tensor, count: int, positions: int, seed: int) -> tuple[Drafts, Tensor]:
    """Return positions with p = ``P``, drafts of q sampled as the verifier requires, and uniforms for it. q: [V]"""
    u = torch.rand(positions, 2 * count + 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    tokens = draw_several(q.expand(positions, -1), u[:, :count], verifier.sampling)
    if verifier.sampling == "greedy":
        q = q.scatter(0, likeliest(q[None], count - 1)[0], 0)
        q = q / q.sum()
    expanded = [rows.expand(positions, -1) for rows in (P, q)]
    return Drafts(tokens.clamp_min(0), tokens >= 0, expanded[0], expanded[1]), u[:, count:]


def check_verifier(verifier: type[Verifier], positions: int = 400_000) -> None:
    """Raise ``AssertionError`` with a sentence if a verifier violates the contract.

    With 1, 2 and 3 drafts, or as many as it couples, it writes tokens of the target's distribution. A χ² test over
    ``positions`` positions checks this. It accepts as often as ``rate`` says, which is no more often than the optimum.
    """
    kind = kind_of(verifier)
    exact_p = P.double() / P.double().sum()
    for count in (1, 2, 3) if verifier.drafts is None else (verifier.drafts,):
        for q in (Q_NEAR, Q_FAR):
            drafts, uniforms = drafted(verifier, q, count, positions, seed=count)
            written = written_token(verifier.checked(), drafts, uniforms)
            require(fit(written, P) > 1e-6, f"The verifier '{kind}' writes another distribution than the target's.")
            accepted = (written[:, None] == drafts.tokens).any(1).double().mean().item()
            rate = acceptance_rate(kind, exact_p, q.double() / q.double().sum(), count)
            near = abs(accepted - rate) < 4.5 * (0.25 / positions) ** 0.5
            require(
                near, f"The verifier '{kind}' accepts {accepted:.4f} of {count} drafts, and its rate is {rate:.4f}."
            )
            best = optimal_acceptance(exact_p, q.double() / q.double().sum(), count, verifier.sampling)
            require(rate < best + 1e-9, f"The rate of '{kind}' is {rate:.4f}, beyond the optimum {best:.4f}.")


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
    keeps the contract of :func:`check_verifier`. A plug-in's author calls this in a test of
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

    Texts are decoded in batches if possible, which does not change them (``tests/contract/test_loop.py``).
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
