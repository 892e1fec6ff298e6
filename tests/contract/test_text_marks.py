"""What is read in a text while it is written: where a rule is lenient, and strings that end the text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from fsd_core.config import (
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    DynamicTreeTopology,
    EagleDrafter,
    Fuzzy,
    SamplingConfig,
    Speculative,
)
from fsd_core.decoding import loop
from fsd_core.decoding.decoder import GeneratedText, PairDecoder
from fsd_core.decoding.loop import Mark, TextMarks, _text_marks, compose
from fsd_core.errors import NotApplicable, NotGiven
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import LoadedPair, ModelSet
from fsd_core.testing import TOY, distribution_of_texts, fit, related, toy_head, toy_model, toy_pair
from tests.tools.sizes import size

VOCABULARY, PROMPT = 5, [0, 1, 2, 1]
LOOSE = Fuzzy(threshold=math.log(2))
"""accepts every draft"""
SAMPLED = SamplingConfig(temperature=1.0)


class Letters:
    """A tokenizer of one letter a token: a, b, c…"""

    def decode(self, ids: Sequence[int], **options: Any) -> str:
        return "".join(chr(ord("a") + i) for i in ids)


@pytest.fixture
def marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thought begins with an a and ends with a b."""
    monkeypatch.setattr(loop, "_ENDS", {"a": "b"})


@pytest.fixture(scope="module")
def models() -> tuple[LanguageModel, LanguageModel]:
    target = toy_model(VOCABULARY, seed=3)
    return LanguageModel(target), LanguageModel(related(target, noise=0.6, seed=4))


def decoder(models: tuple[LanguageModel, LanguageModel], config: DecodingConfig) -> PairDecoder:
    """One whose texts have no end tokens."""
    target, draft = models
    tokenizer: Any = Letters()
    pair = LoadedPair(TOY, tokenizer, target, draft, "cpu", "float32", head=toy_head(target.module))
    decoder = PairDecoder(pair, config)
    decoder.eos = frozenset()
    return decoder


def thinking(prefix: Sequence[int], *, opened: bool = False) -> bool:
    """Whether a text is inside of a thought behind a prefix, by its letters alone."""
    inside = opened
    for token in prefix:
        inside = token == 0 or (inside and token != 1)
    return inside


@pytest.mark.wide
@pytest.mark.usefixtures("marks")
@pytest.mark.parametrize("lenient_in", ["thoughts", "answers"])
def test_the_draft_writes_where_the_rule_is_lenient_and_the_target_elsewhere(models, lenient_in: str) -> None:
    """The law of the texts, enumerated with the marks read at every token, although several are drafted at once.

    They follow neither the law of a rule that is lenient everywhere, nor one with the marks read before each round.
    """
    config = DecodingConfig(
        acceptance=LOOSE, topology=ChainTopology(length=2), sampling=SAMPLED, max_new_tokens=3, lenient_in=lenient_in
    )
    count = size(1500, 10_000)
    texts = decoder(models, config).generate_all([PROMPT] * count, range(count), rows=500)
    emitted = torch.tensor([text.tokens[:2] for _, text in texts]) @ torch.tensor([VOCABULARY, 1])

    def law(where: Callable[[tuple[int, ...]], bool]) -> torch.Tensor:
        return distribution_of_texts(models[0], PROMPT, 2, (models[1], math.log(2)), where)

    def is_lenient(prefix: tuple[int, ...]) -> bool:
        return thinking(prefix) == (lenient_in == "thoughts")

    assert fit(emitted, law(is_lenient)) > 1e-4
    assert fit(emitted, law(lambda prefix: True)) < 1e-6
    assert fit(emitted, law(lambda prefix: is_lenient(()))) < 1e-6


@pytest.mark.usefixtures("marks")
@pytest.mark.parametrize(
    "drafting",
    [
        {"topology": ChainTopology(length=4)},
        {"topology": DynamicTreeTopology(top_k=3, length=4, total_tokens=12)},
        {"topology": ChainTopology(length=4), "drafter": EagleDrafter()},
    ],
    ids=["chain", "tree", "head"],
)
@pytest.mark.parametrize("lenient_in", ["thoughts", "answers"])
def test_no_token_is_lenient_elsewhere(models, drafting: dict[str, Any], lenient_in: str) -> None:
    """Also behind prompts that end inside of a thought. The caches stay true: what is not lenient is the target's."""
    config = DecodingConfig(acceptance=LOOSE, max_new_tokens=60, lenient_in=lenient_in, **drafting)
    lenient, strict = 0, 0
    for seed, prompt in enumerate([[2, 1], [3, 4, 0], [4, 2, 3, 3]]):
        text = decoder(models, config).generate(prompt, seed)
        opened = prompt[-1] == 0
        for index, kind in enumerate(kinds_of(text)):
            inside = thinking(text.tokens[:index], opened=opened)
            if inside == (lenient_in == "thoughts"):
                lenient += kind == "lenient"
            else:
                strict += 1
                assert kind != "lenient"
                assert text.tokens[index] == argmax(models[0], [*prompt, *text.tokens[:index]])
    assert lenient
    assert strict


def kinds_of(text: GeneratedText) -> list[str]:
    return [kind for record in text.records for kind in record.kinds]


@torch.inference_mode()
def argmax(model: LanguageModel, tokens: list[int]) -> int:
    cache = model.new_cache(len(tokens))
    return int(model.forward(torch.tensor([tokens]), cache, logits_to_keep=1)[0, 0].argmax())


@pytest.mark.parametrize("acceptance", [Autoregressive(), Speculative(), LOOSE])
@pytest.mark.parametrize("rows", [1, 2])
def test_a_stop_string_ends_a_text_where_it_is_complete(models, acceptance: Any, rows: int) -> None:
    """Whatever was drafted behind it, and in each row of a batch; without it the texts go on as they did."""
    config = DecodingConfig(acceptance=acceptance, sampling=SAMPLED, max_new_tokens=60)
    prompts, generation = [[2, 1], [3, 4, 0], PROMPT], models[0].module.generation_config
    free = dict(decoder(models, config).generate_all(prompts, range(3), rows))
    try:
        generation.stop_strings = ["dc", "ee"]
        ended = dict(decoder(models, config).generate_all(prompts, range(3), rows))
    finally:
        generation.stop_strings = None
    assert {text.stop_reason for text in free.values()} == {"length"}
    for index, text in free.items():
        letters = Letters().decode(text.tokens)
        end = min(letters.find(stop) % 1000 for stop in ("dc", "ee")) + 2
        assert end < 62
        assert (ended[index].tokens, ended[index].stop_reason) == (text.tokens[:end], "eos")
        assert len(kinds_of(ended[index])) == end


def test_strings_are_found_in_the_text_of_several_tokens() -> None:
    tokenizer = toy_pair().tokenizer

    def decode(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids), skip_special_tokens=False))

    def tokens(text: str) -> list[int]:
        return tokenizer(text)["input_ids"]

    watch = TextMarks(decode, ["\n\nUser:"], thoughts=True)
    before = tokens("Über <th")
    assert watch.opened(before) is None
    assert watch.opened(tokens("Assistant: <think>\n")) == "</think>"
    assert watch.first(before, tokens("ink> a"), None) == Mark(4, "<think>")
    assert watch.first(tokens("<think>"), tokens("a <think> b"), watch.after("<think>")) is None
    assert watch.first(tokens("<think> x </thin"), tokens("k>B"), "</think>") == Mark(2, "</think>")
    assert watch.first(tokens("</think>"), tokens(" ü, no more"), None) is None
    assert watch.first(tokens("a\n\nUs"), tokens("er:er:"), "</think>") == Mark(3, "\n\nUser:")
    assert watch.after("\n\nUser:") is None
    assert watch.opened(tokens("<|channel|>analysis")) == "<|channel|>final"


def test_marks_of_the_models_own_template_are_looked_for(models) -> None:
    """Where a rule is lenient is read as scorers read it."""
    tokenizer = toy_pair().tokenizer
    tokenizer.chat_template = "{% for m in messages %}{{ m.content.split('[/MUSE]')[-1] }}{% endfor %}"
    config = DecodingConfig(acceptance=LOOSE, lenient_in="thoughts")
    watch = _text_marks(models[0], tokenizer, config)
    assert watch is not None
    assert watch.opened(tokenizer("Assistant: [MUSE]\n")["input_ids"]) == "[/MUSE]"
    assert watch.opened(tokenizer("Assistant: <think>\n")["input_ids"]) == "</think>"
    assert watch.first([], tokenizer("[MUSE]")["input_ids"], None) == Mark(6, "[MUSE]")
    assert watch.after("[MUSE]") == "[/MUSE]"


def test_leniency_in_a_part_of_a_text_is_refused_where_nothing_is_lenient_or_nobody_reads(models) -> None:
    with pytest.raises(NotApplicable, match="lenient_in"):
        DecodingConfig.checked(acceptance=Speculative(), lenient_in="thoughts")
    with pytest.raises(NotGiven):
        compose(ModelSet(*models), DecodingConfig(acceptance=LOOSE, lenient_in="answers"))
