"""What the form of the playground asks for, as the message of a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import gradio as gr

from dashboard.playground.prompt_form import PromptForm
from dashboard.playground.setting_card import SettingCard
from dashboard.ui.option_fields import decoding_of
from fsd_core.config import LONGEST_PROMPT, DecodingConfig
from fsd_core.errors import FsdError, NotGiven, OutOfRange, Stale
from fsd_core.models.model_pairs import check_drafter
from fsd_core.storage.messages import PlaygroundJob


def check_choices(fields: Iterable[Any], values: Mapping[Any, Any]) -> None:
    """Raise ``InvalidSetting`` if a list among the fields lacks what was chosen of it."""
    for part in fields:
        if isinstance(part, gr.Dropdown) and all(values[part] != choice for _, choice in part.choices):
            raise Stale(f"{part.label} has no such choice: reload the page.")


def requested(
    form: PromptForm, cards: Sequence[SettingCard], values: Mapping[Any, Any], owner: str | None
) -> PlaygroundJob:
    """Return what the form and these cards ask for. Raises ``InvalidSetting``."""
    pair, prompt, seed, sampling = form.values(values)
    decodings = [decoding_of(card.values(values) | sampling) for card in cards]
    for decoding in decodings:
        check_drafter(pair, decoding)
    return payload(pair, prompt, seed, decodings, owner)


def differs(form: PromptForm, cards: Sequence[SettingCard], values: Mapping[Any, Any], message: PlaygroundJob) -> bool:
    """Return whether the form and these cards ask for something else than a job did."""
    try:
        asked = requested(form, cards, values, message.owner)
        return (asked.pair, asked.prompt, asked.seed) != (message.pair, message.prompt, message.seed) or (
            asked.decodings != message.decodings
        )
    except FsdError:
        return True


def payload(
    pair: str, prompt: str, seed: int, decodings: Sequence[DecodingConfig], owner: str | None = None
) -> PlaygroundJob:
    """Return the job's payload. Raises ``InvalidSetting`` for an empty or too long prompt, or an invalid seed."""
    if len(prompt) > LONGEST_PROMPT:
        raise OutOfRange(f"The prompt has {len(prompt):,} characters: expected at most {LONGEST_PROMPT:,}.")
    if not prompt.strip():
        raise NotGiven("The prompt is empty: write one, or pick an example.")
    if not 0 <= seed < 2**31:
        raise OutOfRange(f"The seed {seed} cannot be used: expected a whole number from 0 to {2**31 - 1}.")
    return PlaygroundJob.of(pair, prompt, seed, decodings, owner)
