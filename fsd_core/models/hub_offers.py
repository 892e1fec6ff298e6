"""A model's files at the Hugging Face hub, listed before anything is fetched. No torch: the pages read this."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError

from fsd_core.errors import FsdError, ModelUnavailable
from fsd_core.models.local_models import remember_size
from fsd_core.models.specs import HubModel
from fsd_core.models.weight_files import weights_among

_FILES = ("*.json", "*.model", "*.jinja", "*.txt")  # beside the weights; no pickles, no code
_TEMPLATES = re.compile(r"additional_chat_templates/[\w.-]+\.jinja")  # the only folder that tokenizers read
MOST_BYTES = 10**15
"""of a file"""
HUB_PATIENCE = 5
"""seconds to wait for the hub's first answer"""


class HubUnreachable(ModelUnavailable):
    """The Hugging Face hub does not answer."""

    code = "hub-unreachable"


class OfferedFile(NamedTuple):
    """A file of a model on the hub."""

    name: Annotated[str, Field(pattern=r"^(additional_chat_templates/)?[\w.-]{1,200}$")]
    size: Annotated[int, Field(ge=0, le=MOST_BYTES)]
    """bytes"""
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None
    """of the content, for large files"""
    blob: Annotated[str, Field(pattern="^[0-9a-f]{40}$")] | None
    """git's id of the content, for small files"""


class Offered(NamedTuple):
    """A model at the hub: its commit, and the files that are fetched."""

    commit: Annotated[str, Field(pattern="^[0-9a-f]{40}$")]
    files: tuple[OfferedFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)


def offered(model: HubModel) -> Offered:
    """Return what the hub has of a model, whose size is remembered.

    Raises ``ModelUnavailable``, and ``HubUnreachable`` if the hub does not answer.
    """
    with hub_errors(model):
        offer = _ask(model)
    remember_size(model, offer.size)
    return offer


def _ask(model: HubModel) -> Offered:
    from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_url

    info = HfApi().model_info(model.repo, revision=model.revision, files_metadata=True, timeout=HUB_PATIENCE)
    siblings = info.siblings or []
    weights = weights_among(f.rfilename for f in siblings if "/" not in f.rfilename)
    if not weights:
        raise ModelUnavailable(f"{model.repo} has no safetensors weights on the hub: choose another model.")
    if info.gated:  # a program without the licence is told of the files, and gets none
        get_hf_file_metadata(hf_hub_url(model.repo, weights[0], revision=info.sha), timeout=HUB_PATIENCE)
    files = tuple(_file(f) for f in siblings if f.rfilename in weights or _read(f.rfilename))
    try:
        return TypeAdapter(Offered).validate_python((info.sha, files))
    except ValidationError as error:
        wrong = error.errors()[0]
        raise ModelUnavailable(
            f"What the hub says of {model.repo} cannot be used: {str(wrong['input'])[:60]!r} is no "
            f"{wrong['loc'][-1]} of a commit or a file. Check HF_ENDPOINT."
        ) from None


def _read(name: str) -> bool:
    """Return whether a file beside the weights is read."""
    if "/" in name:
        return bool(_TEMPLATES.fullmatch(name))
    return any(Path(name).match(form) for form in _FILES)


def _file(sibling: Any) -> OfferedFile:
    if sibling.lfs is not None:
        return OfferedFile(sibling.rfilename, sibling.lfs.size, sibling.lfs.sha256, None)
    return OfferedFile(sibling.rfilename, sibling.size or 0, None, sibling.blob_id)


@contextmanager
def hub_errors(model: HubModel) -> Iterator[None]:
    """Raise ``ModelUnavailable`` with a sentence for what goes wrong with the hub in the block."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        yield
    except FsdError:
        raise
    except GatedRepoError:
        raise ModelUnavailable(
            f"{model.repo} is gated: accept its licence on huggingface.co, then set HF_TOKEN to a token of yours."
        ) from None
    except RevisionNotFoundError:
        raise ModelUnavailable(
            f"The hub has no model {model.repo} at revision {model.revision}: expected a branch, a tag or a commit."
        ) from None
    except RepositoryNotFoundError:
        raise ModelUnavailable(
            f"The hub has no model {model.repo}, or it is private: check the name, or set HF_TOKEN to a token that may "
            "read it."
        ) from None
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        if status >= 500 or not status:
            raise _unreachable(model, error) from None
        raise ModelUnavailable(
            f"The Hugging Face hub refuses {model.repo} (status {status}): check HF_TOKEN, or try again later."
        ) from None
    except Exception as error:  # errors of the HTTP library, offline mode
        raise _unreachable(model, error) from None


def _unreachable(model: HubModel, error: Exception) -> HubUnreachable:
    return HubUnreachable(
        f"{model.repo} is not on this machine, and the Hugging Face hub does not answer "
        f"({type(error).__name__}): connect, or copy the models into a folder and use path:FOLDER."
    )
