"""Tables of tri-grams in files: what is counted, which files are refused, and what a text begins with."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from fsd_core.config import TrigramDrafter
from fsd_core.drafters import TrigramTable
from fsd_core.errors import IncompatibleModels, ModelUnavailable
from fsd_core.models.draft_weights import TrigramCounts, count, load_trigrams, save_trigrams
from fsd_core.models.hub import obtain
from fsd_core.models.loading import load_pair
from fsd_core.models.model_pairs import get_pair
from fsd_core.models.prompt import load_tokenizer
from fsd_core.tasks.word_problems import Arithmetic
from fsd_core.testing import save_toy_pair, toy_tokenizer
from fsd_plugins.training.counting import count_trigrams as count_texts
from fsd_plugins.training.counting import training_texts

TEXTS = [[1, 2, 5]] * 3 + [[1, 2, 6]] * 2 + [[9, 1, 2, 5, 1]]


def test_a_table_counts_what_followed_which_two() -> None:
    counts = count(TEXTS[:5], 20)
    assert counts.following((1, 2)) == pytest.approx({5: 0.6, 6: 0.4}, abs=1e-3)
    assert counts.following((2, 5)) == counts.following((0, 0)) == counts.following((19, 19)) == {}
    assert count(TEXTS, 20).following((9, 1)) == {2: 1.0}
    few = count([[1, 2, token] for token in (7, 4, 4, 3, 7, 8)], 20, most_successors=2)
    assert few.following((1, 2)) == pytest.approx({4: 1 / 3, 7: 1 / 3}, abs=1e-3)


def test_what_is_learned_is_added_to_the_table() -> None:
    counts = count(TEXTS[:5], 20)
    table = TrigramTable(TrigramDrafter(), counts)
    assert table.successors((1, 2)) == [(5, pytest.approx(0.6, abs=1e-3)), (6, pytest.approx(0.4, abs=1e-3))]
    table.learn([1, 2, 6])
    table.learn([1, 2, 7])
    found = table.successors((1, 2))
    assert [token for token, _ in found] == [5, 6, 7]
    assert [probability for _, probability in found] == pytest.approx([0.555556, 0.407407, 0.037037], abs=1e-3)
    table.forget()
    assert table.weights((1, 2)) == counts.following((1, 2))
    capped = TrigramTable(TrigramDrafter(step=0.5, cap=0.7), counts)
    capped.learn([1, 2, 6])
    assert capped.weights((1, 2))[6] == 0.7


def test_a_file_holds_the_table_and_another_tokenizer_is_refused(tmp_path: Path) -> None:
    save_trigrams(count(TEXTS, 257), tmp_path, toy_tokenizer())
    read = load_trigrams(tmp_path, toy_tokenizer())
    assert read.following((1, 2)) == count(TEXTS, 257).following((1, 2))
    other = toy_tokenizer()
    other.add_tokens(["more"])
    with pytest.raises(IncompatibleModels, match="another tokenizer"):
        load_trigrams(tmp_path, other)


DAMAGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "keys": lambda found: found["keys"].flip(0),
    "starts": lambda found: found["starts"] + 1,
    "tokens": lambda found: found["tokens"] + 257,
    "weights": lambda found: found["weights"] * torch.nan,
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_table_is_refused(tmp_path: Path, name: str) -> None:
    save_trigrams(count(TEXTS, 257), tmp_path, toy_tokenizer())
    file = tmp_path / "model.safetensors"
    with safe_open(file, "pt") as opened:
        about = opened.metadata()
    tensors = load_file(file)
    save_file(tensors, file, about)
    load_trigrams(tmp_path, toy_tokenizer())
    save_file(tensors | {name: DAMAGES[name](tensors)}, file, about)
    with pytest.raises(ModelUnavailable, match="damaged"):
        load_trigrams(tmp_path, toy_tokenizer())


@pytest.mark.parametrize("content", [b"", b"no table", None, {}, {"trigrams": "[]"}, {"trigrams": "{"}], ids=str)
def test_what_is_no_table_is_refused(tmp_path: Path, content: bytes | dict[str, str] | None) -> None:
    save_trigrams(count(TEXTS, 257), tmp_path, toy_tokenizer())
    file = tmp_path / "model.safetensors"
    if isinstance(content, dict):
        save_file(load_file(file), file, content)
    elif content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    with pytest.raises(ModelUnavailable, match="cannot be read"):
        load_trigrams(tmp_path, toy_tokenizer())


def test_a_pair_in_a_folder_may_have_a_table(tmp_path: Path) -> None:
    name = save_toy_pair(tmp_path)
    assert load_pair(name).trigrams is None
    save_trigrams(count(TEXTS, 257), tmp_path / "trigrams", toy_tokenizer())
    pair = load_pair(name)
    assert isinstance(pair.trigrams, TrigramCounts)
    assert pair.weights is not None
    assert "trigrams" in pair.weights
    (tmp_path / "trigrams" / "model.safetensors").write_bytes(b"x")
    with pytest.raises(ModelUnavailable, match="table of tri-grams"):
        load_pair(name)


def test_rare_tri_grams_are_left_out_and_the_shares_are_of_all() -> None:
    table = count([[1, 2, 3], [1, 2, 3], [1, 2, 4], [5, 6, 7]], 9, least=2)
    assert table.keys.tolist() == [1 * 9 + 2]
    assert table.following((1, 2)) == pytest.approx({3: 2 / 3}, abs=1e-3)
    assert table.following((5, 6)) == {}


def test_counting_repeats_and_leaves_out_the_problems_of_the_task(tmp_path: Path) -> None:
    figures = [count_texts("bundled", tmp_path / name, tmp_path, texts=40) for name in ("one", "two")]
    assert figures[0] == figures[1]
    files = [tmp_path / name / "model.safetensors" for name in ("one", "two")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert figures[0]["texts"] == 40
    shipped = load_trigrams(
        get_pair("bundled").trigrams or tmp_path, load_tokenizer(obtain(get_pair("bundled").target))
    )
    assert len(shipped.keys) > figures[0]["pairs"]


def test_counted_texts_are_no_problems_of_the_task(tmp_path: Path) -> None:
    asked = {example.model_input for example in Arithmetic().examples(300)}
    assert not asked & {question for question, _ in islice(training_texts("bundled", tmp_path, 0), 3_000)}
