"""What ships for SmolLM2: it is small, it says where it came from, and it fits the target. The target itself is fetched
by users, so here a model of its shape with random weights takes its place."""

from __future__ import annotations

import copy
import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, PreTrainedModel

from fsd_core.evaluation.speed import RANDOM_PAIR_SHAPES, bytes_read
from fsd_core.models import draft_weights
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import adapted
from fsd_core.models.model_pairs import ADAPTED, DRAFTED, MODEL_PAIRS
from fsd_core.training.cards import CARDS, PROBLEM_SETS

DRAFT = MODEL_PAIRS[DRAFTED].draft
ADAPTER = MODEL_PAIRS[ADAPTED].adapter


@pytest.fixture(scope="module")
def target() -> PreTrainedModel:
    _, shape = RANDOM_PAIR_SHAPES["smollm2-1.7b/135m"]
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(shape, dtype=torch.bfloat16).eval()


def test_they_are_small_enough_to_ship() -> None:
    assert sum(file.stat().st_size for file in DRAFT.iterdir()) < 30_000_000
    assert ADAPTER is not None
    assert sum(file.stat().st_size for file in ADAPTER.iterdir()) < 12_000_000
    assert MODEL_PAIRS[ADAPTED].draft == DRAFT


def test_the_table_of_tri_grams_is_what_its_card_says() -> None:
    table = MODEL_PAIRS[DRAFTED].trigrams
    assert table is not None
    assert MODEL_PAIRS[ADAPTED].trigrams == table
    assert sum(file.stat().st_size for file in table.iterdir()) < 400_000
    with safe_open(table / "model.safetensors", "pt") as file:
        keys, tokens, about = (
            file.get_tensor("keys"),
            file.get_tensor("tokens"),
            json.loads(file.metadata()["trigrams"]),
        )
    assert f"{len(tokens):,} successors of {len(keys):,} pairs" in (table / "README.md").read_text()
    assert about["vocabulary"] == 49_152
    assert int(keys.max()) < 49_152**2
    assert int(tokens.max()) < 49_152


@pytest.mark.wide
@torch.inference_mode()
def test_the_adapter_fits_the_target_and_changes_it(target: PreTrainedModel) -> None:
    assert ADAPTER is not None
    tokens = torch.arange(12)[None]
    before = target(tokens).logits
    taught = adapted(copy.deepcopy(target), ADAPTER)
    assert type(taught) is type(target)
    assert not torch.allclose(taught(tokens).logits, before, atol=0.1)
    assert torch.equal(target(tokens).logits, before)


def test_the_adapters_card_shows_what_was_measured() -> None:
    assert ADAPTER is not None
    card, rows = (ADAPTER / "README.md").read_text(), json.loads((ADAPTER / "measured.json").read_text())["rows"]
    assert not re.search(r"[{}]", card)
    solved = {(row["pair"], row["rule"], row["task"]): row["solved"] for row in rows}
    assert all(f"{row['solved'] / row['problems']:.0%}" in card for row in rows)
    for task in PROBLEM_SETS:
        taught = solved[ADAPTED, "autoregressive", task]
        assert taught > solved[DRAFTED, "autoregressive", task]
        assert taught > solved[ADAPTED, "draft-only", task]


@pytest.mark.wide
@torch.inference_mode()
def test_the_draft_fits_the_target_and_costs_a_sixth_at_most(target: PreTrainedModel) -> None:
    module = draft_weights.load(DRAFT, target)
    draft, whole = LanguageModel(module), LanguageModel(target)
    told = json.loads((DRAFT / "training.json").read_text())
    read = bytes_read(draft) / bytes_read(whole)
    assert read < 1 / 6
    assert told["share_of_target"] == pytest.approx(read, rel=0.01)
    tokens = torch.arange(12)[None]
    logits = draft.forward(tokens, draft.new_cache(12))
    assert logits.shape == (1, 12, 49_152)
    rest = logits[0, -1].softmax(-1).index_fill(0, module.lm_head.tokens, 0).sum()
    assert float(rest) == pytest.approx(module.config.rest_share, rel=0.05)


def test_the_card_shows_what_was_measured() -> None:
    card, rows = (DRAFT / "README.md").read_text(), json.loads((DRAFT / "measured.json").read_text())["rows"]
    assert not re.search(r"[{}]", card)
    for row in rows:
        assert f"{row['acceptance_length']:.2f}" in card
        assert f"`{row['task']}`" in card


@pytest.mark.parametrize("what", CARDS)
def test_a_card_is_written_from_what_lies_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Whole, but for a remark that somebody added behind the machine."""
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    _, write, _, pairs = CARDS[what]
    for name in pairs:
        shipped: Path = getattr(MODEL_PAIRS[name], what)
        folder = shutil.copytree(shipped, tmp_path / name)
        (folder / "README.md").unlink()
        rows = json.loads((folder / "measured.json").read_text())["rows"]
        assert write(folder, rows, "float32") == folder / "README.md"
        written, expected = ((where / "README.md").read_text().splitlines() for where in (folder, shipped))
        assert len(written) == len(expected)
        different = [line for line, other in zip(written, expected, strict=True) if line != other]
        assert all(line.startswith("- **Time**") and name == "bundled" for line in different)
        assert (folder / "measured.json").read_bytes() == (shipped / "measured.json").read_bytes()
