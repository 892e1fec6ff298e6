"""Fingerprints of the models of a measurement: of their weights, and of the files beside these."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from fsd_core.errors import FsdError
from fsd_core.models.model_pairs import MODEL_PAIRS, get_pair
from fsd_core.models.pair_check import models_by_role
from fsd_core.models.specs import HubModel
from fsd_core.models.weight_files import weight_files

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
