"""Drafters without a model: what they learn or copy, held against plain readings of their definitions."""

from __future__ import annotations

import random
from typing import Any, Literal

import pytest
import torch

from fsd_core import drafters
from fsd_core.config import DecodingConfig, FuzzyReducible, SamplingConfig, Speculative, SuffixDrafter, TrigramDrafter
from fsd_core.config.drafting import END_OF_TEXT, common_suffixes
from fsd_core.decoding.decoder import GeneratedText, PairDecoder
from fsd_core.drafters import TrigramProposer, TrigramTable
from fsd_core.errors import IncompatibleOptions
from fsd_core.testing import toy_pair


def plain_common_suffix(text: list[int], place: int) -> int:
    length = 0
    while length < place and text[place - 1 - length] == text[-1 - length]:
        length += 1
    return length


@pytest.mark.parametrize("vocabulary", [1, 2, 3, 20])
def test_common_suffixes_are_those_of_a_plain_search(vocabulary: int) -> None:
    generator = random.Random(vocabulary)
    for size in range(1, 40):
        text = [generator.randrange(vocabulary) for _ in range(size)]
        assert common_suffixes(text) == [plain_common_suffix(text, place) for place in range(size)]


@pytest.mark.parametrize(
    ("text", "settings", "copied"),
    [
        ([1, 2, 3, 4, 5, 1, 2], {}, [3, 4, 5, 1]),  # two matched tokens propose four
        ([1, 2, 3, 4, 5, 1, 2], {"factor": 1}, [3, 4]),
        ([1, 2, 3], {}, []),
        ([5], {}, []),
        ([7] * 9, {"factor": 1}, [7] * 8),  # it repeats itself beyond the end
        ([1, 2, 1, 2, 1], {"factor": 2}, [2, 1, 2, 1, 2, 1]),
        # After "2" came 3 twice and 4 once; the longer match "1 2" came once, before 4.
        ([9, 2, 3, 6, 2, 3, 6, 1, 2, 4, 8, 1, 2], {"factor": 1}, [4, 8]),
        ([9, 2, 3, 6, 2, 3, 6, 1, 2, 4, 8, 5, 2], {"factor": 2}, [3, 6]),
        ([9, 2, 3, 6, 2, 3, 6, 1, 2, 4, 8, 5, 2], {"factor": 2, "least": 0.7}, []),
        ([0, 1, 0, 2, 0], {"factor": 1}, [2]),  # equally frequent: the latest
        ([1, 2, 3, 4, 1, 2, 3], {"longest": 1, "factor": 2}, [4, 1]),
    ],
)
def test_what_is_copied(text: list[int], settings: dict[str, Any], copied: list[int]) -> None:
    assert list(SuffixDrafter(**settings).copied(text)) == copied


def test_a_draft_is_what_most_often_followed_and_stops_where_occurrences_part() -> None:
    """Each token is, of all that followed an occurrence with the draft so far, the most frequent; its share of all
    occurrences is at least ``least``."""
    generator, settings = random.Random(0), SuffixDrafter(longest=3, factor=4, least=0.4)
    drafts = 0
    for _ in range(200):
        text = [generator.randrange(4) for _ in range(30)]
        copied = list(settings.copied(text))
        if not copied:
            continue
        drafts += 1
        agreeing = []
        for length in (3, 2, 1):
            places = [i for i in range(1, 30) if plain_common_suffix(text, i) >= length]
            goes_on = text + copied
            shares = [sum(goes_on[i : i + n] == copied[:n] for i in places) for n in range(1, len(copied) + 1)]
            agreeing.append(bool(places) and all(share >= 0.4 * len(places) for share in shares))
        assert any(agreeing)
    assert drafts > 50


def test_a_search_tree_branches_where_the_occurrences_of_the_copied_match_part() -> None:
    text = [9, 2, 3, 6, 2, 3, 7, 2, 4, 8, 5, 2]
    settings = SuffixDrafter(factor=3)
    matched = settings.matched(text)
    assert list(settings.copied(text)) == [3, 7, 2]  # of 6 and 7, each once behind "3", the latest
    after = {
        path: settings.successors_in(matched, path)
        for path in ((), (3,), (4,), (3, 7), (3, 6), (9,), (3, 7, 2), (4, 8, 5))
    }
    assert after == {
        (): [(3, 2 / 3), (4, 1 / 3)], (3,): [(7, 0.5), (6, 0.5)], (4,): [(8, 1.0)], (3, 7): [(2, 1.0)],
        (3, 6): [(2, 1.0)], (9,): [], (3, 7, 2): (), (4, 8, 5): (),
    }  # fmt: skip
    rare = SuffixDrafter(factor=3, least=0.4)
    assert rare.successors_in(rare.matched(text), ()) == [(3, 1.0)]  # 4 came in a third of the occurrences


def test_the_first_way_down_a_search_tree_is_the_chain() -> None:
    generator, settings = random.Random(1), SuffixDrafter(factor=2, least=0)
    drafts = 0
    for _ in range(100):
        text = [generator.randrange(4) for _ in range(30)]
        matched, path = settings.matched(text), list[int]()
        while following := settings.successors_in(matched, path):
            assert sum(share for _, share in following) == pytest.approx(1)
            path.append(following[0][0])
        assert path == list(settings.copied(text))
        drafts += len(path)
    assert drafts > 100


def test_its_label_names_what_was_changed() -> None:
    assert SuffixDrafter().label_parts() == ["suffix"]
    assert SuffixDrafter(longest=8).label_parts() == ["suffix", "longest match 8"]


def test_earlier_answers_are_copied_from_as_far_as_they_go() -> None:
    answers = [7, 8, 9, END_OF_TEXT, 7, 8, 5, END_OF_TEXT]
    settings = SuffixDrafter(factor=1)
    assert list(settings.continued([1, 7, 8], answers)) == [5]  # of equally frequent tokens the latest; then it ended
    assert list(settings.continued([1, 8, 9], answers)) == []  # an answer ended there
    assert list(settings.continued([7, 8, 4, 7, 8], answers)) == [4, 7]  # the text itself is the latest of all
    assert list(settings.copied([1, 7, 8])) == []


def test_a_run_that_copies_from_its_answers_writes_each_text_as_it_is_alone_and_in_fewer_rounds() -> None:
    pair, prompts = toy_pair(), [[3, 1, 4, 1, 5], [7], [3, 1, 4, 1, 5], [2, 7, 1, 8]]

    def run(memory: Literal["text", "run"], order: list[int]) -> dict[int, GeneratedText]:
        drafter = SuffixDrafter(memory=memory)
        decoder = PairDecoder(pair, DecodingConfig(acceptance=Speculative(), drafter=drafter, max_new_tokens=24))
        decoder.eos = frozenset()
        alone = {place: decoder.generate(prompts[place], 0) for place in order}
        again = dict(decoder.generate_all([prompts[place] for place in order], [0] * len(order), 1))
        assert [again[i].tokens for i in range(len(order))] == [alone[place].tokens for place in order]
        return alone

    texts, learned, backwards = run("text", [0, 1, 2, 3]), run("run", [0, 1, 2, 3]), run("run", [3, 2, 1, 0])
    for place, text in texts.items():
        assert learned[place].tokens == backwards[place].tokens == text.tokens
    assert len(learned[2].records) < len(learned[0].records)  # the answer to the same prompt was there
    assert len(backwards[0].records) < len(backwards[2].records)


@pytest.mark.parametrize(
    "changed", [{"sampling": SamplingConfig(temperature=1)}, {"acceptance": FuzzyReducible(threshold=0.1)}]
)
def test_copying_from_the_run_is_refused_where_texts_depend_on_drafts(changed: dict[str, Any]) -> None:
    values = {"acceptance": Speculative(), "drafter": SuffixDrafter(memory="run")} | changed
    with pytest.raises(IncompatibleOptions, match="choose temperature 0"):
        DecodingConfig.checked(**values)


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


def test_the_label_of_a_trigram_names_what_was_changed() -> None:
    assert TrigramDrafter().label_parts() == ["trigram"]
    assert TrigramDrafter(memory="run", step=0.1).label_parts() == ["trigram", "learning step 0.1", "copies from run"]
