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
    from fsd_core.decoding.generate import generate
    from fsd_core.errors import FsdError
    from fsd_core.library.calibrate_runs import Calibration, calibrate
    from fsd_core.library.comparison import Comparison
    from fsd_core.library.logging_runs import log_run
    from fsd_core.library.measuring import compare, sweep
    from fsd_core.library.pairs import load_pair
    from fsd_core.library.replay_runs import Predictions, record, replay
    from fsd_core.library.task_loading import load_task
    from fsd_core.library.text_decoder import Completion, Decoder, Piece
    from fsd_core.models.loading import LoadedPair

__version__ = "0.1.0"

__all__ = [
    "Calibration", "Comparison", "Completion", "Decoder", "DecodingConfig", "FsdError", "LoadedPair", "Piece",
    "Predictions", "calibrate", "compare", "generate", "load_pair", "load_task", "log_run", "record", "replay", "sweep",
]  # fmt: skip

_MODULES = {
    "Calibration": "fsd_core.library.calibrate_runs",
    "Comparison": "fsd_core.library.comparison",
    "Completion": "fsd_core.library.text_decoder",
    "Decoder": "fsd_core.library.text_decoder",
    "DecodingConfig": "fsd_core.config",
    "FsdError": "fsd_core.errors",
    "LoadedPair": "fsd_core.models.loading",
    "Piece": "fsd_core.library.text_decoder",
    "Predictions": "fsd_core.library.replay_runs",
    "calibrate": "fsd_core.library.calibrate_runs",
    "compare": "fsd_core.library.measuring",
    "generate": "fsd_core.decoding.generate",
    "load_pair": "fsd_core.library.pairs",
    "load_task": "fsd_core.library.task_loading",
    "log_run": "fsd_core.library.logging_runs",
    "record": "fsd_core.library.replay_runs",
    "replay": "fsd_core.library.replay_runs",
    "sweep": "fsd_core.library.measuring",
}
"""where each name is defined"""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'fsd_core' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
