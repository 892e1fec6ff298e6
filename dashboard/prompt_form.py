"""What all settings of the playground share: the prompt, the pair and the sampling."""

from __future__ import annotations

from typing import Any

import gradio as gr

from dashboard.components import QUIET
from fsd_core.benchmarks.arithmetic import held_out
from fsd_core.config import DecodingConfig
from fsd_core.models.pairs import PAIRS

EXAMPLES = 8
HINT = "The bundled pair knows problems of the form “Question: … Answer:”. The text is sent as it stands here."


class PromptForm:
    """The components as attributes."""

    def __init__(self) -> None:
        problems = held_out(EXAMPLES)
        with gr.Row(equal_height=False):
            with gr.Column(scale=3, min_width=320):
                self.prompt = gr.Textbox(
                    problems[0].prompt,
                    label="Prompt",
                    elem_id="prompt-text",
                    info=HINT,
                    lines=6,
                    max_lines=12,
                    max_length=20_000,
                )
            with gr.Column(scale=2, min_width=320):
                with gr.Row():
                    self.pair = gr.Dropdown(
                        [(spec.title, name) for name, spec in PAIRS.items()], value="bundled", label="Model pair",
                        min_width=150,
                    )  # fmt: skip
                    self.example = gr.Dropdown(
                        [(problem.question, problem.prompt) for problem in problems], value=None,
                        label="Example problem", min_width=150,
                    )  # fmt: skip
                with gr.Row(elem_classes=["sampling"]):
                    self.temperature = gr.Number(0, label="Temperature", info="0 is greedy", step=0.1, min_width=76)
                    self.top_k = gr.Number(0, label="Top-k", info="0 is off", precision=0, min_width=76)
                    self.top_p = gr.Number(1, label="Top-p", info="1 is off", step=0.05, min_width=76)
                    self.seed = gr.Number(0, label="Seed", info="Repeatable", precision=0, min_width=76)
                    self.longest = gr.Number(96, label="Tokens", info="At most", precision=0, min_width=76)
        self.example.input(lambda prompt: prompt or gr.skip(), self.example, self.prompt, **QUIET)

    @property
    def parts(self) -> list[Any]:
        """The fields, but for the examples, which only fill in the prompt."""
        return [self.pair, self.prompt, self.temperature, self.top_k, self.top_p, self.seed, self.longest]

    def restore(self, pair: str, prompt: str, seed: int, method: DecodingConfig) -> dict[Any, Any]:
        """The fields as they were when they asked for ``method``; a pair that is offered no more is left aside."""
        sampling = method.sampling
        return {
            **({self.pair: pair} if pair in PAIRS else {}),
            self.prompt: prompt, self.seed: seed, self.longest: method.max_new_tokens,
            self.temperature: sampling.temperature, self.top_k: sampling.top_k, self.top_p: sampling.top_p,
        }  # fmt: skip
