"""Every verifier of several drafts writes as the target does, and accepts as often as the theory says."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fsd_core.acceptance.multi_draft import COUPLINGS, Drafts, get_verifier
from fsd_core.errors import UnknownName
from fsd_core.ops.sampling import draw, draw_several
from fsd_core.testing.acceptance import Q_FAR, Q_NEAR, P, fit
from fsd_core.theory import VERIFIERS, acceptance_rate, optimal_acceptance

N = 400_000
CASES = [
    (name, count)
    for name in COUPLINGS
    for count in ((2,) if name == "spec-hub" else (1, 2, 3))
]  # fmt: skip


def drafted(name: str, q: Tensor, count: int, seed: int) -> tuple[Drafts, Tensor]:
    """N positions with drafts of the kind that a verifier is for, and uniforms for it."""
    u = torch.rand(N, 2 * count + 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    sampling = VERIFIERS[name].sampling
    tokens = draw_several(q.expand(N, -1), u[:, :count], sampling)
    if sampling == "greedy":
        q = q.scatter(0, q.topk(count - 1).indices, 0)
        q = q / q.sum()
    return Drafts(tokens, torch.ones_like(tokens).bool(), P.expand(N, -1), q.expand(N, -1)), u[:, count:]


def test_every_verifier_of_the_theory_is_there() -> None:
    assert list(COUPLINGS) == list(VERIFIERS)
    with pytest.raises(UnknownName, match="expected one of rrs, "):
        get_verifier("best")


@pytest.mark.parametrize(("name", "count"), CASES)
@pytest.mark.parametrize("q", [Q_NEAR, Q_FAR], ids=["near", "far"])
def test_a_verifier_is_lossless_and_accepts_as_often_as_its_formula_says(name: str, count: int, q: Tensor) -> None:
    drafts, uniforms = drafted(name, q, count, seed=count)
    written = get_verifier(name)(drafts, uniforms)
    assert fit(written, P) > 1e-4
    rate = (written[:, None] == drafts.tokens).any(1).double().mean().item()
    formula = acceptance_rate(name, P.double() / P.double().sum(), q.double() / q.double().sum(), count)
    assert rate == pytest.approx(formula, abs=4.5 * (0.25 / N) ** 0.5)
    assert rate < optimal_acceptance(P, q, count, VERIFIERS[name].sampling) + 0.004


@pytest.mark.parametrize("q", [Q_NEAR, Q_FAR], ids=["near", "far"])
def test_drafts_are_drawn_as_their_name_says(q: Tensor) -> None:
    u = torch.rand(N, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    wide = q.expand(N, -1)
    for sampling in ("with_replacement", "without_replacement"):
        assert fit(draw_several(wide, u, sampling)[:, 0], q) > 1e-4
    apart = draw_several(wide, u, "without_replacement")
    assert (apart[:, 0] != apart[:, 1]).all()
    first = int(q.argmax())
    behind = apart[apart[:, 0] == first][:, 1]
    assert fit(behind, q.index_fill(0, torch.tensor(first), 0)) > 1e-4
    greedy = draw_several(wide, u, "greedy")
    assert (greedy[:, 0] == first).all()
    assert fit(greedy[:, 1], q.index_fill(0, torch.tensor(first), 0)) > 1e-4


def test_the_negative_controls_are_told_from_the_target() -> None:
    """The same test at the same size fails where the residual is wrong, or drafts are of another kind."""
    drafts, uniforms = drafted("rrs", Q_FAR, 2, seed=9)
    x, kept = drafts.tokens[:, 0], torch.minimum(P / Q_FAR.clamp_min(1e-9), torch.ones(()))
    fresh = torch.where(uniforms[:, 0] < kept[x], x, draw(drafts.target, uniforms[:, -1]))  # p, not the residual
    assert fit(fresh, P) < 1e-9
    apart, uniforms = drafted("rrs-without-replacement", Q_FAR, 3, seed=9)
    assert fit(get_verifier("rrs")(apart, uniforms), P) < 1e-9
    together, uniforms = drafted("rrs", Q_FAR, 3, seed=9)
    assert (
        fit(get_verifier("greedy-optimal")(together, uniforms), P) > 1e-4
    )  # its last draft is a sample of q: plain SD


def test_where_both_are_the_same_the_first_draft_is_written() -> None:
    drafts, uniforms = drafted("rrs", P, 2, seed=4)
    for name in ("rrs", "k-seq", "naive"):
        assert torch.equal(get_verifier(name)(drafts, uniforms), drafts.tokens[:, 0])
