"""The check of a model's cache: what it says of logits that cannot be compared."""

from __future__ import annotations

import pytest
import torch

from fsd_core.errors import IncompatibleModels
from fsd_core.models import loading
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import check_cache, relative_distance
from fsd_core.testing import toy_model


def a_model(monkeypatch: pytest.MonkeyPatch) -> LanguageModel:
    monkeypatch.setattr(loading, "PROVEN", frozenset())
    return LanguageModel(toy_model(40, seed=1))


def test_a_model_of_zeros_gives_the_same_logits_through_its_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    model = a_model(monkeypatch)
    with torch.no_grad():
        model.module.get_input_embeddings().weight.zero_()
    check_cache(model)


def test_logits_that_are_no_numbers_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    model = a_model(monkeypatch)
    with torch.no_grad():
        next(model.module.parameters()).fill_(float("nan"))
    with pytest.raises(IncompatibleModels, match="no finite numbers"):
        check_cache(model)


def test_what_differs_from_zero_is_far_from_it() -> None:
    zero, other = torch.zeros(1, 3, 4), torch.ones(1, 3, 4)
    assert relative_distance(zero, zero) == 0
    assert relative_distance(other, zero) == float("inf")
