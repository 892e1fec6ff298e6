"""Lossless and lossy speculative decoding, measured and compared.

``load_pair``, ``Decoder``, ``compare`` and ``sweep`` are the library (docs/library.md); ``generate`` plugs into
transformers' ``model.generate(custom_generate=…)``. Each is imported on first use: the pages read this package and
must not load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsd_core.config import DecodingConfig
    from fsd_core.decoding.generate import generate
    from fsd_core.errors import FsdError
    from fsd_core.library.comparison import Comparison
    from fsd_core.library.decoder import Completion, Decoder, Piece
    from fsd_core.library.measuring import compare, sweep
    from fsd_core.library.pairs import load_pair
    from fsd_core.models.loading import LoadedPair

__all__ = [
    "Comparison", "Completion", "Decoder", "DecodingConfig", "FsdError", "LoadedPair", "Piece", "compare", "generate",
    "load_pair", "sweep",
]  # fmt: skip

_MODULES = {
    "Comparison": "fsd_core.library.comparison",
    "Completion": "fsd_core.library.decoder",
    "Decoder": "fsd_core.library.decoder",
    "DecodingConfig": "fsd_core.config",
    "FsdError": "fsd_core.errors",
    "LoadedPair": "fsd_core.models.loading",
    "Piece": "fsd_core.library.decoder",
    "compare": "fsd_core.library.measuring",
    "generate": "fsd_core.decoding.generate",
    "load_pair": "fsd_core.library.pairs",
    "sweep": "fsd_core.library.measuring",
}
"""where each name is defined"""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'fsd_core' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
