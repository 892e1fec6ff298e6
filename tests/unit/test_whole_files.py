"""A file appears completely or not at all."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from fsd_core.system import whole_file


def test_the_new_file_takes_the_place_of_the_former(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    path.write_text("former")
    with whole_file(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "former"
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [("card.json", "new")]


def test_what_fails_leaves_the_former_alone(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    path.write_text("former")

    def interrupted() -> None:
        with whole_file(path) as partial:
            partial.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [("card.json", "former")]


def test_a_kill_leaves_the_former_and_what_it_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "card.json"
    path.write_text("former")
    if not (child := os.fork()):
        with whole_file(path) as partial:
            partial.write_text("half, and longer than what is written next")
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert path.read_text() == "former"
    with whole_file(path) as partial:
        partial.write_text("new")
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [("card.json", "new")]
