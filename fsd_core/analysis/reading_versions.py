"""By which versions of the reading answers were scored: figures of two versions are not of one measure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fsd_core.conditions import listed
from fsd_core.tasks.readings import READING_VERSION

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView


def read_differently(runs: Sequence[RunView]) -> str:
    """Return which versions of the reading scored the runs' answers, and how to make it one; empty if it is one."""
    versions = [str(version) for version in sorted({version for run in runs for version in run.reading_versions})]
    told = f"Answers were scored by versions {listed(versions)} of the reading: not one accuracy. {_again(runs)}"
    return told if len(versions) > 1 else ""


def note_on_verdict(runs: Sequence[RunView], *, rescored: bool) -> str:
    """Return the note on a verdict that stays where the answers it rests on were ``rescored`` since, or scored before
    the current version of the reading; empty for any other."""
    if rescored:
        return f"Its answers were scored again since by version {READING_VERSION} of the reading: the verdict stays."
    if not {version for run in runs for version in run.reading_versions} - {READING_VERSION}:
        return ""
    return f"Scored before version {READING_VERSION} of the reading: the verdict stays. {_again(runs)}"


def _again(runs: Iterable[RunView]) -> str:
    outdated = [run for run in runs if {*run.reading_versions} - {READING_VERSION}]
    commands = [f"`rescore {id[:8]}`" for id in dict.fromkeys(run.experiment_id or run.id for run in outdated)]
    return f"Without generating, {listed(commands[:4])}{' and others' * (len(commands) > 4)} scores them again."
