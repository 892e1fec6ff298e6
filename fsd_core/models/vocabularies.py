"""Whether two models share their tokens, checked before anything big is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from fsd_core.errors import IncompatibleModels, ModelUnavailable
from fsd_core.models.chat_template import template_marks
from fsd_core.models.json_files import check_sizes
from fsd_core.models.load_failures import load_failure
from fsd_core.models.tokenizer_files import with_marks


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer in a folder, whose texts hold the marks of thoughts.

    Raises ``ModelUnavailable`` if it cannot be loaded.
    """
    check_sizes(folder)
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        if isinstance(tokenizer, PreTrainedTokenizerFast):
            tokenizer._tokenizer = with_marks(tokenizer.backend_tokenizer, template_marks(tokenizer))
        return tokenizer
    except Exception as error:
        raise ModelUnavailable(load_failure(folder, "tokenizer", error, "the files of its tokenizer")) from error


def check_tokenizers(target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase, name: str) -> None:
    """Raise ``IncompatibleModels`` unless every id in both vocabularies means the same token.

    One of them may be an *extension* of the other: the same ids, followed by more, as families add tokens for tools or
    chat. A token that only the target has is never drafted, and one that only the draft has is never accepted.
    """
    target_vocab, draft_vocab = target.get_vocab(), draft.get_vocab()
    draft_tokens = {index: token for token, index in draft_vocab.items()}
    differing = sum(
        draft_tokens.get(i, token) != token or draft_vocab.get(token, i) != i for token, i in target_vocab.items()
    )
    if differing:
        raise IncompatibleModels(
            f"The two models of '{name}' do not share a tokenizer: {differing} of {len(target_vocab)} tokens differ. "
            "Speculation compares the models token by token, so choose a draft of the target's family."
        )
