"""The example of a ViTTM: its arithmetic, and the way of a small one from training to Compare's figure."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from examples.vittm.__main__ import SIZES, main, ordering
from examples.vittm.digits import Measurement, load, train
from examples.vittm.vision_models import Patches, ViTTM, linear_attention
from fsd_core.plots import trade_offs
from fsd_core.settings import Settings
from fsd_core.worker import run_actions
from tests.tools.threads_kept import threads_kept


def test_linear_attention_is_that_of_the_paper() -> None:
    q, k = torch.tensor([[1.0, 0], [0, -1]]), torch.tensor([[0.0, 1], [1, 0], [-1, 2]])
    v = torch.tensor([[1.0, 0], [0, 1], [2, 2]])
    expected = torch.tensor([[0.900733, 0.979252], [0.839222, 0.952604]])
    torch.testing.assert_close(linear_attention(q, k, v), expected, atol=1e-5, rtol=0)
    equal = linear_attention(q, k[:1].expand(3, 2), v)
    torch.testing.assert_close(equal, v.mean(0).expand(2, 2), atol=1e-5, rtol=0)


def test_memory_has_no_order_but_its_positions() -> None:
    torch.manual_seed(0)
    model, memory, process = ViTTM(8, 10, 4, 16), torch.randn(2, 16, 64), torch.randn(2, 4, 64)
    order = torch.randperm(16)
    first, written = model.blocks[0](process, memory)
    again, permuted = model.blocks[0](process, memory[:, order])
    torch.testing.assert_close(first, again, atol=1e-5, rtol=0)
    torch.testing.assert_close(written[:, order], permuted, atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match="do not divide an image"):
        Patches(8, 5, 64)


@pytest.mark.wide
def test_training_lowers_the_loss_of_both_heads() -> None:
    torch.manual_seed(0)
    (digits, _), model = load(128), ViTTM(8, 10, 4, 16)

    def losses() -> list[float]:
        return [F.cross_entropy(logits, digits.labels).item() for logits in model(digits.images)]

    before = losses()
    train(model, digits, 4, 0)
    assert all(after < first for after, first in zip(losses(), before, strict=True))


@pytest.mark.wide
def test_it_trains_measures_and_logs_one_line_a_family(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with threads_kept():
        ids = main(["--home", str(tmp_path), "--epochs", "1", "--images", "128", "--repeats", "1", "--no-mlflow"])
    out = capsys.readouterr().out
    assert out.count("The ordering ") == len(SIZES) - 1
    runs = run_actions.open_repository(Settings(home=tmp_path)).runs(list(ids.values()), descending=False)
    figures = {run.id: (run.metrics or {}) for run in runs}
    assert all(found["n"] == 360 and found["accuracy_low"] is not None for found in figures.values())
    vit, small = ids["ViT"], ids["ViTTM, 4 process tokens"]
    flops = {id: found["other_figures"]["MFLOP per image"][0] for id, found in figures.items()}
    assert flops[small] < flops[vit] / 2
    drawn = trade_offs.tradeoff_info(runs)
    assert (drawn.speed, len(drawn.groups), drawn.left_out) == (trade_offs.ANSWERS, 2, 0)
    assert {point.run.decoding.threshold for group in drawn.groups for point in group.points} == {16, 4, 1}


@pytest.mark.parametrize(
    ("seconds", "wrong", "of_vit", "word"),
    [
        (0.5, 0, 0, "holds"),
        (2.0, 0, 0, "does not hold"),
        (0.5, 60, 0, "does not hold"),
        (0.5, 4, 0, "is undecided"),
        (0.5, 0, 60, "cannot be judged: the ViT has learnt less, so train longer (--epochs)"),
    ],
)
def test_the_ordering_is_said_as_it_is(seconds: float, wrong: int, of_vit: int, word: str) -> None:
    times = [1.0, 1.1, 0.9, 1.05, 0.95]
    vit = Measurement([False] * of_vit + [True] * (360 - of_vit), times, 1)
    found = Measurement([False] * wrong + [True] * (360 - wrong), [seconds * part for part in times], 1)
    found.seconds[0] *= 1.02
    assert ordering("ViTTM", found, vit).endswith(f"The ordering {word}.")
