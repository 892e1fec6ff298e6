"""Lossless and lossy speculative decoding, measured and compared.

``load_pair``, ``load_task``, ``Decoder``, ``compare``, ``sweep``, ``calibrate``, ``record``, ``replay`` and ``log_run``
are the library (docs/library.md). ``generate`` plugs into transformers' ``model.generate(custom_generate=…)``. Each is
imported on first use, because the pages import this package and must not load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsd_core.config import DecodingConfig
    from fsd_core.decoding.decoder import generate
    from fsd_core.errors import FsdError
    from fsd_core.library.measuring import Comparison, compare, sweep
    from fsd_core.library.runs import Calibration, Predictions, calibrate, log_run, record, replay
    from fsd_core.library.text_decoder import Completion, Decoder, Piece, load_pair, load_task
    from fsd_core.models.loading import LoadedPair

__version__ = "0.1.0"

__all__ = [
    "Calibration", "Comparison", "Completion", "Decoder", "DecodingConfig", "FsdError", "LoadedPair", "Piece",
    "Predictions", "calibrate", "compare", "generate", "load_pair", "load_task", "log_run", "record", "replay", "sweep",
]  # fmt: skip

_MODULES = {
    "Calibration": "fsd_core.library.runs",
    "Comparison": "fsd_core.library.measuring",
    "Completion": "fsd_core.library.text_decoder",
    "Decoder": "fsd_core.library.text_decoder",
    "DecodingConfig": "fsd_core.config",
    "FsdError": "fsd_core.errors",
    "LoadedPair": "fsd_core.models.loading",
    "Piece": "fsd_core.library.text_decoder",
    "Predictions": "fsd_core.library.runs",
    "calibrate": "fsd_core.library.runs",
    "compare": "fsd_core.library.measuring",
    "generate": "fsd_core.decoding.decoder",
    "load_pair": "fsd_core.library.text_decoder",
    "load_task": "fsd_core.library.text_decoder",
    "log_run": "fsd_core.library.runs",
    "record": "fsd_core.library.runs",
    "replay": "fsd_core.library.runs",
    "sweep": "fsd_core.library.measuring",
}
"""where each name is defined"""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'fsd_core' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
