"""The drafter 'trigram': what its table learns, and what it drafts from it."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch

from fsd_core import drafters
from fsd_core.config import DecodingConfig, FuzzyReducible, SamplingConfig, Speculative, TrigramDrafter
from fsd_core.decoding.decoder import GeneratedText, PairDecoder
from fsd_core.drafters import TrigramProposer, TrigramTable
from fsd_core.errors import IncompatibleOptions
from fsd_core.testing import toy_pair


def learned(tokens: list[int], **settings: Any) -> TrigramTable:
    table = TrigramTable(TrigramDrafter(**settings))
    table.learn(tokens)
    return table


def test_a_table_learns_each_trigram_as_often_as_it_occurs() -> None:
    table = learned([1, 2, 3, 1, 2, 3, 1])
    assert table.weights((1, 2)) == pytest.approx({3: 0.08})
    assert table.weights((2, 3)) == pytest.approx({1: 0.08})
    assert table.weights((3, 1)) == pytest.approx({2: 0.04})
    assert sum(len(learned([*range(20)][-16:]).weights((i, i + 1))) for i in range(20)) == 14


def test_successors_are_the_heaviest_and_of_equal_ones_the_lower_ids() -> None:
    table = learned([9, 9, 4, 9, 9, 2, 9, 9, 7, 9, 9, 7], most_successors=2)
    assert table.successors((9, 9)) == [(7, pytest.approx(2 / 3)), (2, pytest.approx(1 / 3))]
    assert table.successors((4, 2)) == []
    capped = learned([1, 2, 3] * 9 + [1, 2, 4], step=0.5, cap=1.5)
    assert capped.successors((1, 2)) == [(3, pytest.approx(0.75)), (4, pytest.approx(0.25))]
    assert learned([1, 2, 3], step=0).successors((1, 2)) == []


def test_a_table_keeps_the_pairs_that_it_learned_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafters, "_MOST_PAIRS", 2)
    table = learned([1, 2, 3, 4])
    table.learn([1, 2, 3])
    table.learn([5, 6, 7])
    assert [table.weights(pair) for pair in ((1, 2), (2, 3), (5, 6))] == [{3: 0.08}, {}, {7: 0.04}]


def proposer(**settings: Any) -> TrigramProposer:
    drafter = TrigramDrafter(**settings)
    return TrigramProposer(drafter, 10, torch.device("cpu"), TrigramTable(drafter), most=4)


def drafted(drafter: TrigramProposer, text: list[int]) -> list[int]:
    row, tokens = drafter.begin(torch.tensor([text]), [text]), []
    while row is not None:
        tokens.append(int(row.warped.argmax()))
        assert row.warped.sum() == row.warped.max() == 1
        row = drafter.extend(row.warped.argmax(-1))
    return tokens


def test_a_chain_goes_along_the_likeliest_successors_until_none_is_known() -> None:
    assert drafted(proposer(), [1, 2, 3, 4, 1, 2]) == [3, 4, 1, 2]
    assert drafted(proposer(), [1, 2, 3, 5, 1, 3, 5]) == [1, 3, 5, 1]
    assert drafted(proposer(), [4, 1, 2, 3, 4, 1]) == [2, 3, 4, 1]
    assert drafted(proposer(), [1, 2, 3]) == drafted(proposer(), [1]) == []


def test_a_text_reads_its_prompt_once_and_then_its_window() -> None:
    drafter, text = proposer(window=3), [1, 2, 3, 1, 2]
    drafted(drafter, text)
    text += [4, 1]
    drafted(drafter, text)
    drafted(drafter, text)
    assert drafter.successors([1, 2]) == [(3, 1.0)]  # the window was past (1, 2) → 4
    assert drafter.successors([2, 4]) == [(1, 1.0)]
    drafter.begin_row(0, torch.zeros(1, 0))
    assert drafted(drafter, [1, 2]) == []
    kept = proposer(memory="run")
    drafted(kept, [1, 2, 3])
    kept.begin_row(0, torch.zeros(1, 0))
    assert drafted(kept, [1, 2]) == [3]


def test_a_run_that_keeps_its_table_writes_each_text_as_it_is_alone_and_in_fewer_rounds() -> None:
    pair, prompts = toy_pair(), [[3, 1, 4, 1, 5], [7], [3, 1, 4, 1, 5], [2, 7, 1, 8]]

    def run(memory: Literal["text", "run"], order: list[int], **sampling: Any) -> dict[int, GeneratedText]:
        drafter = TrigramDrafter(memory=memory)
        config = DecodingConfig(
            acceptance=Speculative(), drafter=drafter, sampling=SamplingConfig(**sampling), max_new_tokens=24
        )
        decoder = PairDecoder(pair, config)
        decoder.eos = frozenset()
        return {order[i]: text for i, text in decoder.generate_all([prompts[place] for place in order], [0] * 4, 1)}

    texts, learned, backwards = run("text", [0, 1, 2, 3]), run("run", [0, 1, 2, 3]), run("run", [3, 2, 1, 0])
    for place, text in texts.items():
        assert learned[place].tokens == backwards[place].tokens == text.tokens
    assert len(texts[0].records) == len(texts[2].records) > len(learned[2].records)
    assert len(backwards[0].records) < len(backwards[2].records)
    forwards, again = (run("text", order, temperature=1.0) for order in ([0, 1, 2, 3], [3, 2, 1, 0]))
    assert [forwards[i].tokens for i in range(4)] == [again[i].tokens for i in range(4)]


@pytest.mark.parametrize(
    "changed", [{"sampling": SamplingConfig(temperature=1)}, {"acceptance": FuzzyReducible(threshold=0.1)}]
)
def test_a_table_of_the_run_is_refused_where_texts_depend_on_drafts(changed: dict[str, Any]) -> None:
    values = {"acceptance": Speculative(), "drafter": TrigramDrafter(memory="run")} | changed
    with pytest.raises(IncompatibleOptions, match="choose temperature 0"):
        DecodingConfig.checked(**values)


def test_its_label_names_what_was_changed() -> None:
    assert TrigramDrafter().label_parts() == ["trigram"]
    assert TrigramDrafter(memory="run", step=0.1).label_parts() == ["trigram", "learning step 0.1", "copies from run"]
