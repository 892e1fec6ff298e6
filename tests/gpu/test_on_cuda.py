"""What the CPU proves, on a CUDA device: every method writes the CPU's texts, and the host waits once a round.

``make test-gpu`` runs it, and ``tests/contract/test_static.py`` with it; ``FSD_DEVICE=cpu`` tries the tests themselves
where there is no such device. The models are float32, so that a text differs only where something is wrong.
"""

from __future__ import annotations

import pytest
import torch

from fsd_core.config import (
    DRAFTERS,
    RULES,
    VERIFIERS,
    Autoregressive,
    BeamSampling,
    BeamsTopology,
    ChainTopology,
    CopyingDrafter,
    DecodingConfig,
    DraftOnly,
    DynamicTreeTopology,
    EagleDrafter,
    Fuzzy,
    FuzzyReducible,
    MultiDraftTopology,
    PromptLookupDrafter,
    SamplingConfig,
    Speculative,
    SpeculativeBeams,
    SuffixDrafter,
    TrigramDrafter,
    Verifier,
)
from fsd_core.decoding import loop
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.decoding.loop import compose
from fsd_core.evaluation.speed import nvml_meter
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import load_pair, resolve_device
from fsd_core.ops.kernels import Graphed
from fsd_core.settings import get_settings
from fsd_core.tasks.word_problems import Arithmetic
from fsd_core.testing import in_memory, judging_rules, open_session, related, run, toy_head, toy_model, toy_models
from tests.tools.toy_families import toy_family
from tests.tools.toy_hybrids import HYBRIDS, STEPPED
from tests.tools.transfers import no_waiting

DEVICE = resolve_device(get_settings().device)
SAMPLED = SamplingConfig(temperature=0.8, top_k=20, top_p=0.95)
PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6], [7], [2, 7, 1, 8, 2, 8, 1, 8], [1] * 33]
TREE = DynamicTreeTopology(top_k=3, length=4, total_tokens=12)
HEADS = (1, 3)
NO_END = frozenset[int]()


def methods() -> dict[str, DecodingConfig]:
    """Every rule, verifier, drafter and shape, greedily and by chance."""
    chain = ChainTopology(length=4)
    found = [{"acceptance": rule.checked(), "topology": chain} for rule in judging_rules().values()]
    found += [{"acceptance": rule} for rule in (Autoregressive(), DraftOnly())]
    found += [
        {"acceptance": RULES[kind].checked(), "topology": MultiDraftTopology(length=3, drafts=2)} for kind in VERIFIERS
    ]
    found += [
        {"acceptance": rule, "topology": TREE} for rule in (Speculative(), Fuzzy(threshold=0.05), FuzzyReducible())
    ]
    copying = (PromptLookupDrafter(), SuffixDrafter(), TrigramDrafter())
    found += [{"acceptance": Speculative(), "drafter": drafter} for drafter in copying]
    found += [
        {"acceptance": Speculative(), "topology": ChainTopology(length=6, length_by=by)}
        for by in ("token", "chain", "acceptance")
    ]
    found += [
        {"acceptance": rule, "drafter": EagleDrafter(), "topology": shape}
        for rule, shape in ((Speculative(), chain), (Speculative(), TREE), (RULES["k-seq"](), MultiDraftTopology()))
    ]
    by_chance = [
        {"acceptance": BeamSampling(beams=3)},
        {"acceptance": SpeculativeBeams(), "topology": BeamsTopology(length=3, drafts=3)},
    ]
    every = [DecodingConfig(**one, sampling=s, max_new_tokens=40) for one in found for s in (SamplingConfig(), SAMPLED)]
    every += [DecodingConfig(**one, sampling=SAMPLED, max_new_tokens=20) for one in by_chance]
    return {f"{one.label} {one.acceptance.kind}": one for one in every}


def can_be_joined(config: DecodingConfig) -> bool:
    """Whether several texts can be written side by side; heads are left out."""
    if config.acceptance.writes_beams or (config.drafter is not None and config.drafter.needs_head):
        return False
    speculation = compose(toy_models(), config).speculation
    return speculation is None or (speculation.drafter.side_by_side and speculation.topology.side_by_side)


METHODS = methods()
JOINED = [name for name, one in METHODS.items() if can_be_joined(one)]
PLAIN = [
    name
    for name, one in METHODS.items()
    if not one.acceptance.writes_beams and not isinstance(one.drafter, CopyingDrafter)
]
if DEVICE.type == "cpu":  # where several drafts share what they have in common, and their number is read
    PLAIN = [name for name in PLAIN if not isinstance(METHODS[name].acceptance, Verifier)]
assert {one.drafter.kind for one in METHODS.values() if one.drafter is not None} == set(DRAFTERS)


def made_on(device: torch.device) -> tuple[LanguageModel, LanguageModel, dict]:
    target = toy_model(200, seed=11, layers=4, context=600)
    draft = related(target, noise=0.15, seed=12)
    heads = {generation: toy_head(target.to(device), generation, seed=5) for generation in HEADS}
    return LanguageModel(target), LanguageModel(draft.to(device)), heads


@pytest.fixture(scope="module")
def both() -> tuple:
    """Target, draft and heads: on the CPU, and the same on the device."""
    return made_on(torch.device("cpu")), made_on(DEVICE)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_writes_the_texts_of_the_cpu(both, name: str) -> None:
    config = METHODS[name]
    for generation in HEADS if config.drafter is not None and config.drafter.needs_head else HEADS[:1]:
        texts = []
        for target, draft, heads in both:
            sessions = [
                open_session(target, draft, config, prompt, seed, NO_END, heads[generation])
                for seed, prompt in enumerate(PROMPTS)
            ]
            texts.append([run(session).history for session in sessions])
        assert texts[1] == texts[0]


@pytest.mark.parametrize("name", JOINED)
def test_texts_side_by_side_are_those_of_each_alone(both, name: str) -> None:
    target, draft, _ = both[1]
    decoder = PairDecoder(in_memory(target, draft), METHODS[name])
    decoder.eos = NO_END
    seeds = range(len(PROMPTS))
    alone = [decoder.generate(prompt, seed).tokens for prompt, seed in zip(PROMPTS, seeds, strict=True)]
    together = dict(decoder.generate_all(PROMPTS, seeds, rows=3))
    assert [together[place].tokens for place in seeds] == alone


@pytest.mark.parametrize("name", PLAIN)
def test_the_host_waits_once_a_round(both, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = METHODS[name].model_copy(update={"max_new_tokens": 200})
    target, draft, heads = both[1]
    waits = []
    to_host = loop.to_host
    monkeypatch.setattr(loop, "to_host", lambda values: (waits.append(values.shape), to_host(values))[1])
    session = open_session(target, draft, config, PROMPTS[0], 5, NO_END, heads[1])
    for _ in range(3):  # what is made once, such as graphs
        session.run_round()
    waits.clear()
    with no_waiting(DEVICE):
        for _ in range(6):
            session.run_round()
    assert len(waits) == 6


def test_what_is_launched_together_gives_the_same_results() -> None:
    def steps(values: torch.Tensor, shift: torch.Tensor | None, factor: int) -> tuple[torch.Tensor | None, ...]:
        moved = values if shift is None else values + shift
        return (moved * factor).softmax(-1).cumsum(-1), None, moved.argmax(-1)

    graphed, kept = Graphed("test", steps), []
    for turn in range(12):
        values = torch.randn(2 + turn % 2, 50, generator=torch.Generator().manual_seed(turn)).to(DEVICE)
        shift = None if turn % 3 else values.flip(-1)
        kept.append((graphed(values, shift, 2), steps(values, shift, 2)))
    for found, expected in kept:  # no call overwrote what an earlier one returned
        assert torch.equal(found[0], expected[0])
        assert found[1] is None
        assert torch.equal(found[2], expected[2])


def test_what_makes_the_host_wait_runs_as_it_is_written() -> None:
    graphed = Graphed("test", lambda values: (values * float(values.sum()),))
    for turn in range(4):
        values = torch.arange(5.0, device=DEVICE) + turn
        assert torch.equal(graphed(values)[0], values * (10 + 5 * turn))


@pytest.mark.parametrize("family", ["gemma2", "qwen3", "mistral", "gpt2", "phi3", *sorted(set(HYBRIDS) - set(STEPPED))])
def test_other_architectures_write_the_texts_of_the_cpu(family: str) -> None:
    texts = []
    for device in (torch.device("cpu"), DEVICE):
        size = {"sliding_window": 9} if family == "gemma2" else HYBRIDS.get(family, {})
        target = toy_family(family, **size)
        draft = related(target, 0.1, seed=1)
        models = LanguageModel(target.to(device)), LanguageModel(draft.to(device))
        for rule in (Autoregressive(), Speculative(), Fuzzy(threshold=0.05)):
            config = DecodingConfig(acceptance=rule, topology=ChainTopology(length=3), max_new_tokens=24)
            texts.append(run(open_session(*models, config, PROMPTS[0], 0, NO_END)).history)
    assert texts[3:] == texts[:3]
    assert texts[3] == texts[4]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_bundled_pair(dtype: str) -> None:
    """Greedily SD writes the target's text in float32; transformers' text is the same. Shorter numbers only differ."""
    pair = load_pair("bundled", str(DEVICE), dtype)
    prompts = [example.model_input for example in Arithmetic().examples(8)]
    for prompt in prompts:
        texts = []
        for rule in (Autoregressive(), Speculative()):
            decoder = PairDecoder(pair, DecodingConfig(acceptance=rule, max_new_tokens=80))
            ids = decoder.prompt_ids(prompt)
            texts.append(decoder.generate(ids, seed=0).tokens)
        assert all(texts)
        if dtype == "float32":
            fed = torch.tensor([ids], device=DEVICE)
            out = pair.target.module.generate(fed, max_new_tokens=80, do_sample=False)  # type: ignore[operator]
            assert texts == [out[0, len(ids) :].tolist()] * 2


def test_the_gpu_says_what_it_takes() -> None:
    meter = nvml_meter(str(DEVICE))
    assert meter is not None
    before, memory = meter.energy(), meter.memory()
    assert before is not None
    assert memory is not None
    matrix = torch.randn(8192, 8192, device=DEVICE)
    for _ in range(50):
        matrix = (matrix @ matrix).clamp(-1, 1)
    torch.cuda.synchronize()
    after = meter.energy()
    assert after is not None
    assert 1 < after - before < 10_000
    assert memory > 1 << 28
