"""What an engine's wheel can do beside drafting, held against docs/engines.md.

    python -m tools.engine_enumerations vllm-0.33.0-….whl sglang-0.5.23-….whl

Reads the source of a wheel without installing it: vLLM's types of methods, of tests and of drafts, SGLang's algorithms.
Ends with 1 if the page *What engines decide themselves* lacks one, so that a new version is noticed.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

PAGE = Path(__file__).parents[1] / "docs" / "engines.md"
TITLE = "## What engines decide themselves"
VLLM, SGLANG = "vllm/config/speculative.py", "sglang/srt/speculative/spec_info.py"


def values(source: str) -> Iterator[str]:
    """Yield the names of every ``Literal`` type of a module, and of the members of its ``SpeculativeAlgorithm``."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
            if ast.unparse(node.value.value) == "Literal":
                inner = node.value.slice
                found = inner.elts if isinstance(inner, ast.Tuple) else [inner]
                yield from (one.value for one in found if isinstance(one, ast.Constant) and isinstance(one.value, str))
        elif isinstance(node, ast.ClassDef) and node.name == "SpeculativeAlgorithm":
            members = (each.targets[0] for each in node.body if isinstance(each, ast.Assign))
            yield from (name.id for name in members if isinstance(name, ast.Name) and name.id != "NONE")


def named(page: str) -> set[str]:
    """Return what the section of the page names as code."""
    section = page.partition(TITLE)[2].partition("\n## ")[0]
    return set(re.findall(r"`([^`]+)`", section))


def unnamed(source: str, page: str) -> list[str]:
    """Return what a module has and the page lacks. Heads for multi-token prediction are one kind."""
    said = named(page)
    return [value for value in values(source) if value not in said and not value.endswith("_mtp")]


def main(wheels: list[str]) -> int:
    """Print what the page lacks of each wheel."""
    missing = 0
    for wheel in wheels:
        with ZipFile(wheel) as archive:
            inside = next(name for name in (VLLM, SGLANG) if name in archive.namelist())
            found = unnamed(archive.read(inside).decode(), PAGE.read_text(encoding="utf-8"))
        missing += len(found)
        print(f"{Path(wheel).name}: {'all named' if not found else 'not named: ' + ', '.join(found)}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
