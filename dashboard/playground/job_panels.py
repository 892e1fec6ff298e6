"""The texts of a playground job side by side, and what is said of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import gradio as gr
from cachetools import LRUCache, TTLCache

from dashboard.tables.prompt_pairs import DiffPiece, difference
from dashboard.ui.components import legend, notice, page_note, show, term, tokens_html
from dashboard.ui.fields import forgiven
from dashboard.ui.page import absence_notice
from dashboard.ui.templates import Html, quantity, render, script
from dashboard.ui.view import Act, Asked, Part, Updates, View, digest
from fsd_core.config import DecodingConfig
from fsd_core.errors import DataDamaged, FsdError, Refused, UnknownName
from fsd_core.models.model_pairs import ADAPTED, DRAFTED, pair_title
from fsd_core.roles import Person, same_name
from fsd_core.storage.messages import Chunk, EmittedToken, PlaygroundJob, StreamFigures
from fsd_core.storage.records import UNENDED
from fsd_core.tasks.custom.custom_task import add_prompt
from fsd_core.texts import DASH, count, percent

if TYPE_CHECKING:
    from fsd_core.settings import Executor
    from fsd_core.storage.records import RunView
    from fsd_core.storage.repository import Repository
    from fsd_core.storage.tables import WorkerRow


MOST_OUTPUT_PANELS = 4
OTHER_PROGRAMS_BUSY = "Other programs kept the processor busy meanwhile: generate again to compare speeds."


@dataclass(frozen=True)
class OutputPanel:
    """One setting's tokens and its latest figures, up to the chunk ``after``."""

    decoding: DecodingConfig
    tokens: tuple[EmittedToken, ...] = ()
    figures: StreamFigures | None = None
    done: bool = False
    stop_reason: str | None = None
    error: str | None = None
    after: int = -1

    def with_chunk(self, sequence: int, chunk: Chunk) -> OutputPanel:
        """Return the panel with the next chunk of this setting's stream."""
        return replace(
            self, tokens=self.tokens + chunk.tokens, figures=chunk.figures, done=chunk.done,
            stop_reason=chunk.stop_reason, error=chunk.error, after=sequence,
        )  # fmt: skip

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens)


@dataclass(frozen=True)
class FollowedJob:
    """A playground job as far as it was read."""

    id: str
    message: PlaygroundJob
    panels: tuple[OutputPanel, ...]
    status: str = "queued"
    cancel_requested: bool = False
    error: str | None = None

    @property
    def after(self) -> int:
        """The last chunk that was read."""
        return max((panel.after for panel in self.panels), default=-1)

    @property
    def ended(self) -> bool:
        return self.status not in UNENDED

    @property
    def has_output(self) -> bool:
        return any(panel.tokens or panel.done for panel in self.panels)

    def with_chunks(self, chunks: Sequence[tuple[int, Chunk]]) -> FollowedJob:
        """Return the job with its next chunks. Raises ``DataDamaged`` for an unknown setting."""
        panels = [*self.panels]
        for sequence, chunk in chunks:
            if chunk.setting >= len(panels):
                raise DataDamaged(f"The job has no setting {chunk.setting + 1}: what is stored of it was damaged.")
            panels[chunk.setting] = panels[chunk.setting].with_chunk(sequence, chunk)
        return replace(self, panels=tuple(panels))


def comparison(panels: Sequence[OutputPanel]) -> list[str]:
    """Return a sentence for each setting after the first: its speed relative to the first, and where their texts
    differ.

    If the machine was busy, a last sentence doubts the speeds.
    """
    first, *remaining = panels
    if first.error or not first.tokens:
        return []
    sentences = [_relative(panel, first) for panel in remaining if not panel.error and panel.tokens]
    return (
        [*sentences, OTHER_PROGRAMS_BUSY]
        if sentences and any(panel.figures and panel.figures.held_up for panel in panels)
        else sentences
    )


def differences(panels: Sequence[OutputPanel]) -> list[list[DiffPiece]]:
    """Return each text in pieces: of the first those that another text has otherwise, of the others those that the
    first has otherwise. Empty for a text that cannot be compared."""
    first, *remaining = panels
    pieces: list[list[DiffPiece]] = [[] for _ in panels]
    if first.error or not first.tokens:
        return pieces
    changed = [False] * len(first.text)
    for i, panel in enumerate(remaining, 1):
        if panel.error or not panel.tokens:
            continue
        own, pieces[i] = difference(first.text, panel.text)
        flags = (piece.changed for piece in own for _ in piece.text)
        changed = [before or now for before, now in zip(changed, flags, strict=True)]
    runs = groupby(zip(first.text, changed, strict=True), key=itemgetter(1))
    pieces[0] = [DiffPiece("".join(character for character, _ in run), differs) for differs, run in runs]
    return pieces


def _relative(panel: OutputPanel, first: OutputPanel) -> str:
    speed, reference = (output.figures.tokens_per_second if output.figures else None for output in (panel, first))
    pace = f"wrote {speed / reference:.2f}× as fast as {first.decoding.label}" if speed and reference else "wrote"
    return f"{panel.decoding.label} {pace}; {_texts(panel, first)}."


def _texts(panel: OutputPanel, first: OutputPanel) -> str:
    a, b = panel.ids, first.ids
    if a == b:
        return "their texts are identical"
    index = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    greedy = panel.decoding.sampling.greedy and first.decoding.sampling.greedy
    both_exact = panel.decoding.acceptance.lossless and first.decoding.acceptance.lossless
    why = ", as lossless samples may: only their distribution is the same" if both_exact and not greedy else ""
    return f"their texts differ from token {index + 1}{why} ({count(len(a), 'token')} and {len(b):,})"


_MOST = 100
_SECONDS = 60.0


class FollowedJobs:
    """Reads jobs, and keeps for a minute what was read: the chunks of a job never change."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._read: TTLCache[str, FollowedJob] = TTLCache(_MOST, _SECONDS)
        self._lock = threading.Lock()

    def read(self, id: str, owner: str | None) -> FollowedJob:
        """Return a job as it is now. Raises ``UnknownName`` for any other job and for somebody else's."""
        state = self._repository.job(id)  # read before the chunks: an ended job writes no more
        if state.kind != PlaygroundJob.kind:
            raise UnknownName("There is no such job of the Playground.")
        message = PlaygroundJob.read(state.payload)
        if message.owner is not None and not same_name(message.owner, owner or ""):
            raise UnknownName("This text is somebody else's: write one of your own.")
        with self._lock:
            job = self._read.get(id)
        if job is None:
            job = FollowedJob(id, message, tuple(OutputPanel(decoding) for decoding in message.decodings))
        job = job.with_chunks(self._repository.chunks(id, job.after))
        with self._lock:
            self._read[id] = job
        return replace(job, status=state.status, cancel_requested=state.cancel_requested, error=state.error)


def owner_of(asked: Asked) -> str | None:
    """Return the owner of the texts that somebody asks for, or ``None`` if nobody has signed in."""
    return asked.person.name if asked.person.known else None


ADVICE = "speculation does not pay {where}; try math, or copying (prompt lookup)."
_LATEST = 40
"""runs of a pair that are looked through"""


def slow_pair(repository: Repository, pair: str) -> str:
    """Return what measured runs say of a pair whose exact SD is slower than the target alone on every task, or
    nothing."""
    runs = repository.runs(pair=pair, limit=_LATEST, calibration_rounds=False)
    best = max(filter(_speed_of, runs), key=_speed_of, default=None)
    if best is None or (best.metrics or {})["speedup_versus_target_high"] >= 1:
        return ""
    metrics = best.metrics or {}
    speed = quantity(*(metrics[f"speedup_versus_target{end}"] for end in ("", "_low", "_high")))
    accepted = percent(metrics["acceptance_rate"], digits=0)
    return (
        f"Measured here on {count(best.prompts_done, 'prompt')} of {best.task}: {accepted} accepted, {speed} × as fast "
        f"as the target alone. {ADVICE.format(where='there').capitalize()}"
    )


def slow_prompt(panels: Sequence[OutputPanel]) -> str:
    """Return that no drafting setting was faster than the target alone on a prompt, with the share that was accepted
    of the fastest, or nothing."""
    figures = [panel.figures for panel in panels if panel.figures and panel.figures.acceptance_rate is not None]
    timed = [(figure.speed_up, figure) for figure in figures if figure.speed_up is not None and not figure.held_up]
    if not timed or len(timed) < len(figures) or max(speed for speed, _ in timed) >= 1:
        return ""
    _, best = max(timed, key=lambda pair: pair[0])
    return f"On this prompt {percent(best.acceptance_rate, digits=0)} accepted: {ADVICE.format(where='here')}"


def _speed_of(run: RunView) -> float:
    """Return how many times as fast as the target alone a run of exact SD was; 0 if that is unknown."""
    metrics = run.metrics or {}
    known = all(metrics.get(name) is not None for name in ("speedup_versus_target_high", "acceptance_rate"))
    return metrics["speedup_versus_target"] if known and run.decoding.acceptance.is_exact else 0.0


_ENDS = {"length": "stopped at the token limit", "context": "stopped: the context is full", "eos": "finished"}


def waiting_html(number: int) -> Html:
    """Return the placeholder of a setting's text before the first request."""
    return render("playground/playground.html", "waiting", number)


def worker_notice(worker: WorkerRow | None, executor: Executor, status: str) -> Html:
    """Return the reason why a job has no output yet."""
    if worker is None or not worker.alive:
        return absence_notice(worker, executor)
    if status == "running":
        return notice("The worker is loading the models.")
    busy = worker.activity not in ("", "idle")
    return notice("The worker will start after its current prompt." if busy else "Waiting for the worker.")


def followed_html(job: str) -> Html:
    """Return the id of the job that the page shows, for its scripts."""
    return render("playground/playground.html", "followed", job)


def output_panel_html(number: int, panel: OutputPanel, pair: str, pieces: Sequence[DiffPiece] = ()) -> Html:
    """Return a setting's label, its pair, its figures and its text so far. ``pieces`` mark where it differs."""
    decoding = panel.decoding
    tokens = tokens_html(
        panel.tokens, f"Text of setting {number}", rule=forgiven(decoding), greedy=decoding.sampling.greedy,
        pieces=[(piece.text, piece.changed) for piece in pieces],
    )  # fmt: skip
    return render(
        "playground/playground.html",
        "output",
        number,
        panel=panel,
        pair=pair_title(pair),
        tokens=tokens if panel.tokens else "",
        end=_ENDS.get(panel.stop_reason or "", "") if panel.done else "",
        figures=_figures(panel),
        pace=_pace(panel),
    )


def _pace(panel: OutputPanel) -> str:
    """Return the speed beside that of the target alone, or nothing for that one itself."""
    figures = panel.figures
    if figures is None or figures.speed_up is None or panel.decoding.acceptance.kind == "autoregressive":
        return ""
    alone = figures.target_tokens_per_second
    return f"{figures.speed_up:.2f}× as fast as the target alone, which writes {alone:,.0f} tokens/s"


def _figures(panel: OutputPanel) -> list[tuple[str, Html]]:
    """Return values and their names."""
    figures = panel.figures or StreamFigures.of(tokens=0, rounds=0, drafted=0, accepted=0, seconds=0.0)
    speed = figures.tokens_per_second
    return [
        (f"{speed:,.0f}" if speed else DASH, term("tokens/s")),
        (percent(figures.acceptance_rate), term("acceptance rate")),
        (quantity(figures.mean_acceptance_length or None), term("mean acceptance length")),
        (f"{figures.tokens:,}" if panel.figures else DASH, term("tokens")),
    ]


def compared_html(sentences: Sequence[str], job: str, *, marked: bool) -> Html:
    """Return how the settings of a job compare and what that is worth, or nothing if they cannot be compared.

    ``marked``: whether differences are marked in the texts.
    """
    return render("playground/playground.html", "compared", sentences, job=job, marked=marked)


def added_html(task: str, prompts: int, job: str) -> Html:
    """Return that a task has a prompt, and a link that measures the job's settings on the task."""
    return render("playground/playground.html", "added", task, prompts=prompts, job=job)


_MOST_TOKENS = 128  # per text
_MOST_SETTINGS = 2  # at once
MOST_WAITING = 6  # texts of all visitors
_PAIRS = ("bundled", DRAFTED, ADAPTED)  # others would download gigabytes for a visitor
VISITORS_NOTE = (
    f"This is a public demo: visitors write up to {_MOST_TOKENS} tokens with up to {_MOST_SETTINGS} settings at once, "
    "one text after the other. Experiments and review are for members."
)


class Visitors:
    """Enforces the visitors' limits and remembers each visitor's last job."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self._last_jobs: LRUCache[str, str] = LRUCache(1000)
        self._lock = threading.Lock()

    def begin(
        self, person: Person, visit: str, pair: str, decodings: Sequence[DecodingConfig], enqueue: Callable[[], str]
    ) -> None:
        """Enqueue a job, or raise ``Refused`` with the limit that a request exceeds.

        ``visit`` identifies somebody who has not signed in. Of two requests at once, the second finds the job of the
        first.
        """
        if person.may("author"):
            enqueue()
            return
        if pair not in _PAIRS:
            raise Refused("In this demo visitors choose among the small pairs: bundled and SmolLM2 135M.")
        if len(decodings) > _MOST_SETTINGS:
            raise Refused(f"In this demo visitors compare up to {_MOST_SETTINGS} settings: remove the last ones.")
        if max(decoding.max_new_tokens for decoding in decodings) > _MOST_TOKENS:
            raise Refused(f"In this demo visitors write up to {_MOST_TOKENS} tokens: lower “Tokens”.")
        visitor = f"person {person.name}" if person.known else f"visit {visit}"
        with self._lock:
            if self._is_open(self._last_jobs.get(visitor)):
                raise Refused("Your last text is still being written: stop it, or wait for its end.")
            if self.repository.queue_length((PlaygroundJob.kind,)) >= MOST_WAITING:
                raise Refused(f"{MOST_WAITING} texts of visitors wait already: try again in a minute.")
            self._last_jobs[visitor] = enqueue()

    def _is_open(self, job: str | None) -> bool:
        if job is None:
            return False
        try:
            return self.repository.job(job).status in UNENDED
        except FsdError:  # it is no longer stored
            return False


WRITING = "The settings take turns, and each is timed by itself."
FORMER = "These texts are of the form as it was: it has been changed since."
OWN_TASK = "my-prompts"
"""the task to which a prompt is added unless another one is named"""


class JobPanels(Part):
    """The components as attributes."""

    def __init__(self, repository: Repository, jobs: FollowedJobs, executor: Executor) -> None:
        self.repository, self.jobs = repository, jobs
        self.executor: Executor = executor
        self.verdict = show(elem_id="verdict")
        self.former = show(elem_id="former")
        with gr.Row(equal_height=False, elem_classes=["lanes"]):
            self.panels: list[gr.HTML] = []
            self.columns = []
            for i in range(MOST_OUTPUT_PANELS):
                with gr.Column(min_width=300, visible=i < 2) as column:
                    self.panels.append(show(waiting_html(i + 1), elem_id=f"lane-{i + 1}"))
                self.columns.append(column)
        self.legend = show()
        with gr.Row(visible=False, elem_classes=["keep-prompt"]) as self.keep_prompt:
            self.task = gr.Textbox(
                OWN_TASK, label="Task of your own", info="It begins with this prompt if it is new.", max_length=40,
                min_width=170,
            )  # fmt: skip
            self.reference = gr.Textbox(
                label="Expected answer", info="Only if the task is scored.", max_length=10_000, min_width=170
            )
            self.add = gr.Button("Add the prompt to the task", scale=0, min_width=250)
        self.added = show(elem_id="added")
        self.followed = show(js_on_load=script("playground/remember.js"), elem_id="followed")
        self.outputs = [
            self.verdict, self.former, *self.panels, self.followed, self.keep_prompt, self.added, self.legend,
        ]  # fmt: skip

    @property
    def built(self) -> dict[str, str]:
        """Digests of what is shown before the first answer."""
        texts = {f"text {i + 1}": digest(None, None) for i in range(MOST_OUTPUT_PANELS)}
        return texts | {"keep prompt": digest(False, ""), "legend": digest(False)}

    def listen(self, view: View) -> None:
        """Let the prompt be kept."""
        view.by_script(self.add.click, [self.task, self.reference], script("playground/keep_prompt.js"))
        view.act("keep prompt", self.add_prompt, self.added)

    def add_prompt(self, act: Act, asked: Asked) -> Updates:
        """Add the prompt of a job to a custom task."""
        job = self.jobs.read(act["job"], owner_of(asked))
        task = add_prompt(
            self.repository, act["task"].strip(), job.message.prompt, act["reference"].strip() or None,
            asked.person.name,
        )  # fmt: skip
        return {self.added: added_html(task.name, task.prompts, job.id)}

    def redraw(
        self, asked: Asked, job: FollowedJob | None, form: list[Any], differs: Callable[[PlaygroundJob], bool]
    ) -> Updates:
        """Return what differs of the texts and of the sentences on them.

        ``form``: what the form holds. ``differs``: whether it asks for something else than a job did.
        """
        id, updates = job.id if job else "", Updates()
        finished = job is not None and job.status == "finished"
        marks = cache(lambda: differences(job.panels) if job and finished else [])
        for i, html in enumerate(self.panels):
            panel = job.panels[i] if job and i < len(job.panels) else None
            state = (panel.after, *(["compared"] if finished else [])) if panel else None
            if not asked.differs(f"text {i + 1}", panel and id, state):
                continue
            if job and panel:
                pieces = marks()[i] if finished else []
                updates[html] = output_panel_html(i + 1, panel, job.message.pair, pieces)
            else:
                updates[html] = waiting_html(i + 1)
        if job and asked.differs("followed", id):
            updates[self.followed] = followed_html(id)
        written = job if job and job.has_output else None
        if asked.differs("legend", bool(written)):
            updates[self.legend] = legend() if written else ""
        keeps = bool(written) and asked.person.may("author")
        if asked.differs("keep prompt", keeps, id):
            updates |= {self.keep_prompt: gr.Row(visible=keeps), self.added: ""}
        if asked.differs("former", bool(written), id, form):
            former = written is not None and differs(written.message)
            updates[self.former] = page_note(FORMER) if former else ""
        running = job if job and not job.ended else None
        waiting = self._waiting(running) if running else ""
        if asked.differs("verdict", id, waiting or (job and (job.status, job.after))):
            updates[self.verdict] = waiting or (_ended_html(job) if job else "")
        return updates

    def failed(self, asked: Asked, error: FsdError) -> Updates:
        """Return why a job cannot be shown."""
        return {self.verdict: notice(str(error), "bad")} if asked.differs("verdict", str(error)) else {}

    def _waiting(self, job: FollowedJob) -> Html:
        if job.has_output:
            return notice(WRITING if len(job.panels) > 1 else "Writing.")
        return worker_notice(self.repository.worker(), self.executor, job.status)


def _ended_html(job: FollowedJob) -> Html:
    """Return what there is to say of a job that has ended."""
    if job.status == "finished":
        marked = any(panel.ids != job.panels[0].ids for panel in job.panels if panel.tokens)
        sentences = [*filter(None, [slow_prompt(job.panels)]), *comparison(job.panels)]
        return compared_html(sentences, job.id, marked=marked)
    if job.status == "cancelled":
        return notice("Stopped. The text written so far is shown.")
    return notice(job.error or "The worker could not generate the texts.", "bad")
