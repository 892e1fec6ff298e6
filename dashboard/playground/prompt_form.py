"""The prompt, the pair and the sampling, which all settings of the playground share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from dashboard.ui.components import PRIVATE_EVENT
from dashboard.ui.option_fields import ARGUMENTS, field, number, settings_of
from dashboard.ui.pair_defaults import pair_defaults
from dashboard.ui.question import Asked, Updates, digest
from dashboard.ui.templates import script
from fsd_core.config import LONGEST_PROMPT, DecodingConfig
from fsd_core.config.options import METHOD_OPTIONS, OPTIONS
from fsd_core.models.model_pairs import MODEL_PAIRS, is_known
from fsd_core.storage.messages import PlaygroundJob
from fsd_core.tasks import get_task
from fsd_core.tasks.suitable import NARROW_HINT

EXAMPLES = 8
BUNDLED = "bundled"
HINT = f"{NARROW_HINT} The text is sent as it is."
CHAT_HINT = "Sent as a user message if the model has a chat template, otherwise as it is."
QUESTIONS = (
    "Why is the sky blue? Answer in three sentences.",
    "Tom has 3 boxes of 12 pencils and gives 7 pencils away. How many does he have left? Think step by step.",
    "Write a Python function that returns the n-th Fibonacci number.",
    "Translate into French: The train to the coast leaves at seven, and I have not packed yet.",
    "Summarise in one sentence: Bees find flowers by sight and smell, carry nectar to the hive, and tell the others "
    "by a dance in which direction and how far away they found it.",
    "Write a short poem about a lighthouse in winter.",
    "Give me five ideas for a rainy afternoon with children.",
    "Explain to a beginner what a database index is, and when it does harm.",
)
# Options that all settings share, with a hint and what differs from the option table on this page.
SAMPLING: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("temperature", "0 is greedy", {}),
    ("top_k", "0 is off", {}),
    ("top_p", "1 is off", {}),
    ("min_p", "0 is off", {}),
    ("max_new_tokens", "At most", {"label": "Tokens"}),
)
TEMPLATE_FIELDS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("template_arguments", "JSON, for the model's chat template", {"placeholder": ARGUMENTS}),
    ("template_date", "What it is told as today's", {}),
)


def _is_narrow(pair: str) -> bool:
    """Return whether a pair knows only the problems that ship with the program."""
    return pair in MODEL_PAIRS and MODEL_PAIRS[pair].narrow


def examples_of(pair: str) -> list[tuple[str, str]]:
    """Return short names and prompts of a pair's examples. The most telling one of its calibration comes first."""
    if _is_narrow(pair):
        problems, first_id = get_task("arithmetic").all_examples(), pair_defaults(pair).example
        first_example = [problem for problem in problems if problem.id == first_id]
        remaining = [problem for problem in problems[:EXAMPLES] if problem.id != first_id]
        return [(_question(example.prompt), example.prompt) for example in [*first_example, *remaining][:EXAMPLES]]
    return [(question, question) for question in QUESTIONS]


def _question(prompt: str) -> str:
    return prompt.removeprefix("Question: ").removesuffix("\nAnswer:")


def _fields(rows: Sequence[tuple[str, str, dict[str, Any]]]) -> dict[str, Any]:
    return {name: field(METHOD_OPTIONS[name], info=info, min_width=76, **more) for name, info, more in rows}


class PromptForm:
    """The form's components as attributes."""

    def __init__(self) -> None:
        examples = examples_of(BUNDLED)
        with gr.Row(equal_height=True, elem_classes=["asking"]):
            with gr.Column(scale=3, min_width=320):
                self.prompt = gr.Textbox(
                    examples[0][1],
                    label="Prompt",
                    elem_id="prompt-text",
                    info=HINT,
                    lines=3,
                    max_lines=12,
                    max_length=LONGEST_PROMPT,
                )
            with gr.Column(scale=2, min_width=320):
                with gr.Row():
                    self.pair = gr.Dropdown(
                        [(spec.title, name) for name, spec in MODEL_PAIRS.items()], value=BUNDLED, label="Model pair",
                        min_width=150, allow_custom_value=True,
                    )  # fmt: skip
                    self.example = gr.Dropdown(examples, value=examples[0][1], label="Example", min_width=150)
                with gr.Accordion(self._summary(), open=False, elem_id="sampling") as self.sampling:
                    with gr.Row(elem_classes=["sampling"]):
                        self.shared = _fields(SAMPLING)
                        self.seed = field(OPTIONS["seed"], info="Repeatable", min_width=76)
                    with gr.Row():
                        self.shared |= _fields(TEMPLATE_FIELDS)
        # In the browser, and only when a person chooses, so that nothing being typed is lost.
        gr.on(
            [self.example.select, self.example.input], None, self.example, self.prompt,
            js=script("playground/example.js"), trigger_mode="multiple", **PRIVATE_EVENT,
        )  # fmt: skip

    @staticmethod
    def _summary(*values: Any) -> str:
        """Return sampling and seed in a line, by default those of the form before anybody changed it."""
        names = [name for name, *_ in (*SAMPLING, *TEMPLATE_FIELDS)]
        values = values or (*(METHOD_OPTIONS[name].default for name in names), OPTIONS["seed"].default)
        chosen = dict(zip((*names, "seed"), values, strict=True))
        parts = [f"at most {chosen['max_new_tokens']} tokens", f"seed {chosen['seed']}"]
        changed = [
            f"{METHOD_OPTIONS[name].title.lower()} {chosen[name]}"
            for name in names
            if name not in ("temperature", "max_new_tokens") and chosen[name] != METHOD_OPTIONS[name].default
        ]
        temperature = f"temperature {chosen['temperature']}" if chosen["temperature"] else "greedy"
        return f"Sampling: {', '.join([temperature, *changed, *parts])}"

    def redraw(self, asked: Asked, pair: str, *, chosen: bool) -> Updates:
        """Return the hint and the examples of a pair, the example that is loaded, and the sampling, if they differ.

        If the pair was ``chosen``, its first example replaces one of another pair.
        """
        updates, examples = self._redraw_sampling(asked), examples_of(pair)
        if asked.differs("pair", pair):
            other_examples = examples_of("" if _is_narrow(pair) else BUNDLED)
            if chosen and any(asked[self.prompt] == prompt for _, prompt in other_examples):
                asked.fill(self.prompt, examples[0][1])
            updates[self.prompt] = gr.Textbox(info=HINT if _is_narrow(pair) else CHAT_HINT)
        prompt = asked.current(self.prompt)
        loaded = next((text for _, text in examples if text == prompt), None)
        if asked.differs("example", pair, loaded):
            updates[self.example] = gr.Dropdown(examples, value=loaded)
        return updates

    def _redraw_sampling(self, asked: Asked) -> Updates:
        """Return the line that the sampling folds to, if it differs. It is unfolded once if it is not the usual one."""
        values = [asked.current(part) for part in (*self.shared.values(), self.seed)]
        if not asked.differs("sampling", values):
            return {}
        summary, usual = self._summary(*values), self._summary()
        opened: dict[str, Any] = {"open": True} if summary != usual and asked.differs("sampling opened", True) else {}
        return {self.sampling: gr.update(label=summary, **opened)}

    @property
    def built(self) -> dict[str, str]:
        """Digests of the form's parts before the first answer."""
        usual = [part.value for part in (*self.shared.values(), self.seed)]
        return {"example": digest(BUNDLED, self.example.value), "sampling": digest(usual)}

    @property
    def fields(self) -> dict[str, Any]:
        """The fields by name, except the examples, which only fill in the prompt."""
        return {"pair": self.pair, "prompt": self.prompt, "seed": self.seed, **self.shared}

    def values(self, values: Mapping[Any, Any]) -> tuple[str, str, int, dict[str, Any]]:
        """Return pair, prompt, seed, and the shared options by name, from the components' ``values``.

        Raises ``InvalidSetting`` for an empty seed.
        """
        shared = {name: values[part] for name, part in self.shared.items()}
        return values[self.pair], values[self.prompt], number(OPTIONS["seed"], values[self.seed]), shared

    def restore(self, asked: Asked, message: PlaygroundJob, method: DecodingConfig) -> None:
        """Fill in what requested a job. A pair that is no longer offered is ignored."""
        if is_known(message.pair):
            asked.fill(self.pair, message.pair)
        asked.fill(self.prompt, message.prompt)
        asked.fill(self.seed, message.seed)
        options = settings_of(method)
        for name, part in self.shared.items():
            asked.fill(part, options[name])
