"""The pages. Gradio is told not to write type stubs when it is first imported from here.

For each of its components Gradio parses the component's source twice, to compare and write a ``.pyi`` file beside it
(``gradio.component_meta.create_or_modify_pyi``), in every process anew: a third of what importing it costs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType


class _WithoutStubs(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        module.create_or_modify_pyi = lambda *_: None  # type: ignore[attr-defined]


class _ComponentMeta(MetaPathFinder):
    """Finds the one module of Gradio in which the stubs are written."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "gradio.component_meta":
            return None
        found = PathFinder.find_spec(fullname, path, target)
        if found is not None and isinstance(found.loader, SourceFileLoader):
            found.loader = _WithoutStubs(found.loader.name, found.loader.path)
        return found


sys.meta_path.insert(0, _ComponentMeta())
