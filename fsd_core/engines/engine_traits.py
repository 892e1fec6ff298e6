"""Facts on each kind of engine: how it is asked, and where it counts its drafts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Takes = Literal["ids", "text", "messages"]


@dataclass(frozen=True)
class CounterNames:
    """Prometheus counters of an engine, without ``_total``; empty where there is none."""

    generated: str
    """tokens that it has written for anybody"""
    drafts: str = ""
    """rounds that drafted"""
    drafted: str = ""
    accepted: str = ""
    accepted_at: str = ""
    """accepted tokens by the label ``position``"""


@dataclass(frozen=True)
class EngineTraits:
    """How one kind of engine is asked."""

    takes: Takes
    """form of its prompts: token ids, a text that it tokenizes, or messages that its own template renders"""
    neutral: Mapping[str, Any] = field(default_factory=dict)
    """options that switch off what the model's files or the engine would add to the sampling"""
    truncates: tuple[str, ...] = ()
    """those of top_k and min_p that it takes"""
    counters: CounterNames | None = None
    no_acceptance: str | None = ""
    """why its counters say no acceptance, in one sentence; empty if they do, ``None`` if each answer does"""
    version_path: str = ""
    """address of its version"""
    lists_models: bool = True
    """whether its list of models has what it serves; otherwise it is asked for its health"""


_OFF = "The engine keeps no count of drafted tokens."
TRAITS: dict[str, EngineTraits] = {
    "vllm": EngineTraits(
        "ids", {"repetition_penalty": 1.0, "return_token_ids": True}, ("top_k", "min_p"),
        CounterNames(
            "vllm:generation_tokens", "vllm:spec_decode_num_drafts", "vllm:spec_decode_num_draft_tokens",
            "vllm:spec_decode_num_accepted_tokens", "vllm:spec_decode_num_accepted_tokens_per_pos",
        ),
        version_path="/version",
    ),
    "sglang": EngineTraits(
        "ids", {"repetition_penalty": 1.0}, ("top_k", "min_p"), CounterNames("sglang:generation_tokens"),
        "SGLang tells its acceptance as a gauge of the last moments, which cannot be converted to a count.",
        "/get_server_info",
    ),
    "llama.cpp": EngineTraits(
        "ids", {"repeat_penalty": 1.0, "typical_p": 1.0}, ("top_k", "min_p"), CounterNames("llamacpp:tokens_predicted"),
        no_acceptance=None, version_path="/props",
    ),
    "transformers-serve": EngineTraits("text", no_acceptance=_OFF, lists_models=False),
    "openai": EngineTraits("messages", no_acceptance=_OFF),
}  # fmt: skip
"""by the ``engine`` of :class:`fsd_core.rules.Served`"""
