"""The command that times the loop."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fsd_core.cli import output, run_commands
from fsd_core.cli import shared_options as options
from fsd_core.cli.bars import progress_bar
from fsd_core.config import RunConfig, SettingConfig
from fsd_core.config.building import checked, method
from fsd_core.errors import UnfitModel
from fsd_core.settings import get_settings


def bench(
    pair: options.Pair = "bundled",
    task: Annotated[str | None, typer.Option(help="Task of the prompts. [default: the pair's own]")] = None,
    synthetic: Annotated[
        str | None, typer.Option(help="Time rounds with random weights in real sizes instead: llama-8b/1b.")
    ] = None,
    probability: Annotated[
        float, options.number("--probability", float, "With --synthetic: chance to keep a token, 0 to 1.", 0, 1)
    ] = 0.8,
    limit: options.Limit = 50,
    draft_length: Annotated[
        int, options.number("--draft-length", int, "Tokens drafted per round, here and by transformers.")
    ] = 5,
    threshold: Annotated[str, typer.Option(metavar="NUMBER|off", help="FSD's threshold on js.")] = "0.1",
    max_new_tokens: options.MaxNewTokens = 128,
    threads: Annotated[
        int | None, options.number("--threads", int, "CPU threads (FSD_THREADS, or as many as help).", 1)
    ] = None,
    dtype: options.Dtype = "float32",
    device: options.Device = None,
    json: options.Json = False,
) -> None:
    """Time our decoding loops against those of transformers on the same prompts, and rounds against the memory
    bandwidth."""
    settings = get_settings()
    if synthetic:
        report = bench_synthetic(
            synthetic, device or settings.device, dtype, threads or settings.threads, draft_length, probability
        )
        output.print_json(report) if json else output.print_rounds(report)
        return
    decoding = method(
        {"threshold": threshold, "draft_length": draft_length, "max_new_tokens": max_new_tokens}, options.flag
    )
    from fsd_core.models.model_pairs import get_pair, require_draft

    require_draft(pair)
    prompts = run_commands.find_task(task or get_pair(pair).tasks[0], settings)
    prompts.check_alone("bench")
    examples = prompts.examples(limit)
    setting = SettingConfig(pair=pair, decoding=decoding)
    config = checked(RunConfig, options.flag, setting=setting, dtype=dtype, device=device or settings.device)
    loaded = run_commands.load_for([config], threads or settings.threads)
    if loaded.target.split:
        raise UnfitModel(
            "'bench' also times transformers' own loops, which one process runs, and this target is split among more. "
            "Start it without torchrun, or measure our loop alone with 'run'."
        )

    from fsd_core.evaluation.roofline import measure_rounds
    from fsd_core.evaluation.speed import measure

    with progress_bar("Timing", limit) as advance_to:
        report = measure(
            loaded, [example.model_input for example in examples], draft_length=draft_length,
            threshold=decoding.threshold, max_new_tokens=max_new_tokens, on_prompt=advance_to,
        )  # fmt: skip
    rounds = measure_rounds(loaded.target, loaded.draft, draft_length=draft_length)
    if json:
        output.print_json(report | {"rounds": rounds})
    else:
        output.print_bench(report)
        output.print_rounds(rounds)


def bench_synthetic(
    name: str, device: str, dtype: str, threads: int | None, draft_length: int, probability: float
) -> dict[str, Any]:
    """Time rounds of a pair with random weights against the memory bandwidth.

    Raises ``UnknownName``, ``InvalidSetting`` or ``ModelUnavailable``.
    """
    import torch

    from fsd_core.evaluation.roofline import measure_rounds
    from fsd_core.models.loading import fitting_dtype, resolve_device
    from fsd_core.models.random_pairs import synthetic_pair

    if threads:
        torch.set_num_threads(threads)
    target_device = resolve_device(device)
    torch_dtype = getattr(torch, "bfloat16" if dtype == "auto" else fitting_dtype(dtype, target_device))
    pair = synthetic_pair(name, target_device, torch_dtype)
    return measure_rounds(*pair, draft_length=draft_length, probability=probability)
