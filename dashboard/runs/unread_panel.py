"""What could not be read of a run's answers, and a regular expression that reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gradio as gr

from dashboard.ui.components import notice, show
from dashboard.ui.templates import render
from dashboard.ui.view import Asked, Part, Updates, Values, View
from fsd_core.evaluation.rescoring import Read, read_with, rescore_with
from fsd_core.tasks.custom.scorers import LONGEST_PATTERN
from fsd_core.texts import count

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView
    from fsd_core.storage.repository import Repository

_TRIED = 10
"""answers of which is shown what is read"""
_AROUND = 80
"""characters of an answer that are shown at its end"""


class UnreadPanel(Part):
    """The panel's components as attributes. It is there while some answers could not be read."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.told = show()
        with gr.Row(visible=False, elem_classes=["rev-forms"]) as self.form:
            self.pattern = gr.Textbox(
                label="Regular expression for the answer", max_length=LONGEST_PATTERN, scale=3, min_width=280,
                placeholder=r"Final answer: (\S+)",
                info="Its first group, or all that it finds last, is read as an answer where nothing else is.",
            )  # fmt: skip
            self.attempt = gr.Button("Try it", min_width=110)
            self.again = gr.Button("Score again with it", variant="primary", min_width=180)
        self.answer = show(elem_id="unread-answer")
        self.forms = [self.pattern]
        self.outputs = [self.told, self.form]

    def listen(self, view: View) -> None:
        """Attach the events."""
        view.button(self.attempt, "try reading", [self.pattern], self.show_reading, self.answer)
        view.button(self.again, "score again", [self.pattern], self.score_again, self.answer)

    def redraw(self, asked: Asked, run: RunView) -> Updates:
        """Return how many answers could not be read, if it differs, and the form for a task of one's own."""
        unread, own = (run.metrics or {}).get("unread", 0), "@" in run.task
        if not asked.differs("unread", run.id, unread, run.ended):
            return {}
        told = render("runs/run.html", "unread", run, unread) if unread else ""
        return {self.told: told, self.form: gr.Row(visible=bool(unread) and own and run.ended)}

    def show_reading(self, values: Values, asked: Asked) -> Updates:
        """Show what the expression reads of the answers of which nothing could be read."""
        read = read_with(self.repository, asked.address.get("run", ""), values[self.pattern])
        found = [one for one in read if one.score.answer is not None]
        right = sum(one.score.outcome == "correct" for one in found)
        summary = f"It reads {len(found)} of {count(len(read), 'answer')}; right: {right}."
        lines = [_tried(one) for one in sorted(read, key=lambda one: one.score.answer is None)[:_TRIED]]
        return {self.answer: render("runs/run.html", "tried", summary, lines)}

    def score_again(self, values: Values, asked: Asked) -> Updates:
        """Make the expression part of the task, and score the runs of the experiment by it."""
        id = asked.address.get("run", "")
        runs = rescore_with(self.repository, id, values[self.pattern], asked.person.name)
        asked.used(values, self.pattern)
        run = self.repository.run(id)
        left = f"{(run.metrics or {}).get('unread', 0)} of {count(run.prompts_done, 'answer')} left unread"
        told = f"Scored again, {left}: {count(len(runs), 'run')} of {run.task}, which asks the same as before."
        return {self.answer: notice(told)}


def _tried(one: Read) -> tuple[int, str, str | None, str | None, str]:
    """Return the number of a prompt, the end of its answer, what is read and expected, and the outcome."""
    text = one.generation.text.strip()
    end = text if len(text) <= _AROUND else f"…{text[-_AROUND:]}"
    return one.generation.position + 1, end, one.score.answer, one.example.reference, one.score.outcome
