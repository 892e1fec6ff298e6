"""A clock that goes on while a model is asked, and stands still whatever the machine does at the moment."""

from __future__ import annotations

import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from torch import Tensor

from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import LoadedPair

TARGET_SECONDS, DRAFT_SECONDS = 0.01, 0.0005


def time_by_forwards(monkeypatch: pytest.MonkeyPatch, pair: LoadedPair, *modules: ModuleType) -> None:
    """The ``time`` of these modules passes with each forward of the pair or of a saved copy of it, less for a draft."""
    now, forward = [0.0], LanguageModel.forward

    def timed(self: LanguageModel, *arguments: Any, **more: Any) -> Tensor:
        drafts = self is pair.draft or str(self.module.name_or_path).endswith("draft")
        now[0] += DRAFT_SECONDS if drafts else TARGET_SECONDS
        return forward(self, *arguments, **more)

    monkeypatch.setattr(LanguageModel, "forward", timed)
    for module in modules:
        monkeypatch.setattr(
            module,
            "time",
            SimpleNamespace(**{**vars(time), "perf_counter": lambda: now[0], "process_time": lambda: now[0]}),
        )
