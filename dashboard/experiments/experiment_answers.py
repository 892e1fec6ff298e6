"""Answers to the calls of experiments, calibrations and pairs, for programs. Newer versions may add fields."""

from __future__ import annotations

from typing import Any

from typing_extensions import TypedDict


class ChoicesAnswer(TypedDict):
    """What an experiment can be made of."""

    pairs: list[dict[str, Any]]
    own_pairs: list[dict[str, Any]]
    rules: list[dict[str, Any]]
    options: list[dict[str, Any]]


class FetchAnswer(TypedDict):
    """How far a fetch is, in bytes."""

    status: str
    bytes: int | None
    of: int | None
    error: str | None


class PairAnswer(TypedDict):
    """A pair of models, and whether they are here."""

    pair: str
    title: str
    models: dict[str, Any]
    state: str
    fetch: FetchAnswer | None


class FoundAnswer(TypedDict):
    """What a check of a pair's files found."""

    facts: list[str]
    notes: list[str]
    problems: list[str]


class CheckedPairAnswer(PairAnswer, FoundAnswer):
    """A pair with what a check of its files found."""


class AddedPairAnswer(CheckedPairAnswer):
    """A pair with the name that it was given."""

    name: str


class EndpointAnswer(TypedDict):
    """A running engine that somebody has named. Its key is in the environment alone."""

    endpoint: str
    kind: str
    url: str
    model: str
    key_variable: str
    hardware: str
    added_by: str


class ModelAnswer(TypedDict):
    """A model of the hub; ``downloads`` are of the last month."""

    id: str
    parameters: int | None
    downloads: int
    gated: bool


class DraftsAnswer(TypedDict):
    """Smaller models for a target."""

    drafts: list[dict[str, Any]]
    compared: int
    note: str


class _Calibration(TypedDict):
    experiment: str
    name: str
    pair: str
    status: str
    error: str | None
    candidates: int
    minutes: float
    minutes_spent: float
    standing: str
    promise: str
    verdict: str | None
    goal: str
    task: str
    evidence: dict[str, list[str]] | None


class CalibrationAnswer(_Calibration, total=False):
    """A calibration: ``turn`` and ``sure_so_far`` until it has ended, and then what it has found."""

    turn: dict[str, Any]
    sure_so_far: dict[str, Any] | None
    reason: str
    chosen: dict[str, Any]
    finalists: list[dict[str, Any]]
    more: dict[str, Any] | None
    equal_in_time: list[dict[str, Any]]
    equal_within: float | None
    taken_share: float | None
    timed_again: bool
    target: dict[str, Any] | None


class TaskAnswer(TypedDict):
    """A version of a task; ``task`` is the name that ``start_experiment`` takes."""

    task: str
    title: str
    scorer: str
    prompts: int
    added_by: str
    notes: list[str]
