"""Small files in the shape of LiveCodeBench's."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

ADD: dict[str, Any] = {
    "question_title": "Add", "question_content": "Print the sum of two numbers.", "platform": "atcoder",
    "question_id": "abc001_a", "contest_id": "abc001", "contest_date": "2024-10-05T00:00:00", "starter_code": "",
    "difficulty": "easy", "metadata": "{}",
}  # fmt: skip
LONGEST: dict[str, Any] = {
    "question_title": "Longest", "question_content": "Return the longest word and its place.", "platform": "leetcode",
    "question_id": "3001", "contest_id": "weekly-1", "contest_date": "2025-01-12T00:00:00",
    "starter_code": "class Solution:\n    def longest(self, words: List[str], most: int) -> List[int]:\n        ",
    "difficulty": "hard", "metadata": '{"func_name": "longest"}',
}  # fmt: skip
ADD_TESTS = (("1 2\n", "3\n"), ("2 5\n", "7")), (("40 2\n", "42\n"), ("0.5 0.5\n", "1\n"))
LONGEST_TESTS = ((('["a", "bcd"]\n9', "[1, 3]"),), (('["abc", "d"]\n2', "[0, 2]"), ("[]\n1", "[]")))


def packed(pickled: bytes) -> str:
    """Return a pickle as the authors' files hold it."""
    return base64.b64encode(zlib.compress(pickled)).decode()


def cases_of(kind: str, cases: tuple[tuple[str, str], ...]) -> str:
    """Return tests as JSON."""
    return json.dumps([{"input": given, "output": expected, "testtype": kind} for given, expected in cases])


def row(problem: dict[str, Any], tests: tuple[tuple[tuple[str, str], ...], ...], **changed: Any) -> dict[str, Any]:
    """Return a problem with its public and hidden tests."""
    kind = "functional" if problem["starter_code"] else "stdin"
    public, hidden = (cases_of(kind, cases) for cases in tests)
    return problem | {"public_test_cases": public, "private_test_cases": packed(pickle.dumps(hidden))} | changed


def write_live_file(folder: Path, name: str, *rows: dict[str, Any]) -> Path:
    """Write a file of problems below a data folder."""
    path = folder / "livecodebench" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
    return path
