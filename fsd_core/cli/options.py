"""The options that commands share, and how their words are read. No torch: ``--help`` answers at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any, get_args

import typer

from fsd_core.config import ACCEPTANCES, CHAIN, DIVERGENCES, DRAFTERS, LONGEST_PROMPT, RULES, TREE, RunConfig
from fsd_core.config.thresholds import OFF, parse_thresholds
from fsd_core.errors import InvalidSetting

PLAIN: dict[str, Any] = {
    "no_args_is_help": True, "add_completion": False, "rich_markup_mode": None, "pretty_exceptions_enable": False,
}  # fmt: skip
DTYPES = get_args(RunConfig.model_fields["dtype"].annotation)


def _choice(flag: str, names: Sequence[str], meaning: str) -> Any:
    def check(value: str | None) -> str | None:
        if value is not None and value not in names:
            raise InvalidSetting(f"{flag} {value!r} is not known: expected one of {', '.join(names)}.")
        return value

    return typer.Option(flag, callback=check, metavar="NAME", help=f"{meaning}: {', '.join(names)}.")


def _choices(flag: str, names: Sequence[str], meaning: str) -> Any:
    def check(values: list[str] | None) -> list[str] | None:
        for value in values or []:
            if value not in names:
                raise InvalidSetting(f"{flag} {value!r} is not known: expected one of {', '.join(names)}.")
        return values

    told = f"{meaning}: {', '.join(names)}; may be given several times."
    return typer.Option(flag, callback=check, metavar="NAME", help=told)


Pair = Annotated[str, typer.Option("--pair", help="Model pair; `pairs` lists them.")]
Acceptance = Annotated[str, _choice("--acceptance", ACCEPTANCES, "What is kept of a draft")]
Acceptances = Annotated[
    list[str] | None, _choices("--acceptance", ACCEPTANCES, "What is kept of a draft (fsd-reducible)")
]
Divergence = Annotated[str | None, _choice("--divergence", DIVERGENCES, "How far the two models are apart (js)")]
Threshold = Annotated[
    str | None, typer.Option("--threshold", metavar="NUMBER|off", help="Largest divergence forgiven; off is exact SD.")
]
Guard = Annotated[
    bool | None,
    typer.Option("--guard/--no-guard", help="Forgive only tokens that the target's top-k and top-p leave (on)."),
]
DivergenceTopK = Annotated[int | None, typer.Option("--divergence-top-k", help="The k of the top-k divergences (50).")]
Drafter = Annotated[str | None, _choice("--drafter", tuple(DRAFTERS), "What writes the draft (draft-model)")]
Drafters = Annotated[list[str] | None, _choices("--drafter", tuple(DRAFTERS), "What writes the draft (draft-model)")]
DraftLength = Annotated[int | None, typer.Option("--draft-length", help="Tokens drafted in a round (5).")]
Drafts = Annotated[
    int | None, typer.Option("--drafts", help="Drafts per position, for the rules that verify several (3).")
]
Shape = Annotated[str | None, _choice("--shape", (CHAIN, TREE), "The shape of what is drafted (chain)")]
Shapes = Annotated[list[str] | None, _choices("--shape", (CHAIN, TREE), "The shape of what is drafted (chain)")]
TreeWidth = Annotated[
    int | None,
    typer.Option("--tree-width", help="Best nodes that each step of a tree goes on from (10)."),
]
TreeTokens = Annotated[int | None, typer.Option("--tree-tokens", help="Tokens of a tree, its root included (60).")]
MaxNgram = Annotated[
    int | None, typer.Option("--max-ngram", help="Longest run of tokens that prompt-lookup looks for (3).")
]
Temperature = Annotated[float, typer.Option("--temperature", help="0 is greedy.")]
TopP = Annotated[float, typer.Option("--top-p", help="Nucleus sampling; 1 is off.")]
TopK = Annotated[int, typer.Option("--top-k", help="Sampling from the k likeliest; 0 is off.")]
MaxNewTokens = Annotated[int, typer.Option("--max-new-tokens", help="Longest text, in tokens.")]
TaskName = Annotated[str, typer.Option("--task", help="The prompts, and how they are scored.")]
Limit = Annotated[int, typer.Option("--limit", help="How many prompts of the task, from its first.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of all randomness.")]
Dtype = Annotated[str, _choice("--dtype", DTYPES, "Arithmetic of the models")]
Device = Annotated[str | None, typer.Option("--device", help="auto, cpu, cuda or cuda:N (FSD_DEVICE, or auto).")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.")]
Batch = Annotated[int, typer.Option("--batch", help="Texts written side by side; 1 measures each alone.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Begin anew, whatever was left unfinished.")]
SHORTEST_ID = 6  # characters


def _beginning_of_id(text: str) -> str:
    begins = text.strip().lower()
    if len(begins) < SHORTEST_ID:
        raise InvalidSetting(f"The id {text!r} is too short: expected its first {SHORTEST_ID} characters at least.")
    return begins


Id = Annotated[
    str,
    typer.Argument(
        callback=_beginning_of_id, help=f"Of a run or an experiment; its first {SHORTEST_ID} characters are enough."
    ),
]


def split_thresholds(text: str | None, rule: str) -> list[str | None]:
    """The thresholds that were given; one of ``None`` for a rule that has none, and was given none.

    Raises ``InvalidSetting``.
    """
    if text is None:
        if "threshold" in RULES[rule].model_fields:
            raise InvalidSetting(f"The rule '{rule}' has a threshold: give --thresholds, such as 0.05,0.1,0.2.")
        return [None]
    return [OFF if threshold is None else repr(threshold) for threshold in parse_thresholds(text)]


def read_prompt(argument: str) -> str:
    """The prompt as given, or standard input for ``-``, less one line break at its end. Raises ``InvalidSetting``."""
    try:
        text = argument
        if argument == "-":  # a character has at most four bytes; one more tells that there are more
            text = sys.stdin.buffer.read(4 * LONGEST_PROMPT + 1).decode().removesuffix("\n").removesuffix("\r")
        text.encode()
    except UnicodeError:
        raise InvalidSetting("The prompt is not valid UTF-8: expected text in that encoding.") from None
    if len(text) > LONGEST_PROMPT:
        raise InvalidSetting(f"The prompt is too long: expected at most {LONGEST_PROMPT:,} characters.")
    return text
