"""The library as a notebook uses it: docs/library.md and every docstring's example, run, and what they leave unsaid."""

from __future__ import annotations

import doctest
import math
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import fsd_core
from fsd_core import library
from fsd_core.calibration.summary import FINALIST_COLUMNS
from fsd_core.config import DecodingConfig
from fsd_core.errors import InvalidSetting, PackageMissing, UnknownName
from fsd_core.metrics import METRICS
from fsd_core.settings import Settings, get_settings
from fsd_core.storage.opening import open_database
from fsd_core.storage.repository import Repository
from tests.unit.test_components import Reader

ROOT = Path(__file__).resolve().parents[2]
QUESTION = "Question: Eva has 3 apples. Eva eats 2. How many are left?\nAnswer:"


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FSD_THREADS", "1")
        get_settings.cache_clear()
        yield
    get_settings.cache_clear()


@pytest.fixture(scope="module")
def pair() -> fsd_core.LoadedPair:
    return fsd_core.load_pair("bundled")


@pytest.fixture(scope="module")
def measured(pair: fsd_core.LoadedPair) -> fsd_core.Comparison:
    settings = [{"acceptance": "autoregressive"}, {"threshold": 0.3}, DecodingConfig()]
    return fsd_core.compare(settings, limit=3, pair=pair)


SHORTER = (
    (r"limit=[34]\b", "limit=1"),
    (r"max_new_tokens=(48|64)", "max_new_tokens=12"),
    (r"draft_length=6\)", "draft_length=3, max_new_tokens=12)"),
)
"""What of the page's code is made less in the gate: prompts and tokens, and no name."""


@pytest.mark.wide
@pytest.mark.parametrize("shorter", [SHORTER, pytest.param((), marks=pytest.mark.long, id="as it stands")])
def test_the_page_runs_from_top_to_bottom(
    capsys: pytest.CaptureFixture[str], shorter: tuple[tuple[str, str], ...]
) -> None:
    page = (ROOT / "docs" / "library.md").read_text()
    for number, less in shorter:
        page, found = re.subn(number, less, page)
        assert found, number
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    notebook: dict = {}
    for block in blocks:
        exec(compile(block, "docs/library.md", "exec"), notebook)
    said = capsys.readouterr().out
    assert said.count(notebook["completion"].text) == 2  # generated, then streamed
    assert "threshold does not apply to the rule 'speculative'" in said
    assert list(notebook["frame"]["status"]) == ["finished"] * 3
    assert len(notebook["swept"].runs) == 5
    assert notebook["histogram"].data
    found = notebook["found"]
    shown = Reader(found._repr_html_()).text  # as the pages show it
    assert found.verdict in shown
    assert all(finalist.decoding.label in shown for finalist in found.outcome.finalists)
    assert all(column in shown for column in FINALIST_COLUMNS)


@pytest.mark.wide
@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(library.__path__)])
def test_examples_of_docstrings_do_what_they_say(name: str) -> None:
    module = import_module(f"fsd_core.library.{name}")
    assert doctest.testmod(module).failed == 0


def test_every_public_name_is_there_and_explained() -> None:
    for name in fsd_core.__all__:
        assert getattr(fsd_core, name).__doc__, name
    assert set(fsd_core.__all__) <= set(dir(fsd_core))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        fsd_core.nonsense  # noqa: B018


def test_importing_it_loads_no_torch() -> None:
    uses = "dir(fsd_core); fsd_core.FsdError; fsd_core.DecodingConfig"
    code = f"import sys, fsd_core; {uses}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_pieces_are_the_completion(pair: fsd_core.LoadedPair) -> None:
    decoder = fsd_core.Decoder(pair, threshold=0.3, temperature=1.0, max_new_tokens=40)
    completion, pieces = decoder.generate(QUESTION, seed=5), list(decoder.stream(QUESTION, seed=5))
    assert "".join(piece.text for piece in pieces) == completion.text
    assert tuple(token.id for piece in pieces for token in piece.tokens) == completion.tokens
    kinds = [tuple(token.kind for token in piece.tokens) for piece in pieces]
    assert kinds == [record.kinds for record in completion.rounds]
    assert decoder.generate(QUESTION, seed=6).tokens != completion.tokens


def test_figures_of_a_completion_follow_from_its_rounds(pair: fsd_core.LoadedPair) -> None:
    done = fsd_core.Decoder(pair, threshold=0.3, max_new_tokens=40).generate(QUESTION)
    assert done.tokens_per_second == pytest.approx(len(done.tokens) / done.seconds)
    assert done.mean_acceptance_length == len(done.tokens) / len(done.rounds)
    assert 0 < (done.acceptance_rate or 0) <= 1
    assert 0 < done.time_to_first_token < done.seconds
    alone = fsd_core.Decoder(pair, acceptance="autoregressive", max_new_tokens=4).generate(QUESTION)
    assert (alone.acceptance_rate, alone.mean_acceptance_length) == (None, 1)


def test_options_and_a_config_are_the_same_method(pair: fsd_core.LoadedPair) -> None:
    config = fsd_core.Decoder(pair, threshold=0.3, max_new_tokens=8).config
    assert fsd_core.Decoder(pair, config=config).generate(QUESTION).label == config.label


def test_what_cannot_be_is_refused_in_a_sentence(pair: fsd_core.LoadedPair, tmp_path: Path) -> None:
    for wrong, sentence in (
        ({"treshold": 1}, "There is no option 'treshold'"),
        ({"draft_length": 0}, "draft_length is 0"),
        ({"draft_length": "x"}, "draft_length is 'x': expected a whole number"),
        ({"temperature": "warm"}, "temperature is 'warm': expected a number"),
        ({"config": DecodingConfig(), "threshold": 0.1}, "A config and options were given"),
    ):
        with pytest.raises(InvalidSetting, match=sentence):
            fsd_core.Decoder(pair, **wrong)
    with pytest.raises(InvalidSetting, match="The prompt is empty"):
        fsd_core.Decoder(pair).stream(" ")  # told before the first piece is asked for
    odd: Any = 5  # no checker sees what stands in a notebook
    with pytest.raises(InvalidSetting, match="A prompt is a text, and int is none"):
        fsd_core.Decoder(pair).generate(odd)
    with pytest.raises(InvalidSetting, match="and 5 is none of these"):
        fsd_core.load_pair(odd)
    odd = "many"
    with pytest.raises(InvalidSetting, match="limit is 'many': expected a whole number"):
        fsd_core.compare({}, limit=odd, pair=pair)
    with pytest.raises(InvalidSetting, match="There is no option 'thresholds'"):
        fsd_core.sweep(pair=pair, thresholds="0.1")
    assert repr(pair) == "LoadedPair('bundled', device='cpu', dtype='float32')"
    with pytest.raises(InvalidSetting, match="seed is -1"):
        fsd_core.Decoder(pair).generate(QUESTION, seed=-1)
    with pytest.raises(InvalidSetting, match="dtype is 'float8'"):
        fsd_core.load_pair("bundled", dtype="float8")
    with pytest.raises(fsd_core.FsdError, match="holds no model pair"):
        fsd_core.load_pair(tmp_path)
    with pytest.raises(UnknownName, match="nonsense"):
        fsd_core.compare({}, task="nonsense", pair=pair)
    with pytest.raises(InvalidSetting, match="nothing to compare"):
        fsd_core.compare([], pair=pair)
    with pytest.raises(InvalidSetting, match="The task 'everyday' has 80 prompts"):
        fsd_core.compare({}, limit=81, pair="qwen2.5-7b")  # before anything is fetched
    with pytest.raises(InvalidSetting, match="The task 'arithmetic' has 600 prompts"):
        fsd_core.sweep(limit=601, pair=pair, threshold=0.1)


@pytest.mark.wide
def test_the_table_has_every_option_metric_and_difference(measured: fsd_core.Comparison) -> None:
    frame = measured.to_frame()
    assert list(frame["baseline"]) == [True, False, False]
    assert set(METRICS) <= set(frame.columns)
    for key in ("accuracy", "tokens_per_second", "mean_tokens", "mean_acceptance_length"):
        low, value, high = (frame[key + end].iloc[1] for end in ("_low", "", "_high"))
        if key == "tokens_per_second" and math.isnan(low):  # the machine paused in one of the three prompts
            assert math.isnan(high)
        else:
            assert low <= value <= high
    assert list(frame.columns[:4]) == ["label", "acceptance", "divergence", "threshold"]
    tuned = frame.iloc[1]
    assert (tuned["acceptance"], tuned["threshold"], tuned["draft_length"]) == ("fsd-reducible", 0.3, 5)
    ratio = tuned["tokens_per_second"] / frame["tokens_per_second"].iloc[0]
    assert tuned["tokens_per_second_ratio"] == pytest.approx(ratio)
    assert tuned["accuracy_difference"] == pytest.approx(tuned["accuracy"] - frame["accuracy"].iloc[0])
    assert 0 <= tuned["mcnemar_p"] <= tuned["mcnemar_p_holm"] <= 1
    assert {"mean_tokens_ratio", "target_passes_ratio_low", "runaway_rate_difference"} <= set(frame.columns)
    stored = measured.runs[1].metrics or {}
    assert stored["target_passes_versus_target"] == pytest.approx(tuned["target_passes_ratio"])
    assert frame["same_text"].iloc[1] is not None


@pytest.mark.wide
def test_the_figures_are_those_of_compare(measured: fsd_core.Comparison) -> None:
    from fsd_core.plots.trade_offs import COMPARISON_FIGURES, comparison_figures

    shown = comparison_figures(measured.runs, measured.baseline, measured.prompts)
    assert [measured.figure(name) for name in COMPARISON_FIGURES] == shown
    assert measured.figure("divergence", row=1).data
    with pytest.raises(UnknownName, match="pie"):
        measured.figure("pie")
    with pytest.raises(InvalidSetting, match="There is no row 3"):
        measured.figure("divergence", row=3)


@pytest.mark.wide
def test_without_pandas_or_plotly_a_sentence_says_what_to_install(
    measured: fsd_core.Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(PackageMissing, match="pandas"):
        measured.to_frame()
    with pytest.raises(PackageMissing, match="plotly"):
        measured.figure()


def test_a_home_keeps_the_experiment_and_its_absence_nothing(
    pair: fsd_core.LoadedPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSD_HOME", str(tmp_path / "other"))
    seen = []
    kept = fsd_core.sweep(
        limit=1, pair=pair, threshold=0.2, max_new_tokens=8, home=tmp_path / "home",
        on_progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    repository = Repository(open_database(Settings(home=tmp_path / "home").resolved_database_url))
    experiment = repository.experiment(kept.experiment_id or "")
    assert (experiment.status, experiment.runs) == ("finished", kept.runs)
    assert experiment.name == "FSD reducible · js 0.2 on arithmetic"
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert fsd_core.compare({"threshold": 0.2, "max_new_tokens": 8}, limit=1, pair=pair).experiment_id is None
    assert not (tmp_path / "other").exists()
    assert len(repository.experiments(1000)) == 1
