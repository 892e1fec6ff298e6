"""Models of the Hugging Face hub by a part of their names. No torch: the pages read this."""

from __future__ import annotations

from typing import Any, NamedTuple

from fsd_core.errors import NotGiven
from fsd_core.models.hub_offers import HUB_PATIENCE, HubUnreachable

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
    return [_found(entry) for entry in _ask(query | ({"author": author} if author else {}))]


def _ask(query: dict[str, Any]) -> list[dict[str, Any]]:
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
