"""Lossless and lossy speculative decoding, measured and compared.

``fsd_core.generate`` plugs into transformers' ``model.generate(custom_generate=…)``. It
is imported on first use: the pages read this package and must not load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsd_core.decoding.generate import generate

__all__ = ["generate"]


def __getattr__(name: str) -> Any:
    if name == "generate":
        from fsd_core.decoding.generate import generate

        return generate
    raise AttributeError(f"module 'fsd_core' has no attribute '{name}'")
