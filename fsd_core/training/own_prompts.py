"""Prompts that a target writes itself: it goes on from the beginning of a user's turn (Xu et al. 2024, Magpie, arXiv
2406.08464). They are as many as one likes, of every kind that the target was taught, and of no benchmark."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerBase

from fsd_core.errors import NotEnough, UnfitModel
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.prompt import render_prompt
from fsd_core.training.distillation import answer
from fsd_core.whole_files import whole_file

LONGEST = 128  # tokens of a prompt; one that has not ended by then is left out
_MARK = "PROMPT"


def _beginning(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the token ids before a user's first word. Raises ``InvalidSetting`` without a chat template."""
    if not tokenizer.chat_template:
        raise UnfitModel(
            "The target has no chat template, so it cannot write prompts of its own: give --own-prompts 0, and a "
            "folder of questions in FSD_DATA_DIR."
        )
    before, _, _ = render_prompt(tokenizer, _MARK)[0].partition(_MARK)
    return tokenizer(before, add_special_tokens=False)["input_ids"]


def own_prompts(
    target: LanguageModel,
    tokenizer: PreTrainedTokenizerBase,
    count: int,
    file: Path,
    side_by_side: int,
    seed: int = 0,
) -> list[str]:
    """Return ``count`` prompts, all different, and keep them in ``file``, from which a later call takes them.
    ``side_by_side`` are written at once.

    Raises ``InvalidSetting`` for a target without a chat template, and if it hardly writes anything new.
    """
    if not count:
        return []
    if file.exists():
        return json.loads(file.read_text(encoding="utf-8"))[:count]
    beginning, found, generator = _beginning(tokenizer), dict[str, None](), torch.Generator().manual_seed(seed)
    drawn = torch.zeros(side_by_side, dtype=torch.bool)
    while len(found) < count:
        before = len(found)
        texts = answer(target, [beginning] * side_by_side, drawn, LONGEST, generator, stored=0)
        written = (text.tokens[text.prompt :].tolist() for text in texts)
        ended = (tokens[:-1] for tokens in written if tokens[-1] in target.eos_tokens)
        prompts = (str(tokenizer.decode(tokens, skip_special_tokens=True)).strip() for tokens in ended)
        found |= dict.fromkeys(filter(None, prompts))
        if len(found) - before < side_by_side / 100:
            raise NotEnough(
                f"The target wrote {len(found):,} different prompts and hardly any new one among the last "
                f"{side_by_side:,}: ask for fewer than the {count:,} of --own-prompts."
            )
    kept = list(found)[:count]
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(file) as partial:
        partial.write_text(json.dumps(kept), encoding="utf-8")
    return kept
