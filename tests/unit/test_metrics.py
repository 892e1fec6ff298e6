"""Where times are one figure, where they are not, and in which words that is said."""

from __future__ import annotations

import doctest

import pytest

from fsd_core import metrics, provenance
from fsd_core.metrics import (
    EXECUTOR,
    SHARED_DEVICE,
    SHARED_EXECUTOR,
    UNRECORDED,
    conditions_of,
    differences,
    mixed,
    mixed_sentence,
    phrases,
    sessions_sentence,
)

TWO = {
    "cpu": "AMD EPYC",
    "device": "cpu",
    "dtype": "float32",
    "threads": 2,
    "torch": "2.13.0",
    "git_revision": "a" * 40,
}
ONE = TWO | {"threads": 1}


def test_what_decides_speed_is_taken_from_the_provenance() -> None:
    found = conditions_of(provenance.collect("cuda", "bfloat16", 3, "NVIDIA H200"))
    assert {"device": "cuda", "dtype": "bfloat16", "threads": 3, "gpu": "NVIDIA H200"}.items() <= found.items()
    assert {"cpu", "cpu_count", "python", "torch", "transformers"} <= set(found)
    assert set(found) <= {condition.key for condition in metrics.CONDITIONS}  # not those of MLflow, say
    assert conditions_of({"device": "cpu", "git_revision": None, "versions": {"torch": "2"}}) == {
        "device": "cpu", "torch": "2",
    }  # fmt: skip
    assert conditions_of(None) == {}


@pytest.mark.parametrize(
    ("sittings", "names"),
    [
        ([], ()),
        ([TWO], ()),
        ([TWO, dict(TWO)], ()),
        ([TWO, ONE], ("number of threads",)),
        ([TWO, ONE | {"git_revision": "b" * 40}], ("number of threads", "commit")),
        ([TWO, TWO | {"git_revision": "a" * 40 + "+changes"}], ("commit",)),
        ([TWO, TWO | {"gpu": "NVIDIA H200"}], ()),  # what is not known differs from nothing
        ([{}], ()),
        ([{}, TWO], (UNRECORDED,)),
        ([{}, TWO, ONE], ("number of threads", UNRECORDED)),
        ([TWO | {EXECUTOR: "ZeroGPU"}], (SHARED_EXECUTOR,)),
        ([TWO, ONE | {EXECUTOR: "ZeroGPU"}], (SHARED_EXECUTOR, "number of threads")),
    ],
)
def test_a_speed_is_one_figure_where_nothing_that_decides_it_differs(
    sittings: list[dict[str, object]], names: tuple[str, ...]
) -> None:
    assert mixed(sittings) == names
    assert bool(mixed_sentence(names)) == bool(names)


def test_what_the_mark_says() -> None:
    assert mixed_sentence(("number of threads", "dtype", "commit")) == (
        "Measured under conditions that differ in number of threads, dtype and commit: not one figure."
    )
    assert mixed_sentence(("commit", UNRECORDED)).endswith("were not recorded, so this may not be one figure.")


def test_what_a_shared_executor_s_mark_says() -> None:
    assert mixed_sentence((SHARED_EXECUTOR,)) == SHARED_DEVICE
    assert (
        phrases(ONE | {EXECUTOR: "ZeroGPU"}, [SHARED_EXECUTOR, "number of threads"]) == "by ZeroGPU and with 1 thread"
    )
    lent = [TWO | {EXECUTOR: "ZeroGPU"}]
    assert differences([lent, lent]) == []
    (found,) = differences([lent, [TWO | {EXECUTOR: "the web process"}]])
    assert found == (SHARED_EXECUTOR, ("ZeroGPU", "the web process"))


def test_runs_differ_where_their_sittings_are_not_the_same() -> None:
    assert differences([[TWO], [TWO]]) == []
    assert differences([[TWO, ONE], [ONE, TWO]]) == []  # each mixed, and both alike
    (found,) = differences([[TWO, ONE], [TWO], [{}]])
    assert found == ("number of threads", ("1", "2"))


@pytest.mark.parametrize(
    ("sittings", "sentence"),
    [
        ([(TWO, range(24))], ""),
        ([(TWO, range(12)), (ONE, ())], ""),
        ([(TWO, range(12)), (TWO | {"gpu": "NVIDIA H200"}, range(12, 24))], ""),
        (
            [(TWO, range(12)), (ONE, range(12, 24))],
            "Prompts 1 to 12 were measured with 2 threads, the other 12 with 1 thread.",
        ),
        ([(TWO, [0]), (ONE, [1])], "Prompt 1 was measured with 2 threads, the other with 1 thread."),
        ([(TWO, [0, 2]), (ONE, [1, 3, 4])], "2 prompts were measured with 2 threads, the other 3 with 1 thread."),
        (
            [(TWO, [0, 1]), (ONE, [4]), (ONE | {"git_revision": "b" * 40 + "+changes"}, [2, 3])],
            "Prompts 1 to 2 were measured with 2 threads and at commit aaaaaaaaaaaa, prompts 3 to 4 with 1 thread and "
            "at commit bbbbbbbbbbbb with changes, the other with 1 thread and at commit aaaaaaaaaaaa.",
        ),
        (
            [({}, [0, 1, 2]), (TWO, [3, 4])],
            "Prompts 1 to 3 were measured under conditions that were not recorded, the other 2 under recorded ones.",
        ),
    ],
)
def test_which_prompts_were_measured_how(sittings: list[tuple[dict[str, object], range]], sentence: str) -> None:
    assert sessions_sentence(sittings) == sentence


def test_all_conditions_in_words() -> None:
    assert phrases(TWO) == (
        "on cpu, on AMD EPYC, in float32, with 2 threads, with torch 2.13.0 and at commit aaaaaaaaaaaa"
    )


def test_the_examples_are_true() -> None:
    assert doctest.testmod(metrics).attempted == 1
    assert doctest.testmod(metrics).failed == 0
