"""What the Hugging Face hub has of a model, asked before anything is fetched. No torch: the pages read this."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fsd_core.errors import ModelUnavailable
from fsd_core.models.specs import HubModel
from fsd_core.models.weight_files import weights_among

_FILES = ("*.json", "*.model", "*.jinja", "*.txt")  # beside the weights; no pickles, no code
_HUB_PATIENCE = 5  # seconds to wait for the hub's first answer


class HubUnreachable(ModelUnavailable):
    """The Hugging Face hub does not answer."""


class Offered(NamedTuple):
    """What the hub has of a model: its commit, and the files that are fetched, with their bytes together."""

    commit: str
    files: list[str]
    size: int


def offered(model: HubModel) -> Offered:
    """Return what the hub has of a model. Raises ``ModelUnavailable``, and ``HubUnreachable`` if it does not answer."""
    with hub_errors(model):
        return ask(model)


def ask(model: HubModel) -> Offered:
    """Return what the hub has of a model. Raises what the library of the hub raises."""
    from huggingface_hub import HfApi

    info = HfApi().model_info(model.repo, revision=model.revision, files_metadata=True, timeout=_HUB_PATIENCE)
    siblings = info.siblings or []
    weights = weights_among(f.rfilename for f in siblings if "/" not in f.rfilename)
    files = [f for f in siblings if f.rfilename in weights or any(Path(f.rfilename).match(form) for form in _FILES)]
    if not weights:
        raise ModelUnavailable(f"{model.repo} has no safetensors weights on the hub: choose another model.")
    return Offered(str(info.sha), [f.rfilename for f in files], sum(f.size or 0 for f in files))


@contextmanager
def hub_errors(model: HubModel) -> Iterator[None]:
    """Raise ``ModelUnavailable`` with a sentence for what goes wrong with the hub in the block."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        yield
    except GatedRepoError:
        raise ModelUnavailable(
            f"{model.repo} is gated: accept its licence on huggingface.co, then set HF_TOKEN to a token of yours."
        ) from None
    except (RepositoryNotFoundError, RevisionNotFoundError):
        raise ModelUnavailable(
            f"The hub has no model {model.repo} at revision {model.revision}: check both names."
        ) from None
    except ModelUnavailable:
        raise
    except Exception as error:  # errors of the HTTP library, offline mode, a full disk
        raise HubUnreachable(
            f"{model.repo} is not on this machine, and the Hugging Face hub does not answer "
            f"({type(error).__name__}): connect, or copy the models into a folder and use path:FOLDER."
        ) from None
