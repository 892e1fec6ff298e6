"""Model pairs for a notebook: by name, from a folder or from the hub."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fsd_core.config import RunConfig
from fsd_core.config.building import checked, in_python
from fsd_core.config.model_names import name_of_models
from fsd_core.errors import Malformed, ModelUnavailable
from fsd_core.models import loading, threads
from fsd_core.models.hub import OnProgress
from fsd_core.models.loading import LoadedPair
from fsd_core.models.model_pairs import get_pair
from fsd_core.models.specs import PairSpec
from fsd_core.settings import get_settings
from fsd_core.storage.records import fingerprint_of, same_model


def load_pair(
    name_or_path: str | Path | Mapping[str, str] = "bundled",
    device: str = "auto",
    dtype: str = "auto",
    on_progress: OnProgress = lambda what, done, total: None,
    weights: Mapping[str, str] | None = None,
) -> LoadedPair:
    """Load a target and its draft, with the EAGLE head if the pair has one.

    Args:
        name_or_path: A name that ``fsd-lab pairs`` lists; ``hub:OWNER/TARGET+OWNER/DRAFT``; or a folder that contains
            the folders ``target`` and ``draft`` (and ``head``), as a ``Path`` or as ``path:FOLDER``; or the models,
            each a folder or an id of the hub, by role: ``target``, and of ``draft``, ``head``, ``adapter`` and
            ``draft-adapter`` those that there are.
        device: ``cpu``, ``cuda``, ``cuda:N``, or ``auto``: ``FSD_DEVICE`` if it is set, else CUDA if available.
        dtype: ``float32``, ``bfloat16``, ``float16``, or ``auto``: the checkpoint's, if the device computes in
            it.
        on_progress: Called during a download with the fetched item, the bytes so far and the total bytes.
        weights: Fingerprints that the models must have, by role (``target``, ``draft``, ``head``, ``adapter``, and
            ``configuration`` for the files beside the weights), as an approved setting lists them.

    On a CPU this also sets torch's number of threads for the whole process: ``FSD_THREADS``, or the number that makes
    the pair's rounds fastest. Measuring that takes about a second.

    Raises:
        UnknownName: No pair has this name.
        ModelUnavailable: The weights are missing, broken or not the requested ones, cannot be fetched, or do not fit
            into memory.
        IncompatibleModels: The two models have different tokenizers.
        InvalidSetting: The device or the dtype is unknown, or this machine lacks the device.

    >>> import fsd_core
    >>> pair = fsd_core.load_pair("bundled", device="cpu")
    >>> pair.device, pair.dtype, pair.head is not None
    ('cpu', 'float32', True)
    """
    settings = get_settings()
    config = checked(RunConfig, in_python, dtype=dtype, device=settings.device if device == "auto" else device)
    threads.fix(settings.threads)
    pair = loading.load_pair(_name(name_or_path), config.device, config.dtype, on_progress)
    _check_weights(pair, weights or {})
    threads.adopt(pair)
    return pair


def _check_weights(pair: LoadedPair, wanted: Mapping[str, str]) -> None:
    for role, fingerprint in wanted.items():
        got = fingerprint_of((pair.weights or {}).get(role, "none"))
        if not same_model(got, fingerprint):
            raise ModelUnavailable(
                f"The {role} of '{pair.spec.name}' is {got} here, and {fingerprint} was asked for: get the models that "
                "were measured."
            )


def spec_of(pair: LoadedPair | str | Path) -> PairSpec:
    """Return a pair's spec without loading the pair. Raises as ``get_pair`` does."""
    return pair.spec if isinstance(pair, LoadedPair) else get_pair(_name(pair))


def _name(name_or_path: str | Path | Mapping[str, str]) -> str:
    if isinstance(name_or_path, Mapping):
        return name_of_models(name_or_path)
    if not isinstance(name_or_path, str | Path):
        raise Malformed(
            f"A pair is asked for by its name, its folder or its models by role, and {name_or_path!r} is none of "
            "these: write such as 'bundled'."
        )
    return f"path:{name_or_path}" if isinstance(name_or_path, Path) else name_or_path


def loaded(pair: LoadedPair | str | Path) -> LoadedPair:
    """Return the pair itself, or load the one of that name or folder. Raises as :func:`load_pair` does."""
    return pair if isinstance(pair, LoadedPair) else load_pair(pair)
