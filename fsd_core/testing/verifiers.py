"""Contract of a multi-draft verifier: :func:`check_verifier`, for built-in verifiers and for plug-ins."""

from __future__ import annotations

import torch
from torch import Tensor

from fsd_core.decoding.verification.nodes import written_token
from fsd_core.frozen import kind_of
from fsd_core.ops.sampling import draw_several, likeliest
from fsd_core.rules import Drafts, Verifier
from fsd_core.rules.rates import acceptance_rate
from fsd_core.testing.fit import Q_FAR, Q_NEAR, P, fit, require
from fsd_core.theory import optimal_acceptance


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
