"""The functions of vLLM's V1 model runner that the plug-in wraps. Without a rule each calls the original at once.

``apply_sampling_constraints`` and ``rejection_sample`` (``vllm.v1.sample.rejection_sampler``) get the target's logits
before and after temperature, top-k and top-p, and are the test itself. ``SpecDecodeBaseProposer._sample_draft_tokens``
discards q where all requests are greedy, and drafts without top-k and top-p. ``WorkerBase.__init__`` knows how vLLM
drafts, and ``--additional-config``.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

import torch
from torch import Tensor
from vllm.v1.sample import rejection_sampler
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p
from vllm.v1.spec_decode import llm_base_proposer
from vllm.v1.worker.worker_base import WorkerBase

from fsd_core.config.vllm_plugin import reads_draft
from fsd_lab_vllm import active_rule
from fsd_lab_vllm.active_rule import MODELS, Drafting
from fsd_lab_vllm.verification import FlatDrafts, verify

_MARK = "_fsd_lab_wrapped"
_logits: Tensor | None = None
"""the target's logits before temperature, top-k and top-p, from one call of a step to the next"""


def wrap() -> None:
    """Wrap vLLM's functions, unless this process has done so."""
    for owner, name, wrapper in (
        (WorkerBase, "__init__", _worker),
        (rejection_sampler, "apply_sampling_constraints", _constraints),
        (rejection_sampler, "rejection_sample", _rejection),
        (llm_base_proposer.SpecDecodeBaseProposer, "_sample_draft_tokens", _drafting),
    ):
        original = getattr(owner, name)
        if not hasattr(original, _MARK):
            wrapped = wraps(original)(wrapper(original))
            setattr(wrapped, _MARK, True)
            setattr(owner, name, wrapped)


def _worker(original: Any) -> Any:
    def __init__(self: Any, vllm_config: Any, *args: Any, **keywords: Any) -> None:
        original(self, vllm_config, *args, **keywords)
        speculative = vllm_config.speculative_config
        drafting = None
        if speculative is not None:
            probabilistic = (
                speculative.rejection_sample_method == "standard" and speculative.draft_sample_method == "probabilistic"
            )
            drafting = Drafting(speculative.method, probabilistic)
        active_rule.begin(drafting, vllm_config.additional_config, second_runner=vllm_config.use_v2_model_runner)

    return __init__


def _constraints(original: Any) -> Any:
    def apply_sampling_constraints(logits: Tensor, *args: Any, **keywords: Any) -> Tensor:
        global _logits
        if active_rule.rule is not None:
            _logits = logits.clone()  # the original divides in place
        return original(logits, *args, **keywords)

    return apply_sampling_constraints


def _rejection(original: Any) -> Any:
    def rejection_sample(
        draft_token_ids: Tensor,
        num_draft_tokens: list[int],
        max_spec_len: int,
        cu_num_draft_tokens: Tensor,
        draft_probs: Tensor | None,
        target_logits: Tensor,
        bonus_token_ids: Tensor,
        sampling_metadata: Any,
        *args: Any,
        **keywords: Any,
    ) -> Tensor:
        global _logits
        logits, _logits = _logits, None
        rule, drafting = active_rule.rule, active_rule.drafting
        if rule is not None and drafting is not None and logits is not None and len(draft_token_ids):
            unknown = draft_probs is None and drafting.method in MODELS  # drafted before the rule was on, or q was lost
            drawn = drafting.probabilistic and not sampling_metadata.all_greedy
            if not (unknown and (drawn or reads_draft(rule))):
                drafts = _flat(draft_token_ids, num_draft_tokens, draft_probs, bonus_token_ids, logits,
                               sampling_metadata)  # fmt: skip
                verified = verify(
                    rule,
                    drafts,
                    max_spec_len,
                    lambda: rejection_sampler.generate_uniform_probs(
                        len(draft_token_ids), num_draft_tokens, sampling_metadata.generators, target_logits.device
                    ),
                    lambda tempered: apply_top_k_top_p(tempered, *_cuts(sampling_metadata, num_draft_tokens)),
                )
                drafted = sum(1 for count in num_draft_tokens if count)
                active_rule.add_counts(drafted, len(draft_token_ids), verified.accepted.sum())
                return verified.output
        return original(
            draft_token_ids, num_draft_tokens, max_spec_len, cu_num_draft_tokens, draft_probs, target_logits,
            bonus_token_ids, sampling_metadata, *args, **keywords,
        )  # fmt: skip

    return rejection_sample


def _flat(
    tokens: Tensor,
    counts: list[int],
    draft: Tensor | None,
    bonus: Tensor,
    logits: Tensor,
    sampling_metadata: Any,
) -> FlatDrafts:
    requests, V = len(counts), logits.shape[-1]
    if sampling_metadata.all_greedy:
        temperatures = logits.new_zeros(requests)
    else:
        temperatures = sampling_metadata.temperature[:requests]
        temperatures = torch.where(temperatures < llm_base_proposer._SAMPLING_EPS, 0.0, temperatures)
    cut = torch.zeros(requests, dtype=torch.bool, device=logits.device)
    if sampling_metadata.top_k is not None:
        cut |= sampling_metadata.top_k[:requests] < V
    if sampling_metadata.top_p is not None:
        cut |= sampling_metadata.top_p[:requests] < 1
    return FlatDrafts(tokens, counts, logits, draft, bonus.view(-1), temperatures, cut)


def _cuts(sampling_metadata: Any, counts: list[int]) -> tuple[Tensor | None, Tensor | None]:
    """Return top-k and top-p of each drafted token's request, [N] each; ``None`` where no request has any."""

    def spread(values: Tensor | None) -> Tensor | None:
        return None if values is None else values.repeat_interleave(torch.tensor(counts, device=values.device))

    return spread(sampling_metadata.top_k), spread(sampling_metadata.top_p)


def _drafting(original: Any) -> Any:
    def _sample_draft_tokens(self: Any, hidden_states: Tensor, sampling_metadata: Any) -> Any:
        if active_rule.rule is None or not self._enable_probabilistic_draft_probs:
            return original(self, hidden_states, sampling_metadata)
        logits = self.model.compute_logits(hidden_states)
        if sampling_metadata.all_greedy:
            return logits.argmax(-1), logits.softmax(-1, dtype=torch.float32)
        temperature = sampling_metadata.temperature
        temperature = torch.where(temperature < llm_base_proposer._SAMPLING_EPS, 1.0, temperature)
        tempered = logits.float() / temperature[:, None]
        cut = apply_top_k_top_p(tempered.clone(), sampling_metadata.top_k, sampling_metadata.top_p)
        tokens, _ = self._sample_from_logits(cut * temperature[:, None], sampling_metadata)
        return tokens, tempered.softmax(-1)

    return _sample_draft_tokens
