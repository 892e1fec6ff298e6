"""Messages of a conversation, and the thoughts in their answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

TOOLS = "tools"
"""in place of a role: what the model may call. It stands first, and is no message."""


class ToolMessage(NamedTuple):
    """A message that holds more than a text: calls of tools, or what a tool returned and for which call.

    With ``TOOLS`` in place of a role, ``fields`` has the tools of the conversation.
    """

    role: str
    content: str
    fields: str
    """a JSON object: ``tool_calls``, ``name`` and ``tool_call_id`` of a message, or ``tools``"""

    @property
    def values(self) -> dict[str, Any]:
        """The object in ``fields``."""
        return json.loads(self.fields)


Message = tuple[str, str] | ToolMessage
"""role (system, developer, user, assistant or tool) and content"""
Messages = tuple[Message, ...]


def fields_of(message: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a message beside role and content."""
    return message.values if isinstance(message, ToolMessage) else {}


def continued(asked: str | Messages, turns: Iterable[tuple[str, str]]) -> Messages:
    """Return a conversation that goes on. ``turns`` are the answer to what was asked, and what is asked next."""
    messages: list[Message] = [("user", asked)] if isinstance(asked, str) else list(asked)
    for answer, following in turns:
        messages += [("assistant", answer), ("user", following)]
    return tuple(messages)


THOUGHT_MARKS = "thought_marks"
"""key of a run's provenance: the marks that the template of its model shows"""

MARKS: tuple[tuple[str, str], ...] = (
    ("<think>", "</think>"),  # DeepSeek-R1, Qwen3, QwQ, GLM, and most others
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<reason>", "</reason>"),
    ("<seed:think>", "</seed:think>"),  # Seed-OSS
    ("[THINK]", "[/THINK]"),  # Magistral
    ("◁think▷", "◁/think▷"),  # Kimi-VL
    ("<|begin_of_thought|>", "<|end_of_thought|>"),  # Sky-T1
    ("<|START_THINKING|>", "<|END_THINKING|>"),  # Command A Reasoning
    ("<|channel>thought", "<channel|>"),  # Gemma 4
    ("<|channel>", "<channel|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    ("<think:opensource>", "</think:opensource>"),  # Hunyuan, which has other names as well
    ("<REASONING_SCRATCHPAD>", "</REASONING_SCRATCHPAD>"),  # Hermes
    ("<SUMMARY>", "<CONCLUSION>"),  # LLaVA-CoT
)
"""begin and end marks of thoughts, by model family"""

CHANNELS: tuple[tuple[str, str], ...] = (
    ("<|channel|>analysis", "<|channel|>final"),
    ("<|channel|>commentary", "<|channel|>final"),
)
"""the same in harmony (gpt-oss), whose channels follow each other"""

# The channels of harmony (gpt-oss), with its special tokens or without them.
_CHANNEL = re.compile(
    r"(?:<\|start\|>\s*assistant\s*)?<\|channel\|>\s*(?P<name>\w++)[^<]*+(?:<\|constrain\|>[^<]*+)?<\|message\|>"
)
_CHANNEL_END = re.compile(r"<\|(?:end|return|call|start|channel)\|>")
_BARE_CHANNELS = re.compile(r"\s*analysis(?=\w)|\s*analysis(?=.*assistant\s*final)", re.DOTALL)
_BARE_FINAL = re.compile(r"assistant\s*final")
# Granite 3.2 and Apriel write sentences, at the beginning of a text.
_SENTENCE = re.compile(r"\s*Here(?:['’]s| is) my thought process:|\s*Here are my reasoning steps:")
_SENTENCE_END = re.compile(r"Here(?:['’]s| is) my response:|\[BEGIN FINAL RESPONSE\]")
# Tags that are no family's yet. "List<thought>" is a type.
_NAME = "|".join(
    rf"[{letters}_:.-]{{0,20}}(?:{words})[\w:.-]{{0,40}}"
    for letters, words in (("a-z", "think|thought|reasoning|scratchpad"), ("A-Z", "THINK|THOUGHT|REASONING|SCRATCHPAD"))
)
_TAG = rf"(?:(?<!\w)<|</)(?:{_NAME})>"


class ThoughtAndAnswer(NamedTuple):
    """A text without its thoughts, and where these are."""

    answer: str
    thoughts: tuple[tuple[int, int], ...]
    """first and last character + 1 of each, with its marks"""
    is_open: bool
    """whether the text ends inside of a thought"""


def kept_marks(marks: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return marks for a run's provenance, such as ``<think> … </think>``; empty for none."""
    return {THOUGHT_MARKS: "; ".join(map(" … ".join, marks))} if marks else {}


def read_marks(text: object) -> tuple[tuple[str, str], ...]:
    """Return the marks that a provenance has; none of any other text."""
    parts = (part.partition(" … ") for part in str(text or "").split("; "))
    return tuple((begin, end) for begin, _, end in parts if begin and end)


def split_thoughts(text: str, *, thinking: bool = False, marks: Sequence[tuple[str, str]] = MARKS) -> ThoughtAndAnswer:
    """Split a text into its thoughts and its answer.

    All that stands before an end mark without a beginning is thought, because templates of some models write the
    beginning into the prompt. A text that was cut off before does not show that: then ``thinking`` says that the prompt
    ended inside of a thought. A thought that never ends has no answer behind it. Takes linear time.
    """
    if "<|channel|>" in text:
        return _without(text, *_channels(text))
    if bare := _BARE_CHANNELS.match(text):
        finals = list(_BARE_FINAL.finditer(text, bare.end()))
        return _without(text, [(0, finals[-1].end() if finals else len(text))], not finals)
    is_general = tuple(marks[-len(MARKS) :]) == MARKS
    if begins := is_general and _SENTENCE.match(text):
        ended = _SENTENCE_END.search(text, begins.end())
        return _without(text, [(0, ended.end() if ended else len(text))], not ended)
    ends = dict(marks)
    pattern = "|".join([re.escape(mark) for pair in marks for mark in pair] + [_TAG] * is_general)
    closing = set(ends.values())
    thoughts: list[tuple[int, int]] = []
    begun, end = (0, None) if thinking else (None, None)
    for mark in re.finditer(pattern, text):
        closes = mark[0] in closing or (mark[0] not in ends and mark[0].startswith("</"))
        if begun is None and not closes:
            begun, end = mark.start(), ends.get(mark[0], f"</{mark[0][1:]}")
        elif begun is None:  # an end without a beginning
            thoughts = [(0, mark.end())]
        elif mark[0] == end or (end is None and closes):
            thoughts.append((begun, mark.end()))
            begun = end = None
    if begun is not None:
        thoughts.append((begun, len(text)))
    return _without(text, thoughts, begun is not None)


def opens_thought(prompt: str, marks: Sequence[tuple[str, str]] = MARKS) -> bool:
    """Return whether a prompt, as its template renders it, ends inside of a thought."""
    last = prompt.rstrip()
    opened = tuple(marks[-len(MARKS) :]) == MARKS and re.search(rf"<(?:{_NAME})>\Z", last[-100:])
    return bool(opened) or last.endswith(tuple(begin for begin, _ in marks))


def is_mark(text: str) -> bool:
    """Return whether a text is a begin or end mark of a thought."""
    return any(text in pair for pair in MARKS) or bool(re.fullmatch(_TAG, text))


def _channels(text: str) -> tuple[list[tuple[int, int]], bool]:
    """Return what is no final channel, and whether there is none."""
    thoughts, last, has_final = [], 0, False
    for mark in _CHANNEL.finditer(text):
        if mark["name"] != "final":
            continue
        has_final = True
        thoughts.append((last, mark.end()))
        ended = _CHANNEL_END.search(text, mark.end())
        last = ended.start() if ended else len(text)
    if last < len(text):
        thoughts.append((last, len(text)))
    return thoughts, not has_final


def _without(text: str, thoughts: Sequence[tuple[int, int]], is_open: bool) -> ThoughtAndAnswer:
    parts, last = [], 0
    for start, end in thoughts:
        parts.append(text[last:start])
        last = end
    answer = "".join([*parts, text[last:]])
    return ThoughtAndAnswer(answer.lstrip("\r\n") if thoughts else answer, tuple(thoughts), is_open)
