"""Sentences on requests of a pair's files that are not carried out here. Loading displays them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from fsd_core.models.tokenizer_files import TOKENIZER

if TYPE_CHECKING:
    from fsd_core.models.loading import LoadedPair

_PROCESSORS: dict[str, tuple[object, ...]] = {
    "repetition_penalty": (None, 1.0), "no_repeat_ngram_size": (None, 0), "encoder_repetition_penalty": (None, 1.0),
    "bad_words_ids": (None, []), "sequence_bias": (None, {}), "suppress_tokens": (None, []),
    "begin_suppress_tokens": (None, []), "forced_bos_token_id": (None,), "forced_eos_token_id": (None,),
    "exponential_decay_length_penalty": (None,), "min_new_tokens": (None, 0), "min_length": (None, 0),
    "guidance_scale": (None, 1.0, 1),
}  # fmt: skip
"""fields of a generation config that change logits whatever is sampled, with the values that change nothing"""
_LONGEST_QUOTE = 200  # characters
_PROBE = "Hello  world, it's 12345.67 é 你好\n\n\t<b>x_y = 3</b>  "
"""a text with what tokenizers split differently"""


def notes_on(pair: LoadedPair) -> list[str]:
    """Return sentences that people should know of a pair's files."""
    every = unknown_end, rebuilt_tokenizer, unread_template, unused_processors, stepped_state
    return [note for of in every if (note := of(pair))]


def rebuilt_tokenizer(pair: LoadedPair) -> str:
    """Return a sentence on a tokenizer whose class transformers builds otherwise than its file says, if it splits
    texts otherwise."""
    tokenizer: Any = pair.tokenizer
    file = Path(tokenizer.name_or_path, TOKENIZER)
    if not file.is_file():
        return ""
    ids = Tokenizer.from_file(str(file)).encode(_PROBE, add_special_tokens=False).ids
    if ids == tokenizer(_PROBE, add_special_tokens=False)["input_ids"]:
        return ""
    return (
        f"transformers builds the tokenizer of '{pair.spec.name}' as a {type(tokenizer).__name__}, which splits texts "
        f"otherwise than its {TOKENIZER} does. It is used as transformers builds it; to use the file, set "
        "tokenizer_class to TokenizersBackend in tokenizer_config.json."
    )


def unread_template(pair: LoadedPair) -> str:
    """Return a sentence on a template that lies where only processors of several media read it, if it is the only
    one."""
    tokenizer: Any = pair.tokenizer
    if tokenizer.chat_template or not Path(tokenizer.name_or_path, "chat_template.json").is_file():
        return ""
    return (
        f"The chat template of '{pair.spec.name}' lies in chat_template.json, which tokenizers do not read: prompts go "
        "in without it. Write its text to chat_template.jinja beside it, if the model was trained with it."
    )


def stepped_state(pair: LoadedPair) -> str:
    """Return a sentence on a target whose recurrent state is continued token by token, if it is."""
    recurrent = pair.target.recurrent
    if recurrent is None or recurrent.at_once:
        return ""
    return (
        f"The target of '{pair.spec.name}' is a {pair.target.kind} model, whose state transformers' module continues "
        "by one token at a time: drafts are verified one by one, so no method is faster than the target alone."
    )


def unknown_end(pair: LoadedPair) -> str:
    """Return a sentence on an end token that the tokenizer names and the target's configuration does not, if any."""
    tokenizer: Any = pair.tokenizer
    if tokenizer.eos_token_id is None or tokenizer.eos_token_id in pair.target.eos_tokens:
        return ""
    return (
        f"The tokenizer of '{pair.spec.name}' ends texts with {tokenizer.eos_token!r}, and the target's configuration "
        "does not: a text goes on behind it. If it should end there, add its id to eos_token_id in the target's "
        "generation_config.json."
    )


def unused_processors(pair: LoadedPair) -> str:
    """Return a sentence on what the target's generation config would do to its logits and is not done here, if any.

    Temperature and the like are a setting's. These are none, and change the texts of engines that honour them.
    """
    config = pair.target.module.generation_config
    found = [f"{name} {value}" for name, idle in _PROCESSORS.items() if (value := getattr(config, name)) not in idle]
    if not found:
        return ""
    return (
        f"The generation_config.json of '{pair.spec.name}' asks for {', '.join(found)[:_LONGEST_QUOTE]}, which no "
        "method here applies: engines that do write other texts."
    )
