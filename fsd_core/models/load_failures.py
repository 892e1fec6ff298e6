"""Why a model cannot be loaded, and what to do: the loaders of several libraries raise any exception."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import transformers

from fsd_core.models.json_files import read_object

_LONGEST_QUOTE = 200


def load_failure(folder: Path, what: str, error: Exception, expected: str) -> str:
    """Return a sentence on ``what`` could not be loaded from a folder, and one on what to do.

    ``expected`` says what a folder has to hold, for what is not recognised.
    """
    found = _found(folder, read_object(folder / "config.json"), error)
    if found is None:
        found = (
            f"({type(error).__name__}: {quote(str(error))}): expected {expected}",
            "Restore the folder from where it came",
        )
    reason, advice = found
    return f"The {what} in {folder} cannot be loaded {reason}. {advice}."


def _found(folder: Path, config: dict[str, Any], error: Exception) -> tuple[str, str] | None:
    """Return the cause and a remedy, or ``None`` if they are unknown."""
    message, kind = str(error), str(config.get("model_type"))[:_LONGEST_QUOTE]
    if quantisation := config.get("quantization_config"):
        method = quantisation.get("quant_method") if isinstance(quantisation, dict) else None
        return (
            f"because it is quantised ({method or 'by an unnamed method'}), and transformers says: {quote(message)}",
            "Install the package that it names, or choose the weights without quantisation",
        )
    if "trust_remote_code" in message:
        return "because it needs code of its own, which is never run here", "Choose a model that transformers knows"
    if "does not recognize this architecture" in message:
        return (
            f"because transformers {transformers.__version__} does not know models of the type {kind!r}",
            "Update transformers (pip install --upgrade transformers), or choose another model",
        )
    if "Unrecognized configuration class" in message:
        return (
            f"because transformers has no language model of the type {kind!r} that continues a text",
            "Choose a causal language model; of a model of several media, that is its text model",
        )
    if isinstance(error, ImportError) or any(name in message for name in ("sentencepiece", "tiktoken", "pip install")):
        return f"because a package is missing: {quote(message)}", "Install it"
    return None


def quote(message: str) -> str:
    """Return the beginning of an error's message, in quotes and on one line."""
    return repr(" ".join(message.split())[:_LONGEST_QUOTE])
