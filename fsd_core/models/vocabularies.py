"""Whether two models speak the same tokens, told before anything big is loaded."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from fsd_core.errors import IncompatibleModels, ModelUnavailable


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer in a folder. Raises ``ModelUnavailable`` if there is none that can be loaded."""
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise ModelUnavailable(
            f"The tokenizer in {folder} cannot be loaded ({type(error).__name__}). "
            "Restore the folder from where it came."
        ) from error


def check_tokenizers(target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase, name: str) -> None:
    """Raises ``IncompatibleModels`` unless every id that both vocabularies have means the same token in both.

    One of them may be an *extension* of the other: the same ids, and more behind them, as families add tokens for
    tools or chat. What only the target knows is never drafted, and what only the draft knows is never kept.
    """
    ours, theirs = target.get_vocab(), draft.get_vocab()
    of_id = {index: token for token, index in theirs.items()}
    differing = sum(of_id.get(i, token) != token or theirs.get(token, i) != i for token, i in ours.items())
    if differing:
        raise IncompatibleModels(
            f"The two models of '{name}' do not share a tokenizer: {differing} of {len(ours)} tokens differ. "
            "Speculation compares the models token by token, so choose a draft of the target's family."
        )
