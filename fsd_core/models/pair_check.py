"""Check of a pair before it is loaded: where its models are, what they need, whether they fit.

Drafts that a target could have: smaller models of its family, whose tokenizers are its own.

Names only say where to look. Whether the tokenizers are the same is told by their files. No torch: the pages read this.

Configurations, headers of weights and tokenizers are read, which takes little time. No torch: the pages read this.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tokenizers import Tokenizer

from fsd_core.errors import FsdError, ModelUnavailable
from fsd_core.models import sources
from fsd_core.models.hub_files import HubUnreachable, fetch_file, hub_errors, offered, search_models
from fsd_core.models.model_pairs import MODEL_PAIRS, get_pair
from fsd_core.models.sources import (
    TOKENIZER,
    HubModel,
    PairSpec,
    differing_tokens,
    folder_fault,
    loaded_bytes,
    models_folder,
    obtained,
    read_object,
    remembered_size,
    stored_numbers,
    tokenizer_folder,
    weight_files,
)

if TYPE_CHECKING:
    from fsd_core.models.loading import LoadedPair


_PROCESSORS: dict[str, tuple[object, ...]] = {
    "repetition_penalty": (None, 1.0), "no_repeat_ngram_size": (None, 0), "encoder_repetition_penalty": (None, 1.0),
    "bad_words_ids": (None, []), "sequence_bias": (None, {}), "suppress_tokens": (None, []),
    "begin_suppress_tokens": (None, []), "forced_bos_token_id": (None,), "forced_eos_token_id": (None,),
    "exponential_decay_length_penalty": (None,), "min_new_tokens": (None, 0), "min_length": (None, 0),
    "guidance_scale": (None, 1.0, 1),
}  # fmt: skip
"""fields of a generation config that change logits whatever is sampled, with the values that change nothing"""
_LONGEST_QUOTE = 200  # characters
_PROBE = "Hello  world, it's 12345.67 é 你好\n\n\t<b>x_y = 3</b>  "
"""a text with what tokenizers split differently"""


def notes_on(pair: LoadedPair) -> list[str]:
    """Return sentences that people should know of a pair's files."""
    every = unknown_end, rebuilt_tokenizer, unread_template, unused_processors, stepped_state
    return [note for of in every if (note := of(pair))]


def rebuilt_tokenizer(pair: LoadedPair) -> str:
    """Return a sentence on a tokenizer whose class transformers builds otherwise than its file says, if it splits
    texts otherwise."""
    tokenizer: Any = pair.tokenizer
    file = Path(tokenizer.name_or_path, TOKENIZER)
    if not file.is_file():
        return ""
    ids = Tokenizer.from_file(str(file)).encode(_PROBE, add_special_tokens=False).ids
    if ids == tokenizer(_PROBE, add_special_tokens=False)["input_ids"]:
        return ""
    return (
        f"transformers builds the tokenizer of '{pair.spec.name}' as a {type(tokenizer).__name__}, which splits texts "
        f"otherwise than its {TOKENIZER} does. It is used as transformers builds it; to use the file, set "
        "tokenizer_class to TokenizersBackend in tokenizer_config.json."
    )


def unread_template(pair: LoadedPair) -> str:
    """Return a sentence on a template that lies where only processors of several media read it, if it is the only
    one."""
    tokenizer: Any = pair.tokenizer
    if tokenizer.chat_template or not Path(tokenizer.name_or_path, "chat_template.json").is_file():
        return ""
    return (
        f"The chat template of '{pair.spec.name}' lies in chat_template.json, which tokenizers do not read: prompts go "
        "in without it. Write its text to chat_template.jinja beside it, if the model was trained with it."
    )


def stepped_state(pair: LoadedPair) -> str:
    """Return a sentence on a target whose recurrent state is continued token by token, if it is."""
    recurrent = pair.target.recurrent
    if recurrent is None or recurrent.at_once:
        return ""
    return (
        f"The target of '{pair.spec.name}' is a {pair.target.kind} model, whose state transformers' module continues "
        "by one token at a time: drafts are verified one by one, so no method is faster than the target alone."
    )


def unknown_end(pair: LoadedPair) -> str:
    """Return a sentence on an end token that the tokenizer names and the target's configuration does not, if any."""
    tokenizer: Any = pair.tokenizer
    if tokenizer.eos_token_id is None or tokenizer.eos_token_id in pair.target.eos_tokens:
        return ""
    return (
        f"The tokenizer of '{pair.spec.name}' ends texts with {tokenizer.eos_token!r}, and the target's configuration "
        "does not: a text goes on behind it. If it should end there, add its id to eos_token_id in the target's "
        "generation_config.json."
    )


def unused_processors(pair: LoadedPair) -> str:
    """Return a sentence on what the target's generation config would do to its logits and is not done here, if any.

    Temperature and the like are a setting's. These are none, and change the texts of engines that honour them.
    """
    config = pair.target.module.generation_config
    found = [f"{name} {value}" for name, idle in _PROCESSORS.items() if (value := getattr(config, name)) not in idle]
    if not found:
        return ""
    return (
        f"The generation_config.json of '{pair.spec.name}' asks for {', '.join(found)[:_LONGEST_QUOTE]}, which no "
        "method here applies: engines that do write other texts."
    )


_SIZE = re.compile(r"[-_.]?\d+(\.\d+)?(x\d+(\.\d+)?)?[bm](?=[-_.]|$)", re.IGNORECASE)
_MOST_ASKED = 8
_LARGEST_SHARE = 0.5
"""of the target's bytes that a draft may have; a larger one saves no time"""


class OfferedDraft(NamedTuple):
    """A draft that a target could have."""

    model: str
    """OWNER/NAME, or a folder"""
    bytes_: int
    """of its weights"""
    is_here: bool


class DraftOffers(NamedTuple):
    """The drafts, the smallest first, and how many models of the family were compared."""

    drafts: list[OfferedDraft]
    compared: int
    note: str
    """why the hub was not searched, if it was not"""


class _Facts(NamedTuple):
    """A model's bytes and the file of its tokenizer."""

    bytes_: int
    tokenizer: Path


def offered_drafts(target: Path | HubModel, known: Iterable[Path | HubModel] = ()) -> DraftOffers:
    """Return drafts for a target, of the ``known`` models that are here and of the hub.

    Raises ``ModelUnavailable`` if nothing can be said of the target.
    """
    own = _facts(target)
    here = [model for model in dict.fromkeys(known) if model != target and obtained(model) is not None]
    note = ""
    try:
        searched = [model for model in _of_the_family(target) if model != target and model not in here]
    except HubUnreachable as error:
        searched, note = [], str(error)
    drafts, compared = [], 0
    for model in [*here, *searched[:_MOST_ASKED]]:
        try:
            facts = _facts(model)
        except ModelUnavailable:  # gated, pickled, or with another kind of tokenizer
            continue
        compared += 1
        if facts.bytes_ <= _LARGEST_SHARE * own.bytes_ and differing_tokens(own.tokenizer, facts.tokenizer) == 0:
            drafts.append(OfferedDraft(_name(model), facts.bytes_, obtained(model) is not None))
    return DraftOffers(sorted(drafts, key=lambda draft: draft.bytes_), compared, note)


def _of_the_family(target: Path | HubModel) -> list[HubModel]:
    """Return the hub's models whose names differ from the target's in their sizes. Raises ``HubUnreachable``."""
    name = _name(target)
    if isinstance(target, Path):
        origin = read_object(target / "config.json").get("_name_or_path")
        name = origin if isinstance(origin, str) and _SIZE.search(origin) else target.name
    repo = name.strip("/").rpartition("/")[2]
    family = repo[: match.start()] if (match := _SIZE.search(repo)) else repo
    if not family:
        return []
    author = target.repo.partition("/")[0] if isinstance(target, HubModel) else ""
    return [HubModel(found.id) for found in search_models(family, author)]


def _facts(model: Path | HubModel) -> _Facts:
    """Return a model's size and tokenizer, which is fetched if need be. Raises ``ModelUnavailable``."""
    folder = obtained(model)
    if folder is not None:
        bytes_, tokenizer = sum(file.stat().st_size for file in weight_files(folder)), folder / TOKENIZER
    else:
        assert isinstance(model, HubModel)  # a folder is always here
        offer = offered(model)
        with hub_errors(model):
            tokenizer = fetch_file(model, offer, TOKENIZER, models_folder() / "tokenizers")
        bytes_ = sum(file.size for file in offer.files if file.name.endswith(".safetensors"))
    if tokenizer is None or not tokenizer.is_file():
        raise ModelUnavailable(f"{_name(model)} has no {TOKENIZER}, so no draft can be compared with it.")
    return _Facts(bytes_, tokenizer)


def _name(model: Path | HubModel) -> str:
    if isinstance(model, Path):
        return str(model)
    return model.repo if model.revision == "main" else f"{model.repo}@{model.revision}"


HERE, TO_FETCH, TOO_LARGE, UNUSABLE = "here", "to fetch", "too large for this machine", "cannot be used"
_OWNER_KEY = "embedding_of"  # of a draft on its target's embedding, which has no tokenizer of its own
_MARGIN, _OVERHEAD = 1.1, 5e8

CPU = "cpu"


class DeviceMemory(NamedTuple):
    """A device by torch's name for it, such as ``cuda``, and the bytes that it has in all."""

    device: str
    total: int

    @property
    def on_cpu(self) -> bool:
        return self.device == CPU


AskHub = Callable[[HubModel], int]
"""the bytes that a model takes at the hub; raises ``ModelUnavailable``"""


@dataclass
class PairCheck:
    """Result of a check."""

    facts: list[str] = field(default_factory=list)
    """a sentence on each model"""
    notes: list[str] = field(default_factory=list)
    """sentences that a user should read; the pair can be used"""
    problems: list[str] = field(default_factory=list)
    """why it cannot be used"""
    to_fetch: int = 0
    """bytes"""
    memory: int = 0
    """bytes that the models which are here take at least, once loaded"""
    fits: bool = True
    """whether the memory is enough"""
    missing: bool = False
    """whether a model has to be fetched"""
    unsized: bool = False
    """whether one of these has an unknown size"""

    @property
    def badge(self) -> str:
        """The state of the pair in a few words."""
        if self.problems:
            return UNUSABLE
        if not self.fits:
            return TOO_LARGE
        if self.missing:
            return f"{TO_FETCH}, {size(self.to_fetch)}" if self.to_fetch and not self.unsized else TO_FETCH
        return HERE


def size(bytes_: float) -> str:
    """Return a size such as ``2.9 GB``."""
    return f"{bytes_ / 1e9:.1f} GB" if bytes_ >= 1e9 else f"{max(bytes_ / 1e6, 0.1):.1f} MB"


def check_pair(spec: PairSpec, memory: DeviceMemory, ask_hub: AskHub = lambda model: offered(model).size) -> PairCheck:
    """Check a pair. ``memory``: of the device that it is to be loaded on."""
    found = PairCheck()
    folders: dict[str, Path] = {}
    for role, model in models_by_role(spec):
        folder = obtained(model)
        if folder is None and isinstance(model, HubModel):
            _check_offer(role, model, ask_hub, found)
        elif folder is not None:
            folders[role] = folder
            _check_folder(role, folder, spec.dtype, memory.on_cpu, found)
    configs = {role: read_object(folder / "config.json") for role, folder in folders.items()}
    if not found.problems:
        found.problems += _conflicts(folders, configs)
        found.notes += _short_draft(configs)
    found.notes.append(f"It can draft with {', '.join(_drafters(spec))}.")
    if spec.dtype != "auto":
        found.notes.append(f"It is loaded as {spec.dtype}, unless a setting names another dtype.")
    found.fits = _MARGIN * found.memory + _OVERHEAD <= memory.total
    if not found.fits:
        holder = "this machine" if memory.on_cpu else f"the worker's device ({memory.device})"
        found.notes.append(
            f"Its weights take about {size(found.memory)} in memory, and {holder} has {size(memory.total)}: choose "
            "smaller models, or run the worker on a larger machine."
        )
    return found


def check_name(name: str, memory: DeviceMemory) -> PairCheck:
    """Check a pair by its name, without asking the hub. ``memory``: as :func:`check_pair` takes it."""
    try:
        return check_pair(get_pair(name), memory, remembered_size)
    except FsdError as error:
        return PairCheck(problems=[str(error)])


def badge_of(name: str, memory: DeviceMemory) -> str:
    """Return the state of a pair in a few words, as :func:`check_name` finds it."""
    return check_name(name, memory).badge


def models_by_role(spec: PairSpec) -> Iterator[tuple[str, Path | HubModel]]:
    models = {
        "target": spec.target, "draft": spec.draft, "head": spec.head, "adapter": spec.adapter,
        "draft adapter": spec.draft_adapter,
    }  # fmt: skip
    yield from ((role, model) for role, model in models.items() if model is not None)


def _check_offer(role: str, model: HubModel, ask_hub: AskHub, found: PairCheck) -> None:
    found.missing = True
    try:
        bytes_ = ask_hub(model)
    except HubUnreachable as error:
        found.notes.append(str(error))
        found.unsized = True
        return
    except ModelUnavailable as error:
        found.problems.append(f"The {role}: {error}")
        return
    found.unsized |= not bytes_
    found.to_fetch += bytes_
    found.memory += bytes_
    found.facts.append(f"The {role} {model.repo} has to be fetched: {size(bytes_)}.")


def _check_folder(role: str, folder: Path, dtype: str, on_cpu: bool, found: PairCheck) -> None:
    config = read_object(folder / ("adapter_config.json" if "adapter" in role else "config.json"))
    if fault := folder_fault(role, folder):
        found.problems.append(f"The {role} in {folder} {fault}")
        return
    files = weight_files(folder)
    if "auto_map" in config:
        found.notes.append(f"The {role} names code of its own, which is never run here.")
    if "quantization_config" in config:
        found.notes.append(f"The {role} is quantised: it loads if transformers and the package that it names can.")
    bytes_ = sum(file.stat().st_size for file in files)
    found.memory += sum(loaded_bytes(file, dtype) for file in files) * (
        2 if on_cpu and config.get("model_type") == "llama" and role in ("target", "draft") else 1
    )
    if any(map(stored_numbers, files)):
        kind = config.get("model_type") or config.get("peft_type") or "unnamed"
        name = role if folder.name == role else f"{role} {folder.name}"
        found.facts.append(f"The {name} is here: {kind}, {size(bytes_)}.")


def _conflicts(folders: Mapping[str, Path], configs: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield why two models cannot decode together."""
    if "target" not in folders:
        return
    if "draft" in folders and _OWNER_KEY not in configs["draft"]:
        target, draft = (
            tokenizer_folder(folders[role], folders.get(adapter))
            for role, adapter in (("target", "adapter"), ("draft", "draft adapter"))
        )
        differing = differing_tokens(target / TOKENIZER, draft / TOKENIZER)
        if differing:
            yield (
                f"The two models do not share a tokenizer: {differing:,} tokens differ. Speculation compares them "
                "token by token, so choose a draft of the target's family."
            )
    target, head = (sources.config_number(configs.get(role, {}), "hidden_size") for role in ("target", "head"))
    reads_target = not {"target_hidden_size", "transformer_layer_config"} & set(configs.get("head", {}))
    if reads_target and head is not None and target is not None and head != target:
        yield f"The head is {head} wide and the target {target}: choose the head that was trained for this target."


def _short_draft(configs: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    both = [configs.get(role, {}) for role in ("target", "draft")]
    if any(sources.config_number(config, *sources.CONTEXTS) is None for config in both):
        return  # the family's, which its class knows
    target, draft = map(sources.context, both)
    if draft < target:
        yield f"The draft reads {draft:,} tokens and the target {target:,}: nothing is drafted beyond {draft:,}."


def _drafters(spec: PairSpec) -> list[str]:
    return (
        ["the draft model"] * (spec.draft is not None)
        + ["the EAGLE head"] * (spec.head is not None)
        + ["copies of the text"]
    )


CONFIGURATION = "configuration"
"""the role under which the files beside the weights are recorded"""
_FILES = (
    "config.json", "generation_config.json", "adapter_config.json", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "tokenizer.model",
    "chat_template.jinja", "chat_template.json",
)  # fmt: skip
"""files that decide which prompts a model is fed, what it computes and where its texts end"""
_OF_WRITER = ("transformers_version", "_name_or_path")
"""fields of a configuration that say only who wrote it"""
_State = tuple[tuple[Path, int, int, int, int], ...]


def identity_of(pair: str) -> str:
    """Return what a pair with folders of one's own is, wherever they are: the version of this form, fingerprints by
    role, the ids of models of the hub, and the pair's dtype and template arguments.

    It is empty for other pairs, which are their names, and for folders that cannot be read here.
    """
    try:
        spec = get_pair(pair)
        models = dict(models_by_role(spec)) | ({"trigrams": spec.trigrams} if spec.trigrams else {})
        folders = {role: model for role, model in models.items() if isinstance(model, Path)}
        if pair in MODEL_PAIRS or not folders:
            return ""
        parts = fingerprints(folders) | {"dtype": spec.dtype, "template": spec.template_arguments}
    except (FsdError, OSError):
        return ""
    parts |= {role: f"{it.repo}@{it.revision}" for role, it in models.items() if isinstance(it, HubModel)}
    return ";".join(["2", *(f"{part}={value}" for part, value in sorted(parts.items()) if value)])


def fingerprint(folder: Path) -> str:
    """Return 16 hex digits of the SHA-256 of a folder's weights. Of files beyond 1 GiB these cover the size and the
    first MiB, as they always did, and 16 more, after a hyphen, what follows."""
    return _fingerprint(_state(weight_files(folder)))


def fingerprints(folders: Mapping[str, Path]) -> dict[str, str]:
    """Return the fingerprints of the weights in a pair's folders, by role, and under :data:`CONFIGURATION` 16 hex
    digits of the SHA-256 of their configurations, tokenizers and chat templates. The fields of a configuration that say
    who wrote it do not count, and neither do spaces. What has not changed is not read again."""
    beside = tuple((role, _state(folder / name for name in _FILES)) for role, folder in sorted(folders.items()))
    return {role: fingerprint(folder) for role, folder in folders.items()} | {CONFIGURATION: _configuration(beside)}


def _state(files: Iterable[Path]) -> _State:
    """Return those of the files that there are, with their bytes and what changes when they do."""
    found = ((file, file.stat()) for file in files if file.is_file())
    return tuple((file, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino) for file, stat in found)


@lru_cache(maxsize=64)
def _fingerprint(files: _State) -> str:
    digest, ends = hashlib.sha256(), b""
    for file, size, *_ in files:
        digest.update(f"{file.name} {size}".encode())
        with file.open("rb") as stream:
            digest.update(stream.read() if size <= 2**30 else stream.read(2**20))
            ends += b"" if size <= 2**30 else hashlib.file_digest(stream, "sha256").digest()
    return digest.hexdigest()[:16] + (f"-{hashlib.sha256(ends).hexdigest()[:16]}" if ends else "")


@lru_cache(maxsize=64)
def _configuration(files_by_role: tuple[tuple[str, _State], ...]) -> str:
    digest = hashlib.sha256()
    for role, files in files_by_role:
        for file, *_ in files:
            data = _canonical(file.read_bytes()) if file.name.endswith(".json") else file.read_bytes()
            digest.update(f"{role}/{file.name} {len(data)} ".encode() + data)
    return digest.hexdigest()[:16]


def _canonical(data: bytes) -> bytes:
    """Return JSON without its spaces, its order and the fields of :data:`_OF_WRITER`; other data as it is."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return data
    if isinstance(value, dict):
        value = {key: field for key, field in value.items() if key not in _OF_WRITER}
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
