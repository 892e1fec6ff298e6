"""Every error that a user can cause or see.

One root, ``FsdError``. Each leaf also inherits the built-in that fits, so callers may catch either. A message is one or
two sentences: what was wrong, what was expected, what to do. The command line prints it and exits with status 2. The
pages show it unchanged.
"""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


class FsdError(Exception):
    """Root of all errors that a user sees as a sentence."""

    def __str__(self) -> str:
        # KeyError would print the repr of its argument.
        return str(self.args[0]) if self.args else self.__class__.__name__


class InvalidSetting(FsdError, ValueError):
    """A setting, or a combination of settings, that cannot work."""


class UnknownName(FsdError, KeyError):
    """A pair, task, run or other thing was requested by an unknown name."""


class NoEquivalent(FsdError, ValueError):
    """A setting that a serving engine cannot run as it was measured."""


class IncompatibleModels(FsdError, ValueError):
    """Two models that cannot decode together, such as those of different tokenizers."""

    @classmethod
    def not_numbers(cls, model: str) -> IncompatibleModels:
        """Return the error for a model that computes no numbers. ``model``: such as ``draft``."""
        return cls(
            f"The {model} model computes values that are not numbers (NaN), so it cannot be decoded: try --dtype "
            "float32, and if that does not help, fetch its weights again."
        )


class ModelUnavailable(FsdError, OSError):
    """Weights that are missing, corrupt or cannot be fetched."""


class InsufficientMemory(ModelUnavailable):
    """A pair that does not fit into the free memory."""


class PromptTooLong(FsdError, ValueError):
    """A prompt that leaves no room in the context of the models."""


class Refused(FsdError, PermissionError):
    """An action that this person may not take."""


class UnderReview(InvalidSetting):
    """A setting that is proposed once more for a use, while the proposal with the id ``proposal`` is open."""

    def __init__(self, proposal: str) -> None:
        super().__init__(
            f"This setting is under review for this use already: comment on its proposal {proposal} instead."
        )
        self.proposal = proposal


class Overtaken(FsdError, RuntimeError):
    """Somebody else acted first and changed what this action is based on."""


class DeviceUnavailable(FsdError, OSError):
    """A shared device that is not available now, or was taken back."""


class EngineUnavailable(DeviceUnavailable):
    """A running engine that does not answer, or answers as something else than the endpoint says."""


class DatabaseUnavailable(FsdError, OSError):
    """A database that is locked, read-only, full, unreachable or corrupt."""


class DataDamaged(FsdError, ValueError):
    """Stored data that is not what was written."""


class DatabaseOutdated(FsdError, RuntimeError):
    """A database with the schema of another version."""


class TrackingUnavailable(FsdError, OSError):
    """An MLflow server or store that does not answer. Never stops a run."""


class NotDelivered(FsdError, OSError):
    """A message that a webhook or a mail server did not take. It is tried again later."""


class PackageMissing(FsdError, ImportError):
    """A package that only a part of the library needs and that is not installed."""


class WorkerRunning(FsdError, RuntimeError):
    """A second worker for a home that has one."""


class Cancelled(FsdError):
    """Work that was stopped because a user asked for it."""


def user_message(error: Exception) -> str:
    """Return the sentence for a user. Errors other than ``FsdError`` are logged with their traceback."""
    if isinstance(error, FsdError):
        return str(error)
    logger.error("An unexpected error:", exc_info=error)
    return f"An unexpected error occurred ({type(error).__name__}: {error}). The log has the details."
