"""The pages. Gradio is told not to write type stubs when it is first imported from here, and not of the way out.

For each of its components Gradio parses the component's source twice, to compare and write a ``.pyi`` file beside it
(``gradio.component_meta.create_or_modify_pyi``), in every process anew: a third of what importing it costs. It also
makes an HTTP client that nothing here uses, and fails for a proxy or a certificate that cannot be used: what does ask
the network tells that in a sentence.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType


class _WithoutStubs(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        module.create_or_modify_pyi = lambda *_: None  # type: ignore[attr-defined]


class _WithoutNetwork(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        kept = {name: os.environ.pop(name) for name in list(os.environ) if name.upper() in _WAYS_OUT}
        try:
            super().exec_module(module)
        finally:
            os.environ |= kept


_WAYS_OUT = {"ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"}
_LOADERS = {"gradio.component_meta": _WithoutStubs, "gradio": _WithoutNetwork}


class _Gradio(MetaPathFinder):
    """Finds Gradio, and the one module of it in which the stubs are written."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _LOADERS:
            return None
        found = PathFinder.find_spec(fullname, path, target)
        if found is not None and isinstance(found.loader, SourceFileLoader):
            found.loader = _LOADERS[fullname](found.loader.name, found.loader.path)
        return found


sys.meta_path.insert(0, _Gradio())
