"""What a pair's passes take here, for the speeds that replay predicts."""

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
"""that are timed, where nobody says how many"""
_TURNS = 7
_KEEPS = 0.8
"""the share of tokens that the timed rounds keep"""


def replayable() -> dict[str, type[Rule]]:
    """The rules that a chain can be replayed by: of single drafts, drawn as the settings say."""
    return {
        kind: rule
        for kind, rule in RULES.items()
        if not rule.baseline and CHAIN in rule.shapes and not issubclass(rule, Verifier)
    }


def measure_costs(pair: LoadedPair, sampling: SamplingConfig, longest: int, rounds: int = ROUNDS) -> Costs:
    """Times rounds behind a prompt of random tokens at draft lengths of 1 to ``longest``, some of them, and the rules'
    arithmetic on rows of the pair's vocabulary."""
    lengths = sorted({1, longest, *(n for n in (2, 3, 5, 8, 12) if n < longest)})
    prompt = torch.randint(pair.target.vocabulary, (PROMPT,), generator=torch.Generator().manual_seed(0)).tolist()
    tokens = min(8192, pair.target.context - PROMPT - longest - 2)
    settings = {"sampling": sampling, "max_new_tokens": tokens}
    alone = DecodingConfig(acceptance=Autoregressive(), **settings)
    drafted = {
        n: DecodingConfig(acceptance=Synthetic(probability=_KEEPS), topology=ChainTopology(length=n), **settings)
        for n in lengths
    }
    own, *others = _in_turns(pair, [alone, *drafted.values()], prompt, rounds)
    return Costs(
        target_alone=own,
        rounds=dict(zip(lengths, others, strict=True)),
        draft_pass=forward_ms(pair.draft, 1, rounds),
        rules=rule_costs(pair.target.vocabulary, longest, sampling, pair.target.device),
    )


def _in_turns(pair: LoadedPair, configs: Sequence[DecodingConfig], prompt: Sequence[int], rounds: int) -> list[float]:
    """Milliseconds of a round of each; a round of every one before the next, so that a busy machine slows all alike."""
    models = ModelSet(pair.target, pair.draft)
    spent: list[list[float]] = [[] for _ in configs]
    with ExitStack() as stack:
        sessions = [
            stack.enter_context(DecodingSession(compose(models, config), prompt, 0, frozenset())) for config in configs
        ]
        for _ in range(WARM_UP + rounds):
            for session, own in zip(sessions, spent, strict=True):
                if session.stop_reason is None:
                    own.append(1000 * session.run_round().seconds)
    return [median(own[WARM_UP:] or own) for own in spent]


@torch.inference_mode()
def rule_costs(vocabulary: int, length: int, sampling: SamplingConfig, device: torch.device) -> dict[str, float]:
    """Milliseconds by which the verification of a chain takes longer by each rule than by `speculative`; medians over
    turns, in each of which all are timed. Less than nothing counts as nothing."""
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(1, length + 1, vocabulary, generator=generator)).to(device)
    said = logits[:, :length] + torch.randn(1, length, vocabulary, generator=generator).to(device)
    warped, raw = warp(said, sampling), said.softmax(-1)
    tree = DraftTree(warped.argmax(-1), length, warped, raw)
    proposal = DraftProposal(tree, length, [length], [length], [10])
    rules = {kind: make_verification(CHAIN, rule.checked(), sampling) for kind, rule in replayable().items()}
    spent: dict[str, list[float]] = {kind: [] for kind in rules}
    for turn in range(_TURNS + 1):
        for kind, verification in rules.items():
            begun = time.perf_counter()
            verification.verify(proposal, logits, [UniformStream(turn, device)]).count.tolist()
            spent[kind].append(1000 * (time.perf_counter() - begun))
    exact = spent["speculative"]
    return {kind: max(0.0, _more(times, exact)) for kind, times in spent.items() if kind != Speculative().kind}


def _more(times: Sequence[float], exact: Sequence[float]) -> float:
    return median(own - strict for own, strict in zip(times[1:], exact[1:], strict=True))
