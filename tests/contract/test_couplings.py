"""Every verifier of several drafts writes as the target does, and accepts as often as the theory says."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fsd_core.decoding.verification import written_token
from fsd_core.ops.distributions import draw, draw_several
from fsd_core.rules import RULES, VERIFIERS, CouplingResult, Drafts, RecursiveRejection, Verifier
from fsd_core.testing import Q_FAR, Q_NEAR, P, check_rule, drafted, fit
from fsd_core.theory import Vector
from tests.tools.sizes import size

N = size(100_000, 400_000)


@pytest.mark.parametrize("kind", VERIFIERS)
def test_every_verifier_keeps_the_contract(kind: str) -> None:
    check_rule(VERIFIERS[kind], N)


class Fresh(RecursiveRejection):
    """Draws from p where every draft is refused, not from what is left of it."""

    def couple(self, drafts: Drafts, uniforms: Tensor) -> CouplingResult:
        return super().couple(drafts, uniforms)._replace(residual=drafts.target)


class Boaster(RecursiveRejection):
    """Says that it accepts more often than it does."""

    @classmethod
    def rate(cls, p: Vector, q: Vector, count: int, samples: int) -> float:
        return super().rate(p, q, count + 1, samples)


@pytest.mark.parametrize(("verifier", "message"), [(Fresh, "another distribution"), (Boaster, "and its rate is")])
def test_a_verifier_that_breaks_the_contract_is_told_of_it(
    monkeypatch: pytest.MonkeyPatch, verifier: type[Verifier], message: str
) -> None:
    monkeypatch.setitem(RULES._things, "rrs", verifier)
    monkeypatch.setitem(VERIFIERS._things, "rrs", verifier)
    with pytest.raises(AssertionError, match=message):
        check_rule(verifier, N)


def written(name: str, drafts: Drafts, uniforms: Tensor) -> Tensor:
    return written_token(VERIFIERS[name](), drafts, uniforms)


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
    drafts, uniforms = drafted(VERIFIERS["rrs"], Q_FAR, 2, N, seed=9)
    x, kept = drafts.tokens[:, 0], torch.minimum(P / Q_FAR.clamp_min(1e-9), torch.ones(()))
    fresh = torch.where(uniforms[:, 0] < kept[x], x, draw(drafts.target, uniforms[:, -1]))  # p, not the residual
    assert fit(fresh, P) < 1e-9
    apart, uniforms = drafted(VERIFIERS["rrs-without-replacement"], Q_FAR, 3, N, seed=9)
    assert fit(written("rrs", apart, uniforms), P) < 1e-9
    together, uniforms = drafted(VERIFIERS["rrs"], Q_FAR, 3, N, seed=9)
    assert fit(written("greedy-optimal", together, uniforms), P) > 1e-4  # its last draft is a sample of q: plain SD


def test_where_both_are_the_same_the_first_draft_is_written() -> None:
    drafts, uniforms = drafted(VERIFIERS["rrs"], P, 2, N, seed=4)
    for name in ("rrs", "k-seq", "naive"):
        assert torch.equal(written(name, drafts, uniforms), drafts.tokens[:, 0])
