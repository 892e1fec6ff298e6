"""Commands on traces: ``record`` and ``replay``."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fsd_core.cli import common, output
from fsd_core.cli.output import progress_bar
from fsd_core.config import DecodingConfig, RunConfig, SettingConfig
from fsd_core.config.options import METHOD_OPTIONS, SHARED_OPTIONS, checked, method
from fsd_core.errors import NotGiven, Unwritable
from fsd_core.settings import get_settings
from fsd_core.texts import DASH, count, written

if TYPE_CHECKING:
    from fsd_core.replays.prediction import Prediction
    from fsd_core.replays.recording import Validated
    from fsd_core.replays.trace_file import Trace
    from fsd_core.statistics.intervals import Estimate


OF_RULES = tuple(name for name, option in METHOD_OPTIONS.items() if option.part == "acceptance")


@common.taking(("pair", "task", "limit", *SHARED_OPTIONS, "seed", "dtype", "device"))
def record(
    file: Annotated[Path, typer.Argument(help="A new file, such as run.jsonl.gz.")],
    draft_length: Annotated[
        int, common.number_option("--draft-length", int, "Longest draft that replay can tell of, 1 to 32.")
    ] = 8,
    top: Annotated[
        int, common.number_option("--top", int, "Tokens of either model that are told apart at a position.")
    ] = 10,
    full_rows: Annotated[bool, typer.Option("--full-rows", help="Keep every token of every row. Large.")] = False,
    costs: Annotated[bool, typer.Option(help="Time the pair too, for predicted speeds.")] = True,
    json: common.Json = False,
    **option_values: Any,
) -> None:
    """Decode a task strictly once, and store what `replay` needs to predict every rule without a model."""
    from fsd_core.models.model_pairs import get_pair
    from fsd_core.replays import trace_file
    from fsd_core.replays.prediction import ROUNDS
    from fsd_core.replays.recording import check
    from fsd_core.replays.recording import record as recorded

    trace_file.check_new(file)
    check(draft_length, 0 if full_rows else top)
    settings = get_settings()
    given = common.only(option_values, SHARED_OPTIONS)
    decoding = method({"acceptance": "speculative", "draft_length": draft_length} | given, common.flag)
    setting = SettingConfig(**common.only(option_values, ["pair"]), decoding=decoding)
    run_options = {"device": settings.device} | common.run_of(option_values)
    config = checked(RunConfig, common.flag, setting=setting, **run_options)
    get_pair(config.setting.pair)
    task = common.find_task(config.task, settings)
    task.check_limit(config.limit)
    task.check_alone("replay")
    pair = common.load_for([config], settings.threads)
    with progress_bar("Recording", config.limit) as advance_to:
        trace = recorded(
            pair, task, config.limit, seed=config.seed, **decoding.shared, draft_length=draft_length,
            top=0 if full_rows else top, on_prompt=advance_to, timed_rounds=ROUNDS if costs else 0,
        )  # fmt: skip
    size = trace_file.write(trace, file)
    prompts = len(trace.prompts)
    if json:
        output.print_json({"file": str(file), "prompts": prompts, "positions": trace.positions, "bytes": size})
    else:
        print(
            f"{file.absolute()} holds {trace.positions:,} positions of {count(prompts, 'prompt')}: "
            f"{size / 1000:,.0f} kB, {size / 1000 / prompts:.1f} kB a prompt."
        )


@common.taking(
    (*OF_RULES, "draft_length"), swept=True,
    usual={"acceptance": "all that can be replayed", "draft_length": "all up to that of the record"},
)  # fmt: skip
def replay(
    file: Annotated[Path, typer.Argument(help="A file that `record` has written, here or elsewhere.")],
    measure: Annotated[bool, typer.Option("--measure", help="Decode the same settings too, with the pair.")] = False,
    pair: Annotated[str | None, typer.Option(help="Pair to measure with. [default: the one of the trace]")] = None,
    device: common.Device = None,
    table: Annotated[Path | None, typer.Option("--csv", help="Write every setting to a new CSV file.")] = None,
    page: Annotated[Path | None, typer.Option("--report", help="With --measure: write a new Markdown file.")] = None,
    figure: Annotated[
        Path | None, typer.Option(help="With --measure: draw both in a new HTML file.", metavar="FILE")
    ] = None,
    json: common.Json = False,
    **option_values: Any,
) -> None:
    """Predict acceptance, passes and speed of every rule, knob and draft length from a recorded run, without a model.
    Options select some of them."""
    from fsd_core.library import runs
    from fsd_core.replays import trace_file
    from fsd_core.replays.prediction import Replay, settings_of

    if (page or figure) and not measure:
        flag = "--report" if page else "--figure"
        raise NotGiven(f"{flag} tells predicted from measured: give --measure too, or take --csv.")
    for written_file in (table, page, figure):
        if written_file is not None:
            trace_file.check_new(written_file)
    trace = trace_file.read(file)
    configs = settings_of(trace.info, common.unswept(option_values), common.swept_flag)
    predictions = Replay(trace).predict(configs)
    rows = [runs.prediction_row(row) for row in predictions]
    measured: list[Validated] = []
    displayed = predictions if option_values.get("draft_length") else _best(predictions)
    if measure:
        measured = _measured(trace, displayed, pair or trace.info.pair, device)
        rows = [runs.checked_row(row) for row in measured]
    if table is not None:
        _write(table, _csv(rows))
    if page is not None:
        _write(page, runs.markdown(trace, measured))
    if figure is not None:
        _write(figure, _figure_html(measured))
    if json:
        costs = trace.info.costs
        trace_info = {"pair": trace.info.pair, "task": trace.info.task, "prompts": len(trace.prompts)}
        output.print_json(trace_info | {"costs": costs and costs.as_json(), "predictions": rows})
    elif measure:
        _print_measured(measured)
    else:
        _print(trace, displayed, predictions)


def _without_length(prediction: Prediction) -> DecodingConfig:
    """Return the config without its topology: the part shared by settings that differ only in draft length."""
    return prediction.config.model_copy(update={"topology": None})


def _best(predictions: list[Prediction]) -> list[Prediction]:
    """Keep one prediction per rule and knob: its fastest draft length, or the longest if costs are unknown."""
    best: dict[DecodingConfig, Prediction] = {}
    for prediction in predictions:
        if prediction.speed_up is None or prediction.is_best:
            best[_without_length(prediction)] = prediction
    return list(best.values())


def _measured(trace: Trace, predictions: list[Prediction], pair: str, device: str | None) -> list[Validated]:
    from fsd_core.replays.recording import check_name, measure

    check_name(trace.info, pair)
    settings = get_settings()
    device_name = device or settings.device
    configs = [
        checked(RunConfig, common.flag, setting=SettingConfig(pair=pair, decoding=row.config), device=device_name)
        for row in predictions
    ]
    task = common.find_task(trace.info.task, settings)
    task.check_limit(trace.prompts[-1].prompt + 1)
    loaded = common.load_for(configs, settings.threads)
    with progress_bar("Measuring", len(trace.prompts)) as advance_to:
        return measure(loaded, trace, predictions, task, advance_to)


def _print(trace: Trace, displayed: list[Prediction], predictions: list[Prediction]) -> None:
    near_best: dict[DecodingConfig, list[str]] = {}
    for row in predictions:
        near_best.setdefault(_without_length(row), []).extend([str(row.draft_length)] * row.is_near_best)
    rows = [
        (
            row.config.label, _share(row.acceptance_rate), _figure(row.tokens_per_pass), _figure(row.passes),
            _figure(row.tokens_per_second), _figure(row.speed_up), ", ".join(near_best[_without_length(row)]) or DASH,
        )
        for row in displayed
    ]  # fmt: skip
    columns = ("Accepted, %", "Acceptance length", "Passes an answer", "Tokens/s", "× target alone", "As fast at γ")
    output.print_table(("Predicted", *columns), rows)
    print(
        f"Replayed from {count(len(trace.prompts), 'strict answer')} of {trace.info.task}. Replay cannot know how an "
        "answer changes once a lenient token is kept: neither its length nor whether it is right."
    )


def _print_measured(checks: list[Validated]) -> None:
    rows = []
    for result in checks:
        prediction = result.prediction
        pairs = [
            (prediction.tokens_per_pass, result.tokens_per_pass),
            (prediction.passes, result.passes),
            (prediction.speed_up, result.speed_up),
        ]
        cells = [f"{_value(predicted)} / {_value(measured)}" for predicted, measured in pairs]
        accepted = f"{100 * prediction.acceptance_rate.value:.1f} / {100 * result.acceptance_rate.value:.1f}"
        rows.append(
            (prediction.config.label, accepted, _share(result.acceptance_error), *cells, f"{result.length:.2f}")
        )
    columns = ("Accepted, %", "Error, points", "Acceptance length", "Passes an answer", "× target alone", "× length")
    output.print_table(("Predicted / measured", *columns), rows)


def _figure_html(checks: list[Validated]) -> str:
    """Return the figure of predicted and measured passes as an HTML page."""
    from fsd_core.plots import curves
    from fsd_core.plots.style import EXPORT_CONFIG

    points = [(result.prediction.config, result.prediction.passes, result.passes) for result in checks]
    return curves.draw_predicted(curves.by_rule(points)).to_html(include_plotlyjs=True, config=EXPORT_CONFIG)


def _share(estimate: Estimate) -> str:
    ends = [None if end is None else 100 * end for end in (estimate.low, estimate.high)]
    return written(100 * estimate.value, *ends, rough=True).with_ends(" [{}, {}]")


def _figure(estimate: Estimate | None) -> str:
    return DASH if estimate is None else written(*estimate, rough=True).with_ends(" [{}, {}]")


def _value(estimate: Estimate | None) -> str:
    return DASH if estimate is None else f"{estimate.value:.2f}"


def _csv(rows: list[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]))
    writer.writeheader()
    writer.writerows(
        row | {"acceptance_at_position": " ".join(f"{v:.4f}" for v in row["acceptance_at_position"])} for row in rows
    )
    return out.getvalue()


def _write(file: Path, text: str) -> None:
    """Write a text file. Raises ``InvalidSetting`` if the disk refuses it."""
    try:
        file.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise Unwritable(f"{file} could not be written: {error.strerror}.") from None
