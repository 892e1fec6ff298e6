"""What each rule's arithmetic costs beside strict decoding: ``python -m tools.load.rule_cost --turns 40``.

A round is timed on a pair: γ forwards of the draft, one of the target, and the verification by ``speculative`` at
temperature 1. Then every rule verifies one round, in turns. What a rule costs is the median over turns of its time less
that of ``speculative`` in the same turn, as a share of the round. The pairs are the bundled one, and Llama models with
random weights: SmolLM2's shape with a draft of three of its layers, and a target with the shape and vocabulary of
Qwen 2.5 0.5B (151,936 tokens) with a draft of four of its layers. The rules that judge their bonus also draft one token
more, which is no part of this. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from statistics import median

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from fsd_core.config import ChainTopology, DecodingConfig, SamplingConfig, Speculative
from fsd_core.decoding.verification import DraftProposal, make_verification
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import load_pair
from fsd_core.ops.distributions import UniformStream
from fsd_core.ops.kernels import finished_at
from fsd_core.testing import judging_rules, open_session
from fsd_core.topologies import DraftTree

LENGTH = 5
PROMPT = list(range(1, 101))
SAMPLED = SamplingConfig(temperature=1)


def random_pair(
    vocabulary: int, hidden: int, inner: int, heads: int, kv: int, layers: tuple[int, int]
) -> tuple[LanguageModel, LanguageModel]:
    """Target and draft of one width and so many layers."""
    torch.manual_seed(0)

    def model(depth: int) -> LanguageModel:
        config = LlamaConfig(
            vocab_size=vocabulary, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=depth,
            num_attention_heads=heads, num_key_value_heads=kv, tie_word_embeddings=True, max_position_embeddings=512,
        )  # fmt: skip
        return LanguageModel(AutoModelForCausalLM.from_config(config).eval())

    target, draft = layers
    return model(target), model(draft)


def pairs() -> Iterator[tuple[str, tuple[LanguageModel, LanguageModel]]]:
    bundled = load_pair("bundled", "cpu", "float32")
    yield "bundled pair", (bundled.target, bundled.draft)
    yield "SmolLM2's shape", random_pair(49_152, 576, 1536, 9, 3, (30, 3))
    yield "Qwen 2.5 0.5B's shape", random_pair(151_936, 896, 4864, 14, 2, (24, 4))


@torch.inference_mode()
def measure(target: LanguageModel, draft: LanguageModel, turns: int) -> tuple[int, float, dict[str, float]]:
    """Vocabulary, seconds of a round by ``speculative``, and of each rule what it costs more."""
    config = DecodingConfig(
        acceptance=Speculative(), topology=ChainTopology(length=LENGTH), sampling=SAMPLED, max_new_tokens=8 * turns
    )
    rounds = []
    with open_session(target, draft, config, PROMPT, 0, frozenset()) as session:
        session.run_round()
        while session.stop_reason is None and len(rounds) < turns:
            rounds.append(session.run_round().seconds)
    vocabulary = target.vocabulary
    device = target.device
    logits = 3 * torch.randn(1, LENGTH + 1, vocabulary, device=device)
    said = (logits[:, :LENGTH] + torch.randn(1, LENGTH, vocabulary, device=device)).softmax(-1)
    tokens = torch.multinomial(said[0], 1).T
    proposal = DraftProposal(DraftTree(tokens, LENGTH, said, said), LENGTH, [LENGTH], [LENGTH], [10])
    rules = {kind: make_verification("chain", rule.checked(), SAMPLED) for kind, rule in judging_rules().items()}
    spent: dict[str, list[float]] = {kind: [] for kind in rules}
    for turn in range(turns + 1):
        for kind, verification in rules.items():
            begun = finished_at(device)
            verification.verify(proposal, logits, [UniformStream(turn, device)])
            spent[kind].append(finished_at(device) - begun)
    exact = spent["speculative"]
    more = {
        kind: median(own - strict for own, strict in zip(times[1:], exact[1:], strict=True))
        for kind, times in spent.items()
    }
    return vocabulary, median(rounds), more


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=40)
    given = parser.parse_args()
    torch.set_num_threads(1)
    columns = {name: measure(*models, given.turns) for name, models in pairs()}
    heads = [f"{name}, V = {size:,}, a round is {seconds * 1e3:.1f} ms" for name, (size, seconds, _) in columns.items()]
    print("| Rule | " + " | ".join(heads) + " |\n|---|" + "---|" * len(heads))
    for kind in judging_rules():
        if kind != "speculative":
            cells = [f"{1e3 * more[kind]:.2f} ms, {more[kind] / seconds:.1%}" for _, seconds, more in columns.values()]
            print(f"| `{kind}` | " + " | ".join(cells) + " |")
