"""Further lossy rules, each with its formula and source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from fsd_core.frozen import option
from fsd_core.rules.base import CHAIN, AcceptanceResult, Knob, Rule, Truncation, passes, residual, strictly
from fsd_core.rules.fuzzy import GeneralForm, head, head_truncation, within

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.ops.distributions import ScoredDraft


class Cactus(Rule):
    """`cactus`: accept iff u ≤ h/q(x) with h = min(1, p(x) + √(2δ·p(x)·(1−p(x)))) (Hao, Mou 2026, arXiv 2604.04987).

    h is p(x) raised until the divergence from p is about δ. A rejected token is resampled from p with p(x) set to h and
    the others scaled by (1−h)/(1−p(x)), minus q. This depends on x, so the output has no distribution of the general
    form.
    """

    title, symbol, shapes = "Cactus", "asterisk-open", (CHAIN,)
    explanation = "Raises the target's probability of the drafted token as far as a budget allows, then tests strictly."
    greedy_note = "At temperature 0 it forgives nothing and is exact SD."
    knob = Knob("cactus_budget", (0.1, 0.25, 1.0, 10.0), strict=0.0)
    needs_distribution = True
    kind: Literal["cactus"] = "cactus"
    cactus_budget: float = option(
        0.25, "Cactus budget", "The divergence δ that raises a drafted token; 0 is exact SD", plural="Cactus budgets",
        ge=0, allow_inf_nan=False,
    )  # fmt: skip

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        accepted = passes(self._raised(rows), rows.of_token(rows.draft), uniforms)
        return AcceptanceResult(accepted, strictly(rows, uniforms), rows.divergence("js", noise))

    def _raised(self, rows: ScoredDraft) -> Tensor:
        """Return h, [B,R]."""
        p = rows.of_token(rows.target)
        return (p + (2 * self.cactus_budget * p * (1 - p).clamp_min(0)).sqrt()).clamp_max(1)

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        raised, p = self._raised(row)[..., None], row.of_token(row.target)[..., None]
        scaled = row.target * ((1 - raised) / (1 - p).clamp_min(1e-30))
        return residual(scaled.scatter(-1, row.tokens[..., None], raised), row.draft)

    def label_parts(self, knob: str) -> list[str]:
        return [f"δ {knob.removeprefix('≤ ')}".strip()]


Trigger = Literal["chow", "diff", "opt", "entropy"]


class Cascade(GeneralForm):
    """`cascade`: π = q, or p where the trigger defers to the target (Narasimhan et al. 2024, arXiv 2405.19261).

    With the deferral cost α, the trigger defers iff

    - ``chow``: max q < 1 − α;
    - ``diff``: max q < max p − α;
    - ``opt``: max q < max p − α·TV(p,q);
    - ``entropy``: H(q) > H(p) + α·TV(p,q), in nats.

    Maxima and entropies are of the raw distributions; TV is of the sampled ones. On a tree the likeliest child is
    written unless the trigger defers.
    """

    title, symbol = "Cascade", "star"
    explanation = "Lets the draft write where it is sure enough, compared with the target, and is exact SD elsewhere."
    note = "It can lengthen answers: at a cost of 0.05 by opt, its authors' rule made some 2.5 times as long."
    knob = Knob("deferral_cost", (-0.1, 0.0, 0.05, 0.2))
    needs_distribution = True
    kind: Literal["cascade"] = "cascade"
    trigger: Trigger = option("opt", "Trigger", "What decides whether a position is left to the target")
    deferral_cost: float | None = option(
        0.0, "Deferral cost", "How much surer the target must be to be asked; off is exact SD", plural="Deferral costs",
        allow_inf_nan=False,
    )  # fmt: skip

    def distribution(self, rows: ScoredDraft, divergence: Tensor) -> Tensor:
        cost = self.deferral_cost
        if cost is None:
            return rows.target
        return rows.target.where(self._defers(rows, cost)[..., None], rows.draft)

    def _defers(self, rows: ScoredDraft, cost: float) -> Tensor:
        """Return whether each position is left to the target, bool [B,R]."""
        p, q = rows.target_raw, rows.draft_raw
        if self.trigger == "chow":
            return q.amax(-1) < 1 - cost
        if self.trigger == "diff":
            return q.amax(-1) < p.amax(-1) - cost
        weighted_tv = cost * rows.variation
        if self.trigger == "opt":
            return q.amax(-1) < p.amax(-1) - weighted_tv
        target_entropy, draft_entropy = rows.raw_entropies
        return draft_entropy > target_entropy + weighted_tv

    def label_parts(self, knob: str) -> list[str]:
        return [self.trigger, f"cost {knob.removeprefix('≤ ')}".strip()]


class Ears(Rule):
    """`ears`: accept iff p(x)/q(x) ≥ u − tol·(1 − max p) (Sun et al. 2025, arXiv 2512.13194).

    A rejected token is resampled from norm((p−q)₊), as in strict decoding. As published, it may accept a token that
    top-k or top-p excludes if the target is unsure.
    """

    title, symbol, shapes = "EARS", "bowtie", (CHAIN,)
    explanation = "The strict test, eased in proportion to how unsure the target is of its likeliest token."
    note = "It can keep a token that top-k or top-p excludes."
    greedy_note = "At temperature 0 it forgives nothing and is exact SD."
    knob = Knob("tolerance", (0.1, 0.2, 0.5), strict=0.0)
    needs_distribution = True
    kind: Literal["ears"] = "ears"
    tolerance: float = option(
        0.2, "Tolerance", "How far the test is eased where the target is unsure; 0 is exact SD", plural="Tolerances",
        ge=0, le=1,
    )  # fmt: skip

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        eased = uniforms - self.tolerance * (1 - rows.target.amax(-1))
        accepted = passes(rows.of_token(rows.target), rows.of_token(rows.draft), eased)
        return AcceptanceResult(accepted, strictly(rows, uniforms), rows.divergence("js", noise))

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        return residual(row.target, row.draft)


class Ensemble(GeneralForm):
    """`ensemble`: π = w·p + (1−w)·q; at temperature 0 the likeliest token of the mixture of the raw distributions.

    Acceptance at one position: 1 − w·TV(p,q). No other rule accepts as much at the same total variation from p
    (arXiv 2604.07622). transformers calls w `assistant_ensemble_weight`.
    """

    title, symbol, shapes = "Ensemble", "hexagon", (CHAIN,)
    explanation = "Writes every token from a fixed mixture of both models, in which the target has the given weight."
    knob = Knob("target_weight", (0.95, 0.9, 0.8, 0.6), strict=1.0, rising=False)
    needs_distribution = True
    kind: Literal["ensemble"] = "ensemble"
    target_weight: float = option(
        0.9, "Target weight", "Weight of the target in the mixture; 1 is exact SD", plural="Target weights",
        ge=0, le=1,
    )  # fmt: skip

    def distribution(self, rows: ScoredDraft, divergence: Tensor) -> Tensor:
        w = self.target_weight
        if w == 1:
            return rows.target
        if not rows.greedy:
            return w * rows.target + (1 - w) * rows.draft
        likeliest = (w * rows.target_raw + (1 - w) * rows.draft_raw).argmax(-1, keepdim=True)
        return rows.target.new_zeros(rows.target.shape).scatter(-1, likeliest, 1)


def _head_width() -> Any:
    """Return the field of A's width."""
    return option(
        0.2, "Head width", "How far below the likeliest token's probability a kept token may be, as a share of it",
        plural="Head widths", ge=0, le=1,
    )  # fmt: skip


class Head(GeneralForm):
    """`head`: π = q·1_A + (1−q(A))·p, the rule TokenV3 of speculative cascades (arXiv 2405.19261).

    A is computed from p as it is sampled, or from the raw p at temperature 0. At a width of 0 the target's likeliest
    token is still accepted whenever it is drafted, which is lossless at temperature 0 only; ``off`` is always lossless.
    A wider A does not always accept more, because it takes from p's share.
    """

    title, symbol, shapes = "Head set", "pentagon", (CHAIN,)
    explanation = (
        "Writes from the draft as far as its tokens are nearly the target's likeliest, and from the target else."
    )
    knob = Knob("head_width", (0.0, 0.35, 0.8), monotone=False)
    needs_distribution = True
    kind: Literal["head"] = "head"
    head_width: float | None = _head_width()

    @property
    def truncation(self) -> Truncation:
        return head_truncation(self.head_width)

    def distribution(self, rows: ScoredDraft, divergence: Tensor) -> Tensor:
        return rows.target if self.head_width is None else within(rows, head(rows, self.head_width))


class HeadStrict(Rule):
    """`head-strict`: accept x if it is in A, else by the strict test; resample a rejected token as in strict decoding.

    It is resampled from norm((p−q)₊), so the output has no distribution of the general form. Works for copied tokens
    too.
    """

    title, symbol = "Head, else strict", "octagon"
    explanation = "Keeps a token that is nearly the target's likeliest; other tokens must pass the strict test."
    knob = Knob("head_width", (0.1, 0.15, 0.2, 0.5))
    kind: Literal["head-strict"] = "head-strict"
    head_width: float | None = _head_width()

    @property
    def truncation(self) -> Truncation:
        return head_truncation(self.head_width)

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        strict = strictly(rows, uniforms)
        accepted = strict if self.head_width is None else strict | rows.of_token(head(rows, self.head_width))
        return AcceptanceResult(accepted, strict, rows.divergence("js", noise))

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        return residual(row.target, row.draft)


class Lenience(Rule):
    """`lenience`: accept iff u ≤ p(x)/((1−α)·q(x)) (Leviathan et al. 2023, appendix A.5).

    A rejected token is resampled from norm((p − (1−α)·q)₊). With ``stock_residual`` it is resampled from norm((p−q)₊),
    as in engines that change only the test. No token is written with more than 1/(1−α) of its probability under p.
    """

    title, symbol, shapes = "Lenience", "triangle-left", (CHAIN,)
    explanation = "The strict test with the draft's probability lowered by a share, so that more of its tokens pass."
    greedy_note = "At temperature 0 it forgives nothing and is exact SD."
    knob = Knob("lenience", (0.3, 0.7, 0.95), strict=0.0)
    needs_distribution = True
    kind: Literal["lenience"] = "lenience"
    lenience: float = option(
        0.3, "Lenience", "Share by which the draft's probability is lowered; 0 is exact SD", plural="Leniences",
        ge=0, lt=1,
    )  # fmt: skip
    stock_residual: bool = option(
        False, "Stock residual", "Replace a rejected token as strict decoding does, whatever the lenience is"
    )

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        lowered = (1 - self.lenience) * rows.of_token(rows.draft)
        accepted = passes(rows.of_token(rows.target), lowered, uniforms)
        return AcceptanceResult(accepted, strictly(rows, uniforms), rows.divergence("js", noise))

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        return residual(row.target, row.draft if self.stock_residual else (1 - self.lenience) * row.draft)

    def label_parts(self, knob: str) -> list[str]:
        return [knob.removeprefix("≤ "), *(["stock residual"] if self.stock_residual else [])]


class Lookahead(Rule):
    """`lookahead`: a token that fails the strict test is accepted iff the target was unsure and the next tokens pass.

    Training-free loosely speculative decoding, FLy (Li et al. 2025, arXiv 2511.22972). Unsure means that the entropy of
    the target's three likeliest tokens, normalised, is at least θ nats (ln 3 at most). The next W drafted tokens must
    all exist and pass the strict test. It needs long drafts, γ 15 to 25. A rejected token is resampled as in strict
    decoding.
    """

    title, symbol, shapes = "Lookahead", "arrow-right", (CHAIN,)
    explanation = (
        "Forgives a token that the target would not have written, if it was unsure and agrees with the next ones."
    )
    note = "It wants long drafts, of 15 to 25 tokens: a token can be forgiven only where enough tokens follow it."
    knob = Knob("lookahead_entropy", (1.0, 0.6, 0.3, 0.1), rising=False)
    judges_together = True
    kind: Literal["lookahead"] = "lookahead"
    lookahead_entropy: float | None = option(
        0.3, "Lookahead entropy", "Least entropy of the target's three likeliest tokens; off is exact SD",
        unit="nats", plural="Lookahead entropies", ge=0,
    )  # fmt: skip
    lookahead_window: int = option(6, "Lookahead window", "How many of the next drafted tokens must pass", ge=1)

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        strict = strictly(rows, uniforms)
        accepted = (
            strict if self.lookahead_entropy is None else strict | (self._unsure(rows) & self._followed(rows, strict))
        )
        return AcceptanceResult(accepted, strict, rows.divergence("js", noise))

    def _unsure(self, rows: ScoredDraft) -> Tensor:
        """Return whether the target is unsure at each position, bool [B,R]."""
        p = rows.graded_target
        top = p.topk(min(3, p.shape[-1]), -1).values
        top = top / top.sum(-1, keepdim=True)
        return -top.xlogy(top).sum(-1) >= (self.lookahead_entropy or 0)

    def _followed(self, rows: ScoredDraft, strict: Tensor) -> Tensor:
        """Return whether the next W tokens exist and pass, bool [B,R]."""
        window, passing = self.lookahead_window, strict.long()
        if rows.lengths is not None:
            passing = passing * (passing.new_ones(passing.shape).cumsum(-1) <= rows.lengths[:, None])
        passed = passing.cumsum(-1)
        later = passed.roll(-window, -1)
        exists = passing.new_ones(passing.shape).cumsum(-1) + window <= passing.shape[-1]
        return exists & (later - passed == window)

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        return residual(row.target, row.draft)

    def label_parts(self, knob: str) -> list[str]:
        return [f"θ {knob.removeprefix('≤ ')}".strip(), f"W {self.lookahead_window}"]


class Margin(Rule):
    """`margin`: accept the target's likeliest token, and its second iff z₂/z₁ > θ; else a sample of p.

    Margin-aware verification, MARS (Song et al. 2026, arXiv 2601.15498). z are the target's raw logits, and z₁ > 0 is
    required. Shifting all logits changes their ratio and nothing else, so a value of θ is meaningful for one model
    only. At temperature 0, θ = 1 is exact SD; with sampling no θ is.
    """

    title, symbol = "Margin", "diamond-cross"
    explanation = "Keeps the target's likeliest token, and its second where the two logits are nearly equal."
    note = "It goes by a ratio of logits: a value that suits one target says nothing about another."
    knob = Knob("logit_ratio", (0.98, 0.95, 0.9, 0.8), is_off=False, rising=False)
    kind: Literal["margin"] = "margin"
    logit_ratio: float = option(
        0.9, "Logit ratio", "The second token is kept where its logit is more than this share of the first",
        plural="Logit ratios", gt=0, le=1,
    )  # fmt: skip

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        assert rows.logits is not None
        first, second = rows.logits.topk(2, -1).values.unbind(-1)
        least = first.where((first <= 0) | (second <= self.logit_ratio * first), second)
        accepted = rows.of_token(rows.logits) >= least
        return AcceptanceResult(accepted, strictly(rows, uniforms), rows.divergence("js", noise))

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        return row.target


class Mentored(GeneralForm):
    """`mentored`: among all π with KL(p‖π) ≤ D, one that accepts the most (Tran-Thien 2023, "mentored decoding").

    π(v) = q(v), but at least p(v)/b and at most p(v)/a, with a ≤ 1 ≤ b such that π sums to one and KL(p‖π) = D. If
    KL(p‖q) ≤ D, π = q. Its author states it as an acceptance min(1, p/(a·q)) with a residual (p/b − q)₊.
    """

    title, symbol, shapes = "Mentored", "diamond-tall", (CHAIN,)
    explanation = "Keeps as many tokens as it can while what is written stays within a KL divergence of the target."
    greedy_note = "At temperature 0 it forgives nothing and is exact SD."
    knob = Knob("kl_budget", (0.1, 0.2, 0.3, 0.5), strict=0.0)
    needs_distribution = True
    kind: Literal["mentored"] = "mentored"
    kl_budget: float = option(
        0.2, "KL budget", "Largest KL divergence of what is written from the target; 0 is exact SD",
        unit="nats", plural="KL budgets", ge=0,
    )  # fmt: skip

    def distribution(self, rows: ScoredDraft, divergence: Tensor) -> Tensor:
        return rows.mentored(self.kl_budget) if self.kl_budget else rows.target

    def label_parts(self, knob: str) -> list[str]:
        return [f"KL {knob}"]


class ThresholdAccept(Rule):
    """`threshold-accept`: accept x iff u < p(x)/t_acc, or p(x) ≥ t_single.

    SGLang's `--speculative-accept-threshold-acc` and `-single`. As in SGLang, the draft proposes its likeliest tokens,
    so q = 1 on x. A rejected token is resampled from p without x. At 1 and 1 it is strict decoding of such drafts.
    """

    title, symbol = "Threshold accept", "square-cross"
    explanation = (
        "Keeps the draft's likeliest token with a raised probability, and always where the target gives it enough."
    )
    greedy_note = "At temperature 0 it forgives nothing and is exact SD."
    knob = Knob("threshold_acc", (0.9, 0.7, 0.5, 0.3), strict=1.0, rising=False)
    greedy_draft = True
    kind: Literal["threshold-accept"] = "threshold-accept"
    threshold_acc: float = option(
        0.7, "Accept threshold", "Divides the target's probability of a drafted token; 1 is exact SD",
        plural="Accept thresholds", gt=0, le=1,
    )  # fmt: skip
    threshold_single: float = option(
        1.0, "Threshold single", "A drafted token of at least this probability is always kept; 1 is never", gt=0, le=1
    )

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        p = rows.of_token(rows.target)
        accepted = (uniforms * self.threshold_acc < p) | (p >= self.threshold_single)
        return AcceptanceResult(accepted, strictly(rows, uniforms), rows.divergence("js", noise))

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        return residual(row.target, row.draft)

    def label_parts(self, knob: str) -> list[str]:
        single = [] if self.threshold_single == 1 else [f"single {self.threshold_single:g}"]
        return [f"acc {knob.removeprefix('≤ ')}".strip(), *single]


class TopNDelta(Rule):
    """`top-n-delta`: accept x iff it is among the target's n likeliest tokens and p(x) ≥ max p − δ; else a sample of p.

    TensorRT-LLM's relaxed acceptance (`relaxed_topk`, `relaxed_delta`). p is the sampled distribution. At temperature 0
    it is the raw one, and δ = 0 is exact SD. With sampling no δ is.
    """

    title, symbol = "Top-n, delta", "star-square"
    explanation = (
        "Keeps a drafted token that is among the target's n likeliest and not much less likely than the first."
    )
    knob = Knob("relaxed_delta", (0.1, 0.3, 0.6, 0.9), is_off=False)
    kind: Literal["top-n-delta"] = "top-n-delta"
    relaxed_delta: float = option(
        0.6, "Relaxed delta", "How far below the likeliest token's probability a kept token may be",
        plural="Relaxed deltas", ge=0, le=1,
    )  # fmt: skip
    relaxed_topk: int = option(10, "Relaxed top", "How many of the target's likeliest tokens may be kept", ge=1)

    @property
    def truncation(self) -> Truncation:
        """The n likeliest tokens. δ, which no sampling option expresses, keeps fewer of them."""
        return Truncation(top_k=self.relaxed_topk)

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        p = rows.graded_target
        likeliest = p.topk(min(self.relaxed_topk, p.shape[-1]), -1).values
        least = (likeliest[..., 0] - self.relaxed_delta).maximum(likeliest[..., -1])
        return AcceptanceResult(rows.of_token(p) >= least, strictly(rows, uniforms), rows.divergence("js", noise))

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        return row.target

    def label_parts(self, knob: str) -> list[str]:
        return [f"n {self.relaxed_topk}", f"δ {knob.removeprefix('≤ ')}".strip()]


class Typical(Rule):
    """`typical`: accept x iff p(x) > min(ε, δ·e^(−H(p))); else a sample of p (Medusa, Cai et al. 2024, arXiv
    2401.10774).

    p is the sampled distribution, at temperature 0 the raw one. The draft's probabilities are ignored, so copied tokens
    are judged as well. No value of ε makes it strict decoding.
    """

    title, symbol = "Typical", "hourglass"
    explanation = "Keeps a drafted token that the target finds likely enough, the less likely the more unsure it is."
    knob = Knob("posterior_threshold", (0.5, 0.3, 0.09, 0.03), is_off=False, rising=False)
    kind: Literal["typical"] = "typical"
    posterior_threshold: float = option(
        0.09, "Posterior threshold", "The ε of typical acceptance: the probability that always suffices",
        plural="Posterior thresholds", gt=0, le=1,
    )  # fmt: skip
    posterior_alpha: float = option(
        0.3, "Posterior alpha", "The δ of typical acceptance: what suffices falls by this and the entropy", gt=0, le=1
    )

    @property
    def truncation(self) -> None:
        """``None``: no sampling option cuts off by entropy."""

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        p = rows.graded_target
        enough = (self.posterior_alpha * (-rows.graded_entropy).exp()).clamp_max(self.posterior_threshold)
        return AcceptanceResult(rows.of_token(p) > enough, strictly(rows, uniforms), rows.divergence("js", noise))

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        return row.target

    def label_parts(self, knob: str) -> list[str]:
        return [f"ε {knob.removeprefix('≤ ')}".strip(), f"δ {self.posterior_alpha:g}"]
