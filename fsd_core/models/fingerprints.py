"""Fingerprints of the models of a measurement: of their weights, and of the files beside these."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

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


def fingerprint(folder: Path) -> str:
    """Return 16 hex digits of the SHA-256 of a folder's weights; beyond 1 GiB, of a file's size and first MiB."""
    digest = hashlib.sha256()
    for file in weight_files(folder):
        size = file.stat().st_size
        digest.update(f"{file.name} {size}".encode())
        with file.open("rb") as stream:
            digest.update(stream.read() if size <= 2**30 else stream.read(2**20))
    return digest.hexdigest()[:16]


def fingerprints(folders: Mapping[str, Path]) -> dict[str, str]:
    """Return the fingerprints of the weights in a pair's folders, by role, and under :data:`CONFIGURATION` 16 hex
    digits of the SHA-256 of their configurations, tokenizers and chat templates. The fields of a configuration that say
    who wrote it do not count, and neither do spaces."""
    digest = hashlib.sha256()
    for role, folder in sorted(folders.items()):
        for name in _FILES:
            if (file := folder / name).is_file():
                data = _canonical(file.read_bytes()) if name.endswith(".json") else file.read_bytes()
                digest.update(f"{role}/{name} {len(data)} ".encode() + data)
    weights = {role: fingerprint(folder) for role, folder in folders.items()}
    return weights | {CONFIGURATION: digest.hexdigest()[:16]}


def _canonical(data: bytes) -> bytes:
    """Return JSON without its spaces, its order and the fields of :data:`_OF_WRITER`; other data as it is."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return data
    if isinstance(value, dict):
        value = {key: field for key, field in value.items() if key not in _OF_WRITER}
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
