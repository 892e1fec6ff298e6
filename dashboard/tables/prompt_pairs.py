"""Two runs read prompt by prompt."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

import gradio as gr

from dashboard.ui.components import LOOKS, notice, refusal, show
from dashboard.ui.fields import turned
from dashboard.ui.templates import Html, copy_link, joined, render, script
from dashboard.ui.view import Act, Asked, Part, Updates, View, digest
from fsd_core.errors import Stale
from fsd_core.review.blinding import HiddenAnswers, hidden_answers
from fsd_core.roles import same_name
from fsd_core.storage.review_events import LONGEST_QUOTE, LONGEST_TEXT
from fsd_core.storage.reviews import VERDICTS
from fsd_core.texts import count

if TYPE_CHECKING:
    from fsd_core.review.blinding import Quoted
    from fsd_core.storage.records import GenerationView
    from fsd_core.storage.repository import Repository
    from fsd_core.storage.tables import MarkRow


def hidden_html(prompts: int, proposals: Sequence[str], opened: str = "") -> Html:
    """Return how many prompts are hidden, with links to the proposals that they are voted on for; nothing for none.

    ``opened``: the proposal on whose page this stands, which needs no link.
    """
    if not prompts:
        return Html()
    return render("tables/pairs.html", "hidden", prompts, [id for id in proposals if id != opened], opened in proposals)


Show = Literal["outcome", "text", "unsolved", "marked", "all"]
SHOWS: tuple[tuple[str, Show], ...] = (
    ("Different outcome", "outcome"),
    ("Different text", "text"),
    ("Not solved", "unsolved"),
    ("Marked", "marked"),
    ("All", "all"),
)
Ids = str | tuple[str, ...]
"""id of a run, or of the turns that are read as one: for a prompt in several turns, the last one counts"""
Marks = Mapping[tuple[str, int], "Sequence[MarkRow]"]
"""by run and position of the prompt"""
LONGEST_DIFF = 4000  # words; longer differences are neither readable nor quick to compute


class DiffPiece(NamedTuple):
    """Part of a text. ``changed`` is true if the other text has something else there."""

    text: str
    changed: bool
    quoted: bool = False
    """whether a comment is on it"""


class Pair(NamedTuple):
    """One prompt as both runs answered it."""

    a: GenerationView
    b: GenerationView

    @property
    def outcome_differs(self) -> bool:
        return (self.a.outcome == "correct") != (self.b.outcome == "correct")

    @property
    def text_differs(self) -> bool:
        return self.a.text != self.b.text

    @property
    def unsolved(self) -> bool:
        """Whether at least one of the two did not solve it."""
        return "correct" not in (self.a.outcome, self.b.outcome) or self.outcome_differs

    @property
    def gain(self) -> int:
        """1 if only the first solved it, -1 if only the second did, else 0."""
        return (self.a.outcome == "correct") - (self.b.outcome == "correct")


class Pairing(NamedTuple):
    """All shared prompts of two runs, by position, and everybody's marks on their outputs."""

    pairs: list[Pair]
    marks: Marks = MappingProxyType({})

    def count(self, a_solved: bool, b_solved: bool) -> int:  # pyrefly: ignore[bad-override]
        """Return the number of prompts in one cell of the two-by-two table."""
        return sum(
            (pair.a.outcome == "correct") == a_solved and (pair.b.outcome == "correct") == b_solved
            for pair in self.pairs
        )

    def filtered(self, show: Show) -> list[Pair]:
        """Return the prompts that a view asks for."""
        if show == "outcome":
            return [pair for pair in self.pairs if pair.outcome_differs]
        if show == "text":
            return [pair for pair in self.pairs if pair.text_differs]
        if show == "unsolved":
            return [pair for pair in self.pairs if pair.unsolved]
        if show == "marked":
            return [pair for pair in self.pairs if any((g.run_id, g.position) in self.marks for g in pair)]
        return self.pairs


def pair_up(repository: Repository, run_a: Ids, run_b: Ids) -> Pairing:
    """Return the prompts that both have done."""
    ids_a, ids_b = ((ids,) if isinstance(ids, str) else ids for ids in (run_a, run_b))
    answers_a, answers_b = ({g.position: g for id in ids for g in repository.generations(id)} for ids in (ids_a, ids_b))
    marks: dict[tuple[str, int], list[MarkRow]] = {}
    for mark in repository.marks([*ids_a, *ids_b]):
        marks.setdefault((mark.run_id, mark.position), []).append(mark)
    positions = sorted(answers_a.keys() & answers_b.keys())
    return Pairing([Pair(answers_a[position], answers_b[position]) for position in positions], marks)


def difference(a: str, b: str) -> tuple[list[DiffPiece], list[DiffPiece]]:
    """Return both texts in pieces, word by word. The pieces concatenate to the texts."""
    words_a, words_b = _words(a), _words(b)
    if max(len(words_a), len(words_b)) > LONGEST_DIFF:
        return [DiffPiece(a, a != b)], [DiffPiece(b, a != b)]
    left, right = [], []
    for tag, a0, a1, b0, b1 in SequenceMatcher(None, words_a, words_b, autojunk=False).get_opcodes():
        left.append(DiffPiece("".join(words_a[a0:a1]), tag != "equal"))
        right.append(DiffPiece("".join(words_b[b0:b1]), tag != "equal"))
    return _nonempty(left), _nonempty(right)


def quoting(pieces: Iterable[DiffPiece], start: int, end: int) -> list[DiffPiece]:
    """Return the pieces cut at a passage of their text, whose parts are marked as quoted."""
    result: list[DiffPiece] = []
    at = 0
    for piece in pieces:
        cuts = sorted({0, len(piece.text), *(min(max(cut - at, 0), len(piece.text)) for cut in (start, end))})
        for first, last in pairwise(cuts):
            result.append(DiffPiece(piece.text[first:last], piece.changed, start <= at + first < end))
        at += len(piece.text)
    return result


def _words(text: str) -> list[str]:
    return re.findall(r"\s+|[^\s]+", text)


def _nonempty(pieces: Sequence[DiffPiece]) -> list[DiffPiece]:
    return [piece for piece in pieces if piece.text]


def pairs_html(
    pairs: Sequence[Pair],
    name_a: str,
    name_b: str,
    marks: Marks | None = None,
    me: str = "",
    linked: int | None = None,
    *,
    links: bool = False,
    quoted: Quoted | None = None,
    comments: bool = False,
) -> Html:
    """Return prompts with both texts side by side and differing words marked. The one at position ``linked`` stands
    out.

    With ``marks``, each output has the buttons by which ``me`` marks it. With ``links``, each prompt has a button that
    copies the address that opens it. With ``comments``, each output has a button that comments on it. The passage
    ``quoted`` stands out.
    """
    marking = Marking(marks, me, comments, quoted)
    return joined(_pair(pair, (name_a, name_b), marking, pair.a.position == linked, links) for pair in pairs)


class Marking(NamedTuple):
    """Marks, comments and quotes beside the texts of outputs."""

    marks: Marks | None
    me: str
    comments: bool
    quoted: Quoted | None


def _pair(pair: Pair, names: tuple[str, str], marking: Marking, linked: bool, links: bool) -> Html:
    left, right = difference(pair.a.text, pair.b.text)
    sides = [_side(pair.a, names[0], left, marking), _side(pair.b, names[1], right, marking)]
    query = {"a": pair.a.run_id, "b": pair.b.run_id, "prompt": str(pair.a.position + 1)}
    link = copy_link(query=query) if links else ""
    return render("tables/pairs.html", "pair", pair.a, sides=sides, linked=linked, link=link)


def _side(generation: GenerationView, name: str, pieces: Sequence[DiffPiece], marking: Marking) -> Html:
    at, quoted = (generation.run_id, generation.position), marking.quoted
    buttons = Html() if marking.marks is None else _marking(marking.marks.get(at, ()), marking.me, marking.comments)
    if quoted is not None and (quoted.run, quoted.position) == at:
        pieces = quoting(pieces, quoted.passage.start, quoted.passage.end)
    return render("tables/pairs.html", "side", generation, name=name, pieces=pieces, marking=buttons)


def _marking(marks: Sequence[MarkRow], me: str, comments: bool) -> Html:
    """Return the buttons, with the marks of ``me`` pressed, and everybody's marks."""
    previous = next((mark for mark in marks if same_name(mark.who, me)), None)
    barred = [refusal(LOOKS.get(), act) for act in ("mark", "comment on")]
    return render("tables/pairs.html", "marking", VERDICTS, marks, previous, comments, barred)


PAGE_SIZES = (5, 20, 50)
"""prompts per page"""
PAGER = "prompts"
SCRIPT = script("tables/pair_reader.js", LONGEST=LONGEST_TEXT, QUOTE=LONGEST_QUOTE, PAGER=PAGER)

Order = Callable[[Sequence[Pair]], Sequence[Pair]]


class RunPair(NamedTuple):
    """Two runs and their names."""

    a: Ids
    b: Ids
    name_a: str
    name_b: str

    @property
    def ids(self) -> list[str]:
        return [id for ids in (self.a, self.b) for id in ((ids,) if isinstance(ids, str) else ids)]


class PairReader(Part):
    """The reader's components as attributes. ``order`` sorts the prompts of a filter, ``which`` is the first filter.

    With ``links``, each prompt has a button that copies its address, which the page must then understand. With
    ``comments``, each output has a button that sends the act ``comment on``, which the page must then answer.
    """

    def __init__(
        self, repository: Repository, which: Show = "outcome", order: Order = list, *, links: bool = False,
        comments: bool = False,
    ) -> None:  # fmt: skip
        self.repository, self.order, self.links, self.comments = repository, order, links, comments
        with gr.Row(elem_classes=["pair-filter"]):
            self.filter = gr.Radio(list(SHOWS), value=which, label="Prompts", min_width=320, scale=3)
            self.size = gr.Dropdown(list(PAGE_SIZES), value=PAGE_SIZES[0], label="Prompts a page", min_width=120)
        self.summary = show()
        self.answer = show()
        self.pairs = show(js_on_load=SCRIPT)
        with gr.Row():
            self.back = gr.Button("Previous prompts", interactive=False, size="sm")
            self.forward = gr.Button("Next prompts", interactive=False, size="sm")
        show(render("tables/pairs.html", "keys", comments))
        self.fields = [self.filter, self.size]
        self.outputs = [self.summary, self.answer, self.pairs, self.back, self.forward]

    def listen(self, view: View) -> None:
        """Attach the events."""
        view.turns(PAGER, ((self.back, -1), (self.forward, 1)))
        view.on(self.pairs.click)
        view.act("mark", self.mark, self.answer)

    def redraw(
        self, asked: Asked, runs: RunPair | None, state: object = (), *, which: Show | None = None,
        linked: int | None = None, quoted: Quoted | None = None, read: Callable[[RunPair], Pairing] | None = None,
        about: Callable[[Pairing], Updates] = lambda pairing: {}, slow: bool = False,
    ) -> Updates:  # fmt: skip
        """Return a page of prompts as the person sees them, if it differs. Raises ``FsdError``.

        Args:
            state: what else the prompts depend on, such as how far the runs have come
            which: filter in place of the field's
            linked: position of a prompt; its page is the first that is shown
            quoted: a passage that stands out
            read: returns the prompts of two runs, by default those of the database
            about: returns what else to redraw with the prompts
            slow: whether this may wait for another answer
        """
        kind: Show = which or asked[self.filter]
        size = asked[self.size]
        size = size if size in PAGE_SIZES else PAGE_SIZES[0]
        of = digest(runs, kind, size)
        page = asked.page(PAGER, of, -1)
        marks = self.repository.marks(runs.ids) if runs else ()
        hidden = hidden_answers(self.repository, asked.person, runs.ids) if runs else HiddenAnswers()
        blind = sorted((run, sorted(at)) for run, at in hidden.by_run.items())
        if not asked.differs("prompts", of, page, linked, state, marks, asked.person.name, blind, quoted, slow=slow):
            return {}
        if runs is None:
            return {self.summary: "", self.pairs: ""} | self._turnable(0, 1, 0)
        pairing = read(runs) if read else pair_up(self.repository, runs.a, runs.b)
        readable = [pair for pair in pairing.pairs if not any(g.position in hidden.of(g.run_id) for g in pair)]
        pairs = self.order(Pairing(readable, pairing.marks).filtered(kind))
        kept_back = hidden_html(len(pairing.pairs) - len(readable), hidden.proposals, asked.address.get("proposal", ""))
        if page < 0:
            page = next((i // size for i, pair in enumerate(pairs) if pair.a.position == linked), 0)
        page = max(0, min(page, (len(pairs) - 1) // size))
        page_pairs = pairs[page * size : (page + 1) * size]
        summary = f"{count(len(pairs), 'prompt')} of {len(readable):,}"
        if len(pairs) > size:
            summary += f", {page * size + 1:,} to {page * size + len(page_pairs):,} shown"
        place = turned(PAGER, of, page) | {"data-pages": -(-len(pairs) // size)}
        no_match = notice("No prompt of this kind: choose another filter, or other runs.") if not kept_back else ""
        return {
            **about(pairing),
            self.summary: joined(
                [render("tables/pairs.html", "shown", summary, place) if pairs else no_match, kept_back]
            ),
            self.pairs: pairs_html(
                page_pairs,
                runs.name_a,
                runs.name_b,
                pairing.marks,
                asked.person.name,
                linked,
                links=self.links,
                quoted=quoted,
                comments=self.comments,
            ),
        } | self._turnable(page, size, len(pairs))

    def mark(self, act: Act, asked: Asked) -> Updates:
        """Store a verdict (``none`` removes it) or a note on an output, and keep the other one."""
        run, position = act["run"], act["position"]
        if not re.fullmatch("[0-9]{1,9}", position):
            raise Stale("There is no such output: reload the page.")
        marks = self.repository.marks([run])
        who = asked.person.name
        previous = next((one for one in marks if one.position == int(position) and same_name(one.who, who)), None)
        verdict, note = (previous.verdict, previous.note) if previous else (None, "")
        if act["verdict"]:
            verdict = None if act["verdict"] == "none" else act["verdict"]
        else:
            note = act["note"].strip()
        self.repository.mark(run, int(position), who, verdict, note)
        return {self.answer: ""}

    def _turnable(self, page: int, size: int, prompts: int) -> Updates:
        return {
            self.back: gr.Button(interactive=page > 0),
            self.forward: gr.Button(interactive=(page + 1) * size < prompts),
        }
