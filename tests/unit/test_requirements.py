"""The lists of packages: what people edit, what is held of it, what is installed, what the library asks for."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "typing-extensions",
    "authlib", "httpx2", "jinja2", "markdown-it-py", "markupsafe", "mcp", "orjson", "gradio",
    "plotly", "pandas",
}  # fmt: skip
"""what the pages alone import, and figures of the library (its group ``figures``)"""


def listed(name: str) -> list[Requirement]:
    """The packages of a list."""
    lines = (line.partition("#")[0].strip() for line in (ROOT / name).read_text().splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith("-")]


def held(name: str) -> dict[str, SpecifierSet]:
    """The versions that a list gives each package here."""
    here = (each for each in listed(name) if each.marker is None or each.marker.evaluate())
    return {canonicalize_name(each.name): each.specifier for each in here}


@pytest.mark.parametrize("name", ["requirements", "requirements-dev", "requirements-zerogpu"])
def test_all_that_people_list_is_held(name: str) -> None:
    assert all(str(each.specifier).startswith("==") for each in listed(f"{name}.txt"))
    versions = held(f"{name}.txt")
    for each in listed(f"{name}.in"):
        (only,) = versions[canonicalize_name(each.name)]
        assert each.specifier.contains(only.version), f"{each}: run make lock"


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_what_is_tested_is_what_is_held(name: str) -> None:
    installed = {package: Version(version(package)) for package in held(name)}
    assert {package: found for package, found in installed.items() if found not in held(name)[package]} == {}


def test_a_zero_gpu_space_has_the_same_packages_but_for_torch_and_spaces() -> None:
    usual, lent = ({str(each) for each in listed(f"{name}.txt")} for name in ("requirements", "requirements-zerogpu"))
    assert {Requirement(each).name for each in lent - usual} == {"torch", "spaces"}
    assert {Requirement(each).name for each in usual - lent} == {"torch"}


def test_what_is_listed_is_what_the_library_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {canonicalize_name(each.name): each for each in map(Requirement, project["dependencies"])}
    assert wanted.keys() == {canonicalize_name(each.name) for each in listed("requirements.in")} - PAGES
    assert {*project["optional-dependencies"]["figures"]} < PAGES
    for name, (only,) in held("requirements.txt").items():
        assert name not in wanted or wanted[name].specifier.contains(only.version), f"{name} is held at {only.version}"
