"""From a user's prompt to the tokens that a model is fed, by its chat template and tokenizer.

A chat template came with a model or from a user: it may be broken or never end. So it is rendered in a process of its
own (:mod:`fsd_core.confined`), with bounds in time and memory that the kernel enforces.
"""

from __future__ import annotations

import atexit
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import permutations
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from fsd_core.config import TemplateConfig
from fsd_core.config.decoding_config import GIVEN
from fsd_core.confined import LONGEST_REFUSAL, ConfinedProcess, ProcessEnded, RequestRefused, as_json, from_json
from fsd_core.errors import IncompatibleModels, InvalidSetting, ModelUnavailable, NotGiven, PromptTooLong, UnfitModel
from fsd_core.frozen import text_hash
from fsd_core.models.conversation import TOOLS, Message, ToolMessage, fields_of, split_thoughts
from fsd_core.models.hub_files import fetch_file, hub_errors, offered
from fsd_core.models.load_failures import load_failure
from fsd_core.models.sources import (
    TOKENIZER,
    HubModel,
    check_sizes,
    models_folder,
    obtained,
    tokenizer_folder,
    with_marks,
)

TEMPLATE_MEMORY = 512 << 20
"""bytes beside those of the interpreter and its libraries"""
LONGEST_RENDERED = 64 << 20
"""bytes"""
_renderer = ConfinedProcess("renders", TEMPLATE_MEMORY, LONGEST_RENDERED)
"""serves all calls of this process"""
atexit.register(_renderer.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renderer.forget)


def ask_renderer(request: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return what :mod:`fsd_core.confined` answers within ``seconds`` of a processor.

    Raises ``ProcessEnded`` if the request takes more time or memory, or breaks the process.
    """
    try:
        return from_json(_renderer.ask(as_json(request), seconds))
    except RequestRefused as refused:
        return {"failed": str(refused)}


TEMPLATE_SECONDS = 5.0
"""of a processor"""
_WHOLE = ("user", "assistant", "tool")
"""roles whose text has to be in a rendered prompt"""
_TAG = re.compile(r"<[^<>\s'\"]{1,40}>|\[/?[A-Za-z_:|]{2,40}\]|◁[^◁▷\s]{1,40}▷")
_NOT_NAME = re.compile(r"(?i)start|begin|end|open|close|prefix|suffix|[^a-z0-9]")
_MOST_TAGS = 64
_DIRECTIVES = tuple(f"%{flag}{letter}" for flag in ("-", "") for letter in "aAbBcdHIjmMpSUwWxXyYZ")
"""of ``strftime``"""


def render(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], template: TemplateConfig) -> str:
    """Return messages as the tokenizer's chat template writes them, with the tools and the calls that they hold.

    Raises ``InvalidSetting`` for arguments that the template does not read, for messages that it refuses, and for tools
    or calls that it does not read; ``ModelUnavailable`` for a template that cannot be rendered or leaves out what is
    said.
    """
    _check_arguments(tokenizer, template)
    if any(message[0] == "developer" for message in messages):
        with suppress(InvalidSetting, ModelUnavailable):
            return _render_whole(tokenizer, messages, template, ("developer", *_WHOLE))
        messages = [("system", message[1]) if message[0] == "developer" else message for message in messages]
    return _render_whole(tokenizer, messages, template, _WHOLE)


def _render_whole(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], template: TemplateConfig, whole: Sequence[str]
) -> str:
    """Render messages. The result has to contain the texts of the roles ``whole``."""
    missing = ""
    for as_parts in (False, True):  # templates of multimodal models may read lists of parts alone
        text = _rendered(tokenizer, messages, template, as_parts)
        if not (missing := _missing_role(text, messages, whole)):
            _check_tools(tokenizer, messages, template, text, as_parts)
            return text
    raise ModelUnavailable(
        f"The chat template of the model leaves out what the {missing} says, so different prompts would become the "
        "same: restore it from where it came, or choose another pair."
    )


def template_marks(tokenizer: PreTrainedTokenizerBase) -> tuple[tuple[str, str], ...]:
    """Return the begin and end marks of what the chat template leaves out of earlier answers: that is thought.

    Of the tags that stand in the template, those that pair by name are put into answers of a conversation, each pair in
    both orders, and it is rendered once. Empty without a template, and for one that cannot be rendered.
    """
    with suppress(InvalidSetting, ModelUnavailable):
        tags = _TAG.findall(_template_of(tokenizer)) if getattr(tokenizer, "chat_template", None) else []
        names = {tag: _NOT_NAME.sub("", tag).lower() for each in tags for tag in (each, each.replace("/", "", 1))}
        pairs = [pair for pair in permutations(list(names)[:_MOST_TAGS], 2) if names[pair[0]] == names[pair[1]]]
        asked = [("user", "Go on."), *(("assistant", f"{a}seen{i}.{b}kept{i}.") for i, (a, b) in enumerate(pairs))]
        messages = [each for said in asked[1:] for each in (asked[0], said)]
        text = _rendered(tokenizer, [*messages, asked[0]], TemplateConfig(), as_parts=False) if pairs else ""
        return tuple(pair for i, pair in enumerate(pairs) if f"seen{i}." not in text and f"kept{i}." in text)
    return ()


def _missing_role(text: str, messages: Sequence[Message], whole: Sequence[str]) -> str:
    """Return the first role in ``whole`` that a rendered conversation lacks a message of, or an empty text. Thoughts of
    earlier answers may be left out, as templates do.

    Templates may change a message's spaces, or quote it as JSON.
    """
    holds = _contained(text)
    for message in messages:
        role, content = message[:2]
        said = split_thoughts(content).answer if role == "assistant" else content
        if role in whole and not holds(said):
            return role
    return ""


def _contained(text: str) -> Callable[[str], bool]:
    """Return a function that says whether a rendered text holds another one, apart from spaces and quoting."""
    compact = _compact(text)

    def holds(part: str) -> bool:
        return _compact(part) in compact or any(
            _compact(json.dumps(part, ensure_ascii=ascii_only)[1:-1]) in compact for ascii_only in (False, True)
        )

    return holds


def _check_tools(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], template: TemplateConfig, text: str, as_parts: bool
) -> None:
    """Raise ``InvalidSetting`` unless a rendered text holds the tools and the calls of its messages.

    Their names may stand in it by chance, so without them it has to be another text.
    """
    plain = [message for message in messages if not isinstance(message, ToolMessage)]
    if len(plain) == len(messages):
        return
    holds = _contained(text)
    for number, message in enumerate(messages):
        fields = fields_of(message)
        functions = [each["function"] for each in (*fields.get("tool_calls", ()), *fields.get(TOOLS, ()))]
        if not functions:
            continue
        others = (*messages[:number], *messages[number + 1 :])
        without = others if message[0] == TOOLS else (*messages[:number], message[:2], *messages[number + 1 :])
        named = [leaf for function in functions for leaf in (function["name"], *_leaves(function.get("arguments")))]
        if all(map(holds, named)) and _rendered(tokenizer, without, template, as_parts) != text:
            continue
        what = "the tools" if message[0] == TOOLS else f"the tool_calls of message {number + 1}"
        raise UnfitModel(
            f"The chat template of the model does not read {what}, so the model would not see them: choose a pair "
            "whose template knows tools, or write them as text."
        )


def _leaves(value: Any) -> Iterator[str]:
    """Yield the texts and numbers in the arguments of a call."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _leaves(each)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)


def _compact(text: str) -> str:
    return "".join(text.split())


def _check_arguments(tokenizer: PreTrainedTokenizerBase, template: TemplateConfig) -> None:
    """Raise ``InvalidSetting`` for an argument that the chat template does not read: it would change nothing."""
    if not template.arguments:
        return
    known = _variables(_template_of(tokenizer))
    if unread := [name for name in template.values if name not in known]:
        raise UnfitModel(
            f"The chat template of the model does not read {unread[0][:40]!r}: it reads "
            f"{', '.join(sorted(known)) or 'no arguments'}."
        )


def _template_of(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the chat template; of several named ones, the default. Raises ``ModelUnavailable`` if none is that."""
    templates: Any = tokenizer.chat_template
    if isinstance(templates, dict) and "default" not in templates:
        names = ", ".join(sorted(map(str, templates)))[:LONGEST_REFUSAL]
        raise ModelUnavailable(
            f"The model has chat templates for other purposes ({names}), and none is the default: rename the one that "
            "is meant to 'default' in tokenizer_config.json or additional_chat_templates, or choose another pair."
        )
    return str(tokenizer.get_chat_template())


@lru_cache(maxsize=64)
def _variables(chat_template: str) -> frozenset[str]:
    """Return the names of the arguments that a chat template reads, besides those that it always gets."""
    try:
        answer = ask_renderer({"names_of": chat_template}, TEMPLATE_SECONDS)
    except ProcessEnded:  # rendering it says what is wrong
        return frozenset()
    return frozenset(answer.get("names", ())) - frozenset(GIVEN)


def _dated(chat_template: str, template: TemplateConfig) -> str:
    """Return a chat template in which ``strftime_now`` tells the given day.

    A macro of this name takes the place of the function, because transformers passes no functions to templates.
    """
    if "strftime_now" not in chat_template:
        return chat_template
    told = "".join(f" | replace({mark!r}, {template.day.strftime(mark)!r})" for mark in (*_DIRECTIVES, "%%"))
    # What stands before a template on its first line, or no line break after the macro, would change its spaces.
    return f"{{% macro strftime_now(format) %}}{{{{ format{told} }}}}{{% endmacro %}}\n{chat_template}"


def _rendered(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], template: TemplateConfig, as_parts: bool
) -> str:
    written = _dated(_template_of(tokenizer), template)
    conversation = [
        {"role": role, "content": [{"type": "text", "text": content}] if as_parts else content, **fields_of(message)}
        for message in messages
        for role, content in [message[:2]]
        if role != TOOLS
    ]
    tools = next((fields_of(message)[TOOLS] for message in messages if message[0] == TOOLS), None)
    said = [{name: value for name, value in message.items() if value is not None} for message in conversation]
    values = {**tokenizer.special_tokens_map, **template.values}
    request = {"conversations": [said], "tools": tools, "chat_template": written, "values": values}
    try:
        answer = ask_renderer(request, TEMPLATE_SECONDS)
    except ProcessEnded as ended:
        answer = {"failed": str(ended)}
    if "text" in answer:
        return answer["text"]
    if "refused" in answer:
        raise UnfitModel(
            f"The chat template of the model refuses this conversation: {answer['refused']!r}. Change the "
            "conversation, or choose another pair."
        )
    raise ModelUnavailable(
        f"The chat template of the model cannot be used ({answer['failed']}): restore it from where it came, or choose "
        "another pair."
    )


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


_FILES = ("config.json", TOKENIZER, "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def tokenizer_of(model: Path | HubModel, adapter: Path | None = None) -> PreTrainedTokenizerBase:
    """Return a model's tokenizer, or that of its adapter, from its folder if it is here. Otherwise the
    tokenizer's files alone are fetched.

    Raises ``ModelUnavailable``.
    """
    folder = obtained(model)
    if folder is None:
        assert isinstance(model, HubModel)  # a folder is always here
        folder = _fetched(model)
    return load_tokenizer(tokenizer_folder(folder, adapter))


def _fetched(model: HubModel) -> Path:
    offer, folder = offered(model), models_folder() / "tokenizers" / model.slug
    with hub_errors(model):
        files = {name: fetch_file(model, offer, name, folder.parent) for name in _FILES}
    folder.mkdir(parents=True, exist_ok=True)
    for name, file in files.items():
        if file is not None and not (folder / name).exists():
            (folder / name).symlink_to(file)
    return folder


_CHARACTERS_PER_TOKEN = 8
"""characters of a long prompt that are checked first, per token of the context"""
_SLACK = 256
"""tokens by which a prefix may exceed the whole text, since its end may merge with what follows"""


_DEFAULT = TemplateConfig()


def encode_prompt(
    tokenizer: PreTrainedTokenizerBase,
    prompt: str | Sequence[Message],
    context: int | None = None,
    template: TemplateConfig = _DEFAULT,
) -> list[int]:
    """Return the token ids of a prompt: as a user message if the tokenizer has a chat template, otherwise unchanged. A
    conversation needs the template. ``template`` says how it is rendered. A template that does not know the role
    developer gets its message as one of system.

    Raises ``InvalidSetting`` for an empty prompt, for a conversation or arguments without a template, for arguments
    that the template does not read, and for a conversation that it refuses; ``ModelUnavailable`` for a template that
    cannot be rendered or leaves out the prompt; and ``PromptTooLong`` for a prompt far beyond ``context`` tokens,
    before all of it is tokenized.
    """
    text, special = render_prompt(tokenizer, prompt, template)
    if context is not None:
        _check_prefixes(tokenizer, text, context)
    return _ids(tokenizer, text, special)


def render_prompt(
    tokenizer: PreTrainedTokenizerBase, prompt: str | Sequence[Message], template: TemplateConfig = _DEFAULT
) -> tuple[str, bool]:
    """Return the text that a model reads, and whether the tokenizer adds its special tokens to it.

    Raises as :func:`encode_prompt` does, but for length.
    """
    if isinstance(prompt, str) and not prompt.strip():
        raise NotGiven("The prompt is empty: write at least one word.")
    special = not tokenizer.chat_template  # a template writes its special tokens itself
    if tokenizer.chat_template:
        text = render(tokenizer, [("user", prompt)] if isinstance(prompt, str) else prompt, template)
    elif template.arguments:
        raise UnfitModel(
            "The model has no chat template, so nothing reads the template arguments: leave them out, or choose a pair "
            "that has one."
        )
    elif isinstance(prompt, str):
        text = prompt
    else:
        raise UnfitModel(
            f"The model has no chat template, so it cannot be given a conversation of {len(prompt)} messages: choose a "
            "pair that has one, or write the task with prompts."
        )
    return text, special


def prompt_hash(ids: Sequence[int]) -> str:
    """Return 16 hex digits that tell a prompt, as it was rendered and tokenized, from every other one."""
    return text_hash(" ".join(map(str, ids)))


def _check_prefixes(tokenizer: PreTrainedTokenizerBase, text: str, context: int) -> None:
    """Raise ``PromptTooLong`` if a prefix of the text, doubled until it is the whole, is already too long."""
    length = _CHARACTERS_PER_TOKEN * context
    while length < len(text):
        if len(_ids(tokenizer, text[:length])) > context + _SLACK:
            raise PromptTooLong(
                f"The prompt has {len(text):,} characters. Its first {length:,} alone exceed the model's context of "
                f"{context} tokens: shorten it."
            )
        length *= 2


def _ids(tokenizer: PreTrainedTokenizerBase, text: str, special: bool = False) -> list[int]:
    ids = tokenizer(text, add_special_tokens=special, return_token_type_ids=False, verbose=False)["input_ids"]
    end = tokenizer.eos_token_id if special else None
    if special and ids[:1] == [tokenizer.bos_token_id] == ids[1:2]:
        ids = ids[1:]  # the prompt begins with the token already
    # Some tokenizers end each text, as training wants it. A prompt that has ended is not continued.
    return ids[:-1] if end is not None and ids[-1:] == [end] and not text.endswith(str(tokenizer.eos_token)) else ids
