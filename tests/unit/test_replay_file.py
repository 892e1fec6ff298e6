"""A trace as a file: it comes back as it was, and what is no trace is refused in one sentence."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fsd_core.config import ChainTopology, DecodingConfig, SamplingConfig
from fsd_core.errors import DataDamaged, Unreadable, Unwritable
from fsd_core.replays import trace_file
from fsd_core.replays.prediction import Replay
from fsd_core.replays.trace_file import Costs, Trace
from fsd_core.rules import Fuzzy, Lenience, Rule, Typical
from tests.tools.synthetic_traces import random_rows, trace_of

RESTRICTED = SamplingConfig(temperature=0.7, top_p=0.9)
COSTS = Costs(target_alone=3.5, rounds={1: 4.0, 5: 6.0}, draft_pass=0.5, rules={"mentored": 2.0})


@pytest.fixture(scope="module")
def trace() -> Trace:
    rows = random_rows(RESTRICTED, 20, 6, 300, seed=1)
    uniforms = torch.rand(20, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    made = trace_of(rows, uniforms, RESTRICTED, 10)
    return Trace(made.info.model_copy(update={"costs": COSTS}), made.prompts)


@pytest.fixture
def file(trace: Trace, tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl.gz"
    trace_file.write(trace, path)
    return path


def settings() -> list[DecodingConfig]:
    rules: list[Rule] = [Lenience(), Fuzzy(divergence="ag", threshold=0.3), Typical()]
    return [
        DecodingConfig(acceptance=rule, topology=ChainTopology(length=length), sampling=RESTRICTED)
        for rule in rules
        for length in (2, 5)
    ]


def test_a_trace_comes_back(trace: Trace, file: Path) -> None:
    back = trace_file.read(file)
    assert back.info == trace.info
    for own, theirs in zip(back.prompts, trace.prompts, strict=True):
        assert (own.prompt, own.tokens, own.limit, own.kept) == (
            theirs.prompt, theirs.tokens, theirs.limit, theirs.kept
        )  # fmt: skip
        assert own.allowed == theirs.allowed
        for name, column in own.columns.items():
            np.testing.assert_allclose(column, theirs.columns[name], rtol=1e-6, err_msg=name)
    assert Replay(back).predict(settings()) == Replay(trace).predict(settings())


def test_infinity_comes_back(trace: Trace, file: Path) -> None:
    """A draft that top-p has cut writes what the target cannot: an infinite divergence is no number of JSON."""
    trace.prompts[0].columns["ag"][3] = np.inf
    again = file.with_name("again.gz")
    trace_file.write(trace, again)
    assert np.isinf(trace_file.read(again).prompts[0].columns["ag"][3])


def test_an_unpacked_file_is_read_too(file: Path) -> None:
    plain = file.with_name("run.jsonl")
    plain.write_bytes(gzip.decompress(file.read_bytes()))
    assert trace_file.read(plain).positions == trace_file.read(file).positions


def test_the_format_is_the_documented_one(file: Path) -> None:
    first, prompt, last = gzip.decompress(file.read_bytes()).decode().splitlines()
    assert json.loads(first)["format"] == "fsd-lab-trace"
    assert set(json.loads(last)) == {"sha256"}
    documented = Path("docs/replay.md").read_text(encoding="utf-8")
    names = {*json.loads(first), *json.loads(prompt), *json.loads(prompt)["columns"], *json.loads(prompt)["rows"]}
    assert not {name for name in names if f"`{name}`" not in documented}


@pytest.mark.parametrize("spoil", [lambda d: d[:-30], lambda d: b"", lambda d: b"no trace", lambda d: d[:50] + d[51:]])
def test_a_damaged_file_is_refused(file: Path, spoil: Callable[[bytes], bytes]) -> None:
    file.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(DataDamaged, match="no whole trace"):
        trace_file.read(file)


def test_a_changed_number_is_noticed(file: Path) -> None:
    text = gzip.decompress(file.read_bytes())
    file.write_bytes(gzip.compress(text.replace(b'"tokens":', b'"tokens":1', 1)))
    with pytest.raises(DataDamaged, match="checksum differs"):
        trace_file.read(file)


def _rewritten(file: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """With a right checksum."""
    first, prompt = map(json.loads, gzip.decompress(file.read_bytes()).splitlines()[:2])
    change(first, prompt)
    body = "".join(json.dumps(line) + "\n" for line in (first, prompt)).encode()
    file.write_bytes(body + json.dumps({"sha256": hashlib.sha256(body).hexdigest()}).encode() + b"\n")


@pytest.mark.parametrize(
    "change",
    [
        lambda info, prompt: info.update(format="other"),
        lambda info, prompt: info.pop("pair"),
        lambda info, prompt: info.update(draft_length="long"),
        lambda info, prompt: info.update(draft_length=2),
        lambda info, prompt: prompt.update(tokens=prompt["tokens"] + 1),
        lambda info, prompt: prompt["rounds"].pop(),
        lambda info, prompt: prompt["columns"]["uniform"].pop(),
        lambda info, prompt: prompt["columns"].pop("js"),
        lambda info, prompt: prompt["columns"]["place"].__setitem__(0, 99),
        lambda info, prompt: prompt["rows"]["target"][0].append(0.1),
        lambda info, prompt: prompt["rows"]["target"][0].__setitem__(0, 2.0),
        lambda info, prompt: prompt["rows"]["target"][0].__setitem__(0, "x"),
        lambda info, prompt: prompt["rest"]["draft"][0].pop(),
        lambda info, prompt: prompt.update(allowed=None),
        lambda info, prompt: prompt.update(kept=7),
    ],
)
def test_what_no_run_has_recorded_is_refused(file: Path, change: Callable[..., Any]) -> None:
    _rewritten(file, change)
    with pytest.raises(DataDamaged, match="no trace of this program"):
        trace_file.read(file)


def test_a_newer_version_is_refused(file: Path) -> None:
    _rewritten(file, lambda info, prompt: info.update(version=2))
    with pytest.raises(Unreadable):
        trace_file.read(file)


def test_a_file_that_is_there_is_left_alone(trace: Trace, file: Path) -> None:
    before = file.read_bytes()
    with pytest.raises(Unwritable):
        trace_file.write(trace, file)
    assert file.read_bytes() == before
    with pytest.raises(Unwritable):
        trace_file.write(trace, file.parent / "none" / "run.gz")
    with pytest.raises(Unreadable):
        trace_file.read(file.parent / "none.gz")
