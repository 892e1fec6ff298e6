"""Every error that a user can cause or see.

One root, ``FsdError``. Each kind has a code, and inherits the built-in that fits, so callers may catch either. A
message is one or two sentences: what was wrong, what was expected, what to do. The command line prints it and exits
with status 2. The pages show it unchanged.
"""

from __future__ import annotations

import logging
import re
from typing import ClassVar

logger = logging.getLogger(__name__)
LONGEST_SENTENCE = 4_000  # characters
_LONG_WORD = re.compile(r"\S{500,}")
HALF_OR_NUL = re.compile("[\0\ud800-\udfff]")
"""what no database stores, and no answer in UTF-8 can hold: NUL, and halves of surrogate pairs"""


class FsdError(Exception):
    """Root of all errors that a user sees as a sentence."""

    code: ClassVar[str] = "failed"
    """Name of the kind for programs. Unlike the sentence it stays."""

    def __str__(self) -> str:
        # KeyError would print the repr of its argument. A sentence is read, logged and stored, whatever it quotes.
        text = str(self.args[0]) if self.args else self.__class__.__name__
        text = _LONG_WORD.sub(lambda word: f"{word[0][:100]}…{word[0][-20:]}", text)
        return HALF_OR_NUL.sub("\ufffd", text)[:LONGEST_SENTENCE]


class InvalidSetting(FsdError, ValueError):
    """A setting, or a combination of settings, that cannot work."""

    code = "invalid"


class UnknownChoice(InvalidSetting):
    """A name or a value that is none of those there are."""

    code = "unknown-choice"


class OutOfRange(InvalidSetting):
    """A number, a length or a count outside of its range."""

    code = "out-of-range"


class NotGiven(InvalidSetting):
    """Something that is needed and was not given."""

    code = "not-given"


class Malformed(InvalidSetting):
    """A value of another form or type than expected."""

    code = "malformed"


class Taken(InvalidSetting):
    """A name, an id or a key that already stands for something else."""

    code = "taken"


class Contradiction(InvalidSetting):
    """Values that contradict or repeat each other."""

    code = "contradiction"


class NotApplicable(InvalidSetting):
    """An option or an act for something that has no use for it."""

    code = "not-applicable"


class IncompatibleOptions(InvalidSetting):
    """A rule, drafter, topology, sampling or batch that does not go with the others."""

    code = "incompatible-options"


class UnfitModel(InvalidSetting):
    """A pair, or its model or chat template, that lacks what is asked of it."""

    code = "unfit-model"


class UnfitEngine(InvalidSetting):
    """Something that a running engine cannot be told or asked."""

    code = "unfit-engine"


class UnfitTask(InvalidSetting):
    """A task, or a file of one, that cannot be used, or not for this."""

    code = "unfit-task"


class UnfitTrace(InvalidSetting):
    """A setting or a pair that a trace cannot be replayed with."""

    code = "unfit-trace"


class UnfitEvidence(InvalidSetting):
    """Runs on which a proposal, or an act on it, cannot rest."""

    code = "unfit-evidence"


class NotCalibratable(InvalidSetting):
    """Settings among which, or a goal by which, a calibration cannot choose."""

    code = "not-calibratable"


class NotEnough(InvalidSetting):
    """Too few prompts or texts, or too little space, for what is asked."""

    code = "not-enough"


class WrongState(InvalidSetting):
    """Something that cannot be done now: it has ended, or has not, or there is nothing to do."""

    code = "wrong-state"


class Stale(InvalidSetting):
    """Something that has changed, or is no longer kept, since it was shown or measured."""

    code = "stale"


class Unreadable(InvalidSetting):
    """A file or a text that is not there, cannot be read, or is none that this program reads."""

    code = "unreadable"


class Unwritable(InvalidSetting):
    """A place that cannot be written, or has a file already."""

    code = "unwritable"


class Misconfigured(InvalidSetting):
    """A variable of the environment that is missing, wrong, or at odds with another."""

    code = "misconfigured"


class UnknownName(FsdError, KeyError):
    """A pair, task, run or other thing was requested by an unknown name."""

    code = "not-found"


class NoEquivalent(FsdError, ValueError):
    """A setting that a serving engine cannot run as it was measured."""

    code = "no-equivalent"


class IncompatibleModels(FsdError, ValueError):
    """Two models that cannot decode together, such as those of different tokenizers."""

    code = "incompatible-models"

    @classmethod
    def not_numbers(cls, model: str) -> IncompatibleModels:
        """Return the error for a model that computes no numbers. ``model``: such as ``draft``."""
        return cls(
            f"The {model} model computes values that are not numbers (NaN), so it cannot be decoded: try --dtype "
            "float32, and if that does not help, fetch its weights again."
        )


class ModelUnavailable(FsdError, OSError):
    """Weights that are missing, corrupt or cannot be fetched."""

    code = "model-unavailable"


class InsufficientMemory(ModelUnavailable):
    """A pair that does not fit into the free memory."""

    code = "insufficient-memory"


class PromptTooLong(FsdError, ValueError):
    """A prompt that leaves no room in the context of the models."""

    code = "prompt-too-long"


class Refused(FsdError, PermissionError):
    """An action that this person may not take."""

    code = "refused"


class UnderReview(InvalidSetting):
    """A setting that is proposed once more for a use, while the proposal with the id ``proposal`` is open."""

    code = "under-review"

    def __init__(self, proposal: str) -> None:
        super().__init__(
            f"This setting is under review for this use already: comment on its proposal {proposal} instead."
        )
        self.proposal = proposal


class Overtaken(FsdError, RuntimeError):
    """Somebody else acted first and changed what this action is based on."""

    code = "overtaken"


class DeviceUnavailable(FsdError, OSError):
    """A shared device that is not available now, or was taken back."""

    code = "device-unavailable"


class EngineUnavailable(DeviceUnavailable):
    """A running engine that does not answer, or answers as something else than the endpoint says."""

    code = "engine-unavailable"


class DatabaseUnavailable(FsdError, OSError):
    """A database that is locked, read-only, full, unreachable or corrupt."""

    code = "database-unavailable"


class DataDamaged(FsdError, ValueError):
    """Stored data that is not what was written."""

    code = "data-damaged"


class DatabaseOutdated(FsdError, RuntimeError):
    """A database with the schema of another version."""

    code = "database-outdated"


class TrackingUnavailable(FsdError, OSError):
    """An MLflow server or store that does not answer. Never stops a run."""

    code = "tracking-unavailable"


class NotDelivered(FsdError, OSError):
    """A message that a webhook or a mail server did not take. It is tried again later."""

    code = "not-delivered"


class PackageMissing(FsdError, ImportError):
    """A package that only a part of the library needs and that is not installed."""

    code = "package-missing"


class WorkerRunning(FsdError, RuntimeError):
    """A second worker for a home that has one."""

    code = "worker-running"


class Cancelled(FsdError):
    """Work that was stopped because a user asked for it."""

    code = "cancelled"


def user_message(error: Exception) -> str:
    """Return the sentence for a user. Errors other than ``FsdError`` are logged with their traceback."""
    if isinstance(error, FsdError):
        return str(error)
    logger.error("An unexpected error:", exc_info=error)
    return f"An unexpected error occurred ({type(error).__name__}: {error}). The log has the details."
