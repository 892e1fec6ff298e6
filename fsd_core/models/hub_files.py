"""Files of the Hugging Face hub: searched, listed, and fetched one after the other.

Files of the hub: those of a model one after the other into a folder, or a single one.

A download that was stopped goes on where it was: in the middle of a file. The library of the hub begins such a file
anew. A file gets its name when its content is what the hub says. No torch: the command line reads this.
"""

from __future__ import annotations

import errno
import hashlib
import re
import shutil
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError

from fsd_core.errors import FsdError, ModelUnavailable, NotGiven
from fsd_core.models.sources import HubModel, remember_size, weights_among

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
        offer = _ask_offer(model)
    remember_size(model, offer.size)
    return offer


def _ask_offer(model: HubModel) -> Offered:
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


_MOST = 20


class FoundModel(NamedTuple):
    """A model that the hub has."""

    id: str
    parameters: int | None
    downloads: int
    """of the last month"""
    gated: bool


def search_models(text: str, author: str = "", limit: int = _MOST) -> list[FoundModel]:
    """Return text models with safetensors whose names contain ``text``, those that are fetched most first.

    Raises ``InvalidSetting`` for an empty text, and ``HubUnreachable``.
    """
    if not text.strip():
        raise NotGiven("The name to search for is empty: type a part of a model's name, such as Qwen2.5.")
    query: dict[str, Any] = {
        "search": text.strip()[:100], "filter": ["text-generation", "safetensors"], "sort": "downloads",
        "limit": max(1, min(limit, _MOST)), "expand": ["downloads", "gated", "safetensors"],
    }  # fmt: skip
    return [_found(entry) for entry in _ask_search(query | ({"author": author} if author else {}))]


def _ask_search(query: dict[str, Any]) -> list[dict[str, Any]]:
    from huggingface_hub import HfApi, get_session
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

    try:  # not by the library's own search, which waits without end
        address = f"{HfApi().endpoint}/api/models"
        response = get_session().get(address, params=query, headers=build_hf_headers(), timeout=HUB_PATIENCE)
        hf_raise_for_status(response)
        return [entry for entry in response.json() if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
    except Exception as error:  # of the HTTP library, offline mode, another answer than the hub's
        raise HubUnreachable(
            f"The Hugging Face hub does not answer ({type(error).__name__}), so its models cannot be searched: "
            "connect, or name models by their folders."
        ) from None


def _found(entry: dict[str, Any]) -> FoundModel:
    weights = entry.get("safetensors")
    total = weights.get("total") if isinstance(weights, dict) else None
    return FoundModel(
        entry["id"], total if isinstance(total, int) else None, int(entry.get("downloads") or 0),
        bool(entry.get("gated")),
    )  # fmt: skip


OnBytes = Callable[[int], None]
"""Called with the bytes of all files that are here. May stop the download by raising."""
_TRIES = 5
_PAUSE = 1.0  # seconds between two tries
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""errors of a disk or a quota that is full"""


class _Interrupted(Exception):
    """The connection broke, or the hub was too busy."""


def download(model: HubModel, offer: Offered, folder: Path, on_bytes: OnBytes = lambda done: None) -> None:
    """Fetch what is missing of the offered files into ``folder``, which is theirs alone.

    Raises ``ModelUnavailable``, and what the library of the hub raises for a model that it does not give.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        before = 0
        for file in offer.files:
            _fetch(model, offer, file, folder, lambda done, before=before: on_bytes(before + done))
            before += file.size
            on_bytes(before)
    except OSError as error:
        if error.errno is None:  # of the hub
            raise
        if error.errno not in NO_ROOM:
            raise ModelUnavailable(
                f"{model.repo} cannot be written to {folder.parent} ({error.strerror}): set FSD_HOME to a folder that "
                "can be written to."
            ) from None
        shutil.rmtree(folder, ignore_errors=True)  # the database needs the room
        raise ModelUnavailable(
            f"The disk of {folder.parent} was full before {model.repo} was whole, and nothing of it was kept: make "
            f"{offer.size / 1e9:.1f} GB of room, or set FSD_HOME to another disk."
        ) from None


def fetch_file(model: HubModel, offer: Offered, name: str, folder: Path) -> Path | None:
    """Return one offered file, fetched into ``folder`` unless a file of the same content is there; ``None`` without it.

    Raises as :func:`download` does.
    """
    file = next((file for file in offer.files if file.name == name), None)
    if file is None:
        return None
    path = folder / f"{file.sha256 or file.blob}-{name}"
    if not path.is_file():
        with TemporaryDirectory(prefix=".fetch-", dir=_made(folder)) as scratch:
            download(model, offer._replace(files=(file,)), Path(scratch))
            (Path(scratch) / name).replace(path)
    return path


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def fetched_bytes(offer: Offered, folder: Path) -> int:
    """Return the bytes that an earlier, stopped download left in ``folder``."""
    files = (path for file in offer.files for path in (folder / file.name, partial_of(folder / file.name)))
    return sum(path.stat().st_size for path in files if path.is_file())


def partial_of(path: Path) -> Path:
    """Return where a file is until it is whole."""
    return path.with_name(f"{path.name}.part")


def _fetch(model: HubModel, offer: Offered, file: OfferedFile, folder: Path, on_bytes: OnBytes) -> None:
    from huggingface_hub import hf_hub_url

    path = folder / file.name
    if path.is_file():
        return
    path.parent.mkdir(exist_ok=True)
    fetch_whole(hf_hub_url(model.repo, file.name, revision=offer.commit), model.repo, file, path, on_bytes)


def fetch_whole(url: str, repo: str, file: OfferedFile, path: Path, on_bytes: OnBytes) -> None:
    """Fetch one file of ``repo`` to ``path``, and go on where an earlier fetch of it stopped.

    It gets its name when its size and its hash are those of ``file``. Raises ``ModelUnavailable``, what the library of
    the hub raises for a file that it does not give, and ``OSError`` if the disk is full.
    """
    partial, failures = partial_of(path), 0
    partial.touch()
    while (here := partial.stat().st_size) < file.size:
        try:
            _go_on(url, file, partial, on_bytes)
        except _Interrupted as error:
            now = partial.stat().st_size
            failures = 1 if now > here else failures + 1
            if failures == _TRIES:
                raise ModelUnavailable(
                    f"{repo} could not be fetched whole: {file.name} broke off at {now / 1e6:,.1f} of "
                    f"{file.size / 1e6:,.1f} MB ({error}). What has arrived is kept: fetch it again to go on."
                ) from None
            on_bytes(now)
            time.sleep(_PAUSE)
    name_whole(repo, file, path)


def name_whole(repo: str, file: OfferedFile, path: Path) -> None:
    """Give a file that has arrived its name, or delete it and raise ``ModelUnavailable`` if it is not what it should
    be."""
    partial = partial_of(path)
    if not _is_whole(file, partial):
        partial.unlink()
        raise ModelUnavailable(
            f"{file.name} of {repo} did not arrive as the hub has it, and was not kept: fetch it again."
        )
    partial.replace(path)


def _go_on(url: str, file: OfferedFile, partial: Path, on_bytes: OnBytes) -> None:
    """Append what is missing of a file, and at most one piece more. Raises :class:`_Interrupted`."""
    with partial.open("r+b", buffering=0) as stream, closing(_arriving(url, stream.seek(0, 2))) as arriving:
        for position, chunk in arriving:
            if position == 0:
                stream.truncate(0)
            stream.seek(position)
            rest = memoryview(chunk)
            while rest:
                rest = rest[stream.write(rest) or 0 :]
            if stream.tell() > file.size:
                return
            on_bytes(stream.tell())
        if stream.tell() < file.size:
            raise _Interrupted("it ended early")


def _arriving(url: str, start: int) -> Generator[tuple[int, bytes]]:
    """Yield a file's bytes from ``start``, with their positions: from 0 if the hub sends the whole file."""
    from huggingface_hub import get_session
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

    headers = build_hf_headers() | {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    position = start
    try:
        with get_session().stream("GET", url, headers=headers, timeout=2 * HUB_PATIENCE) as response:
            hf_raise_for_status(response)
            position = start if response.status_code == 206 else 0
            for chunk in response.iter_bytes():
                yield position, chunk
                position += len(chunk)
    except HfHubHTTPError as error:
        if error.response is not None and error.response.status_code not in (408, 429, 500, 502, 503, 504):
            raise
        raise _Interrupted("the hub is busy") from None
    except Exception as error:  # of the HTTP library
        raise _Interrupted(type(error).__name__) from None


def _is_whole(file: OfferedFile, path: Path) -> bool:
    if path.stat().st_size != file.size:
        return False
    with path.open("rb") as stream:
        if file.sha256 is not None:
            return hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256
        if file.blob is not None:
            return (
                hashlib.sha1(b"blob %d\0" % file.size + stream.read(), usedforsecurity=False).hexdigest() == file.blob
            )
    return True
