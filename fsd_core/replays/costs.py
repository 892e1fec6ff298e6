"""Timing of a pair's passes on this machine, for the speeds that replay predicts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median

import torch

from fsd_core.config import Autoregressive, ChainTopology, DecodingConfig, SamplingConfig
from fsd_core.decoding.composition import compose
from fsd_core.decoding.proposal import DraftProposal
from fsd_core.decoding.session import DecodingSession
from fsd_core.decoding.verification import make_verification
from fsd_core.evaluation.roofline import PROMPT, WARM_UP, forward_ms
from fsd_core.models.loading import LoadedPair
from fsd_core.models.model_set import ModelSet
from fsd_core.ops.sampling import UniformStream
from fsd_core.ops.warping import warp
from fsd_core.replays.replay_trace import Costs
from fsd_core.rules import CHAIN, RULES, Rule, Speculative, Synthetic, Verifier
from fsd_core.topologies import DraftTree

ROUNDS = 40
"""default number of timed rounds"""
_REPEATS = 7
_ACCEPTED = 0.8
"""the share of drafted tokens that the timed rounds accept"""


def replayable() -> dict[str, type[Rule]]:
    """Return the rules that can replay a chain: rules for single drafts that are sampled as the settings say."""
    return {
        kind: rule
        for kind, rule in RULES.items()
        if not rule.baseline and CHAIN in rule.shapes and not issubclass(rule, Verifier)
    }


def measure_costs(pair: LoadedPair, sampling: SamplingConfig, longest: int, rounds: int = ROUNDS) -> Costs:
    """Time a pair's rounds, and the rules' arithmetic on rows of the pair's vocabulary.

    Rounds follow a prompt of random tokens, at some draft lengths from 1 to ``longest``.
    """
    lengths = sorted({1, longest, *(n for n in (2, 3, 5, 8, 12) if n < longest)})
    prompt = torch.randint(pair.target.vocabulary, (PROMPT,), generator=torch.Generator().manual_seed(0)).tolist()
    tokens = min(8192, pair.target.context - PROMPT - longest - 2)
    settings = {"sampling": sampling, "max_new_tokens": tokens}
    target_config = DecodingConfig(acceptance=Autoregressive(), **settings)
    drafted = {
        n: DecodingConfig(acceptance=Synthetic(probability=_ACCEPTED), topology=ChainTopology(length=n), **settings)
        for n in lengths
    }
    target_ms, *drafted_ms = _interleaved_ms(pair, [target_config, *drafted.values()], prompt, rounds)
    return Costs(
        target_alone=target_ms,
        rounds=dict(zip(lengths, drafted_ms, strict=True)),
        draft_pass=forward_ms(pair.draft, 1, rounds),
        rules=rule_costs(pair.target.vocabulary, longest, sampling, pair.target.device),
    )


def _interleaved_ms(
    pair: LoadedPair, configs: Sequence[DecodingConfig], prompt: Sequence[int], rounds: int
) -> list[float]:
    """Return the milliseconds of a round of each config.

    Every config runs one round before the next, so that a busy machine slows all alike.
    """
    models = ModelSet(pair.target, pair.draft)
    spent: list[list[float]] = [[] for _ in configs]
    with ExitStack() as stack:
        sessions = [
            stack.enter_context(DecodingSession(compose(models, config), prompt, 0, frozenset())) for config in configs
        ]
        for _ in range(WARM_UP + rounds):
            for session, times in zip(sessions, spent, strict=True):
                if session.stop_reason is None:
                    times.append(1000 * session.run_round().seconds)
    return [median(times[WARM_UP:] or times) for times in spent]


@torch.inference_mode()
def rule_costs(vocabulary: int, length: int, sampling: SamplingConfig, device: torch.device) -> dict[str, float]:
    """Return by how many milliseconds each rule's verification of a chain takes longer than `speculative`'s.

    Each is a median over turns that time all rules. A negative difference counts as 0.
    """
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(1, length + 1, vocabulary, generator=generator)).to(device)
    draft_logits = logits[:, :length] + torch.randn(1, length, vocabulary, generator=generator).to(device)
    warped, raw = warp(draft_logits, sampling), draft_logits.softmax(-1)
    tree = DraftTree(warped.argmax(-1), length, warped, raw)
    proposal = DraftProposal(tree, length, [length], [length], [10])
    rules = {kind: make_verification(CHAIN, rule.checked(), sampling) for kind, rule in replayable().items()}
    spent: dict[str, list[float]] = {kind: [] for kind in rules}
    for repeat in range(_REPEATS + 1):
        for kind, verification in rules.items():
            start = time.perf_counter()
            verification.verify(proposal, logits, [UniformStream(repeat, device)]).count.tolist()
            spent[kind].append(1000 * (time.perf_counter() - start))
    exact = spent["speculative"]
    return {kind: max(0.0, _extra_ms(times, exact)) for kind, times in spent.items() if kind != Speculative().kind}


def _extra_ms(times: Sequence[float], exact: Sequence[float]) -> float:
    return median(rule_ms - strict_ms for rule_ms, strict_ms in zip(times[1:], exact[1:], strict=True))
