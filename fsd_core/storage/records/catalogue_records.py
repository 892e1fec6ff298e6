"""Parts of a run: settings, custom tasks and pairs, running engines."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fsd_core.config import SettingConfig
from fsd_core.rules import Served


@dataclass(frozen=True)
class SettingView:
    """A pair and its decoding configuration. Its id is the hash of its content."""

    id: str
    pair: str
    label: str
    config: SettingConfig
    created_at: datetime


@dataclass(frozen=True)
class SettingSummary:
    """A setting in a list, with how often it was measured."""

    id: str
    pair: str
    label: str
    runs: int
    last: datetime
    """when its latest run was created"""
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class TaskView:
    """A version of a custom task, without its content."""

    name: str
    version: str
    """first 16 hex digits of the SHA-256 of its content"""
    title: str
    scorer: str
    prompts: int
    added_by: str
    added_at: datetime

    @property
    def full_name(self) -> str:
        """Name under which runs are recorded, such as ``support@0123456789abcdef``."""
        return f"{self.name}@{self.version}"


@dataclass(frozen=True)
class OwnPair:
    """A version of a pair that somebody has named."""

    name: str
    version: str
    """first 16 hex digits of the SHA-256 of ``models``"""
    models: str
    """the name under which runs are recorded, which says the models (:mod:`fsd_core.config.model_names`)"""
    added_by: str
    added_at: datetime


@dataclass(frozen=True)
class ServedEngine:
    """A running engine that somebody has named. Its key is in the environment alone."""

    served: Served
    key_variable: str
    """name of the environment variable that holds its key; empty for none"""
    added_by: str
    added_at: datetime
    hardware: str = ""
    """hardware of the engine, as a person described it"""
    guarded: bool = False
    """whether only public hosts and those that the operator names may be asked: somebody added it who may not choose
    any"""

    @property
    def name(self) -> str:
        return self.served.endpoint
