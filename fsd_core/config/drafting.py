"""Settings of drafters and topologies. They name the code that needs torch, and import none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, NoReturn

from pydantic import BeforeValidator, ConfigDict, SerializeAsAny

from fsd_core.frozen import Frozen, changed, kind_of, option
from fsd_core.plugins import Registry, classes_of, implementation, not_installed
from fsd_core.rules.base import BEAMS, CHAIN, SEVERAL, TREE

_KEPT = 0.9
"""weight of a round against the one after it"""


@dataclass(frozen=True, slots=True)
class RecentAcceptance:
    """Accepted and judged drafted tokens of a text, each round weighing 0.9 of the next: S ← 0.9 S + accepted,
    N ← 0.9 N + judged.

    A text begins as if 4 of 5 tokens had been accepted. The tokens behind a rejected one were not judged.
    """

    accepted: float = 4.0
    judged: float = 5.0

    def after(self, accepted: int, drafted: int) -> RecentAcceptance:
        """Return it after a round that accepted the first ``accepted`` of ``drafted`` tokens."""
        judged = min(accepted + 1, drafted)
        return RecentAcceptance(_KEPT * self.accepted + accepted, _KEPT * self.judged + judged)

    def best_length(self, longest: int, cost: float) -> int:
        """Return the draft length γ of 1 to ``longest`` with the most expected tokens per target forward's time:

        γ = argmax (1 + α + … + α^γ) / (1 + c·γ), with α = S/N (Leviathan et al. 2023, theorem 3.8). Of equal ones the
        shortest. ``cost``: c, the time to draft a token, in target forwards.

        This is a bandit whose arms are the lengths. Every arm drafts the first token, so each round tells of all arms,
        and none has to be tried for its own sake.
        """
        rate = self.accepted / self.judged
        best, tokens, power, best_value = 1, 1.0, 1.0, 0.0
        for length in range(1, longest + 1):
            power *= rate
            tokens += power
            value = tokens / (1 + cost * length)
            if value > best_value:
                best, best_value = length, value
        return best


class DrafterSettings(Frozen):
    """Settings of a drafter. Its annotated fields are options, and ``kind`` is its name."""

    title: ClassVar[str]
    """name in menus"""
    word: ClassVar[str] = ""
    """its part of a label; empty for the default drafter"""
    has_distribution: ClassVar[bool] = True
    """whether its tokens come from a distribution, which trees and several drafts need"""
    has_successors: ClassVar[bool] = False
    """whether it knows what may follow a path, which a search tree needs: a :class:`fsd_core.topologies.Lookup`"""
    needs_head: ClassVar[bool] = False
    """whether it drafts with an EAGLE head, which not every pair has"""
    implementation: ClassVar[str]
    """its class, a :class:`fsd_core.drafters.Drafter`, as ``package.module:Class``"""

    kind: str
    """name in settings and on the command line"""

    @property
    def learns_from_run(self) -> bool:
        """Whether it also drafts from earlier texts of a run, so that its drafts depend on their order."""
        return False

    def label_parts(self) -> list[str]:
        """Return the parts of a label that name it."""
        return [*filter(None, [self.word]), *changed(self)]

    def load(self) -> Any:
        """Return its class. Raises ``InvalidSetting`` if it is not installed or cannot be imported."""
        return implementation(f"The drafter '{self.kind}'", self.implementation)


class CopyingDrafter(DrafterSettings):
    """A drafter that proposes tokens of texts and needs no model. A subclass only implements :meth:`copied`.

    Its tokens have no distribution (q = 1 on each), so it drafts chains; and search trees, if it ``has_successors`` and
    implements :meth:`successors`.
    """

    has_distribution = False
    implementation = "fsd_core.drafters:Copying"

    def copied(self, text: Sequence[int]) -> Sequence[int]:
        """Return the proposed continuation of a text; empty for no proposal. Only as many tokens as needed are read.

        ``text``: token ids of the prompt and of the tokens written so far, at least one.
        """
        raise NotImplementedError(f"{type(self).__name__} says what it copies in a method 'copied'")

    def successors(self, text: Sequence[int]) -> Sequence[tuple[int, float]]:
        """Return the tokens that may follow a text with their probabilities, the likeliest first.

        ``text``: as for :meth:`copied`, and behind it the tokens of a path down a tree.
        """
        raise NotImplementedError(f"{type(self).__name__} says what may follow in a method 'successors'")


class MissingDrafter(DrafterSettings):
    """A drafter of a package that is not installed. Its runs can be read and compared, but it cannot draft."""

    model_config = ConfigDict(extra="allow")
    title, has_successors = "Missing drafter", True
    kind: str

    def label_parts(self) -> list[str]:
        return [self.kind]

    def load(self) -> NoReturn:
        raise not_installed("drafter", self.kind)


class TopologySettings(Frozen):
    """Settings of a topology, the structure of the draft. Its annotated fields are options."""

    title: ClassVar[str]
    """name in menus"""
    judged_as: ClassVar[str] = CHAIN
    """How the draft is verified, and so by which rules: ``CHAIN``, position by position; ``TREE``, from the root down;
    ``SEVERAL``, by a verifier of several drafts per position; or ``BEAMS``, layer by layer of several texts."""
    searches: ClassVar[bool] = False
    """whether it asks the drafter for successors and not for distributions"""
    implementation: ClassVar[str]
    """its class, a :class:`fsd_core.topologies.DraftTopology`, as ``package.module:Class``"""

    kind: str
    """name in settings and on the command line"""
    length: int
    """nodes on the longest path"""

    @property
    def max_fed_tokens(self) -> int:
        """Most tokens fed after a text in one round, to the target or to the drafter."""
        return self.length

    def next_length(self, acceptance: RecentAcceptance) -> int:
        """Return the nodes on the longest path of a text's next round, ``length`` at most."""
        return self.length

    def label_parts(self) -> list[str]:
        """Return the parts of a label that name it, without its length."""
        return [self.title.lower(), *changed(self, "length")]

    def load(self) -> Any:
        """Return its class. Raises ``InvalidSetting`` if it is not installed or cannot be imported."""
        return implementation(f"The topology '{self.kind}'", self.implementation)


class MissingTopology(TopologySettings):
    """A topology of a package that is not installed. Its runs can be read and compared, but it cannot draft."""

    model_config = ConfigDict(extra="allow")
    title = "Missing topology"
    kind: str

    def label_parts(self) -> list[str]:
        return [self.kind]

    def load(self) -> NoReturn:
        raise not_installed("topology", self.kind)


class BeamsTopology(TopologySettings):
    """``drafts`` beams in each of ``length`` layers, drawn with replacement from the draft's joint distribution."""

    title, judged_as = "Beams", BEAMS
    implementation = "fsd_core.decoding.beams:BeamDrafting"
    kind: Literal["beams"] = BEAMS
    length: int = option(5, "Draft length γ", "Layers drafted per round", name="draft_length", ge=1, le=16)
    drafts: int = option(3, "Drafts per position", "Drafts per layer of beams", ge=1, le=16)

    @property
    def max_fed_tokens(self) -> int:
        """Most tokens fed after the live beams in one round."""
        return self.length * self.drafts

    def label_parts(self) -> list[str]:
        return [f"{self.drafts} drafts"]


class DraftModelDrafter(DrafterSettings):
    """The pair's draft model writes the proposal."""

    title, implementation = "Draft model", "fsd_core.drafters:DraftModelProposer"
    kind: Literal["draft-model"] = "draft-model"


class EagleDrafter(DrafterSettings):
    """The pair's EAGLE head, which drafts from the target's hidden states."""

    title, word, needs_head = "EAGLE head", "EAGLE", True
    implementation = "fsd_core.drafters:EagleProposer"
    kind: Literal["eagle"] = "eagle"


class PromptLookupDrafter(CopyingDrafter):
    """Copies what followed the last n-gram's previous occurrence. It needs no draft model.

    Saxena 2023, "Prompt Lookup Decoding".
    """

    title, word, has_successors = "Prompt lookup", "prompt lookup", True
    kind: Literal["prompt-lookup"] = "prompt-lookup"
    max_ngram: int = option(3, "Longest n-gram", "Longest n-gram that prompt-lookup searches for", ge=1, le=8)

    def label_parts(self) -> list[str]:
        is_default = self.max_ngram == type(self).model_fields["max_ngram"].default
        return [self.word if is_default else f"{self.word} {self.max_ngram}-gram"]

    def copied(self, text: Sequence[int]) -> Sequence[int]:
        places = continuations(text, self.max_ngram)
        return text[places[0] :] if places else ()

    def successors(self, text: Sequence[int]) -> Sequence[tuple[int, float]]:
        """Return what followed the last n-gram, by how often; of equally frequent tokens the latest first."""
        following = Counter(text[place] for place in continuations(text, self.max_ngram))
        return [(token, count / following.total()) for token, count in following.most_common()]


def continuations(text: Sequence[int], max_ngram: int) -> list[int]:
    """Return the indices after the earlier occurrences of the last n tokens, the latest first. n is the largest, up to
    ``max_ngram``, of which there are any."""
    tokens, longest, places = list(text), 1, list[int]()
    start = 0
    while True:
        try:
            start = tokens.index(tokens[-1], start, -1) + 1
        except ValueError:
            return places[::-1]
        length = 1
        while length < min(max_ngram, start) and tokens[start - 1 - length] == tokens[-1 - length]:
            length += 1
        if length > longest:
            longest, places = length, []
        if length == longest:
            places.append(start)


def length_option(maximum: int, default: int = 5) -> int:
    """Return the field of the most tokens on a path."""
    return option(
        default, "Draft length γ", "Tokens drafted per round", name="draft_length", plural="Draft lengths γ", ge=1,
        le=maximum,
    )  # fmt: skip


def total_tokens_option() -> int:
    """Return the field of a tree's size."""
    return option(24, "Tree tokens", "Tokens of a tree, its root included", name="tree_tokens", ge=2, le=256)


FIXED, LAST_TOKEN, WHOLE_CHAIN, ACCEPTANCE = "fixed", "token", "chain", "acceptance"
LengthBy = Literal["fixed", "token", "chain", "acceptance"]
LENGTH_TITLES = {
    FIXED: "Always the same", LAST_TOKEN: "Until the draft doubts its last token",
    WHOLE_CHAIN: "Until the draft doubts the whole chain", ACCEPTANCE: "By the acceptance so far",
}  # fmt: skip
"""in menus"""


class ChainTopology(TopologySettings):
    """One candidate per position, ``length`` positions at most.

    ``length_by`` says how many of them a round drafts. ``token`` and ``chain`` stop behind a token at which the draft's
    own probability is too low, as transformers' ``assistant_confidence_threshold`` and llama.cpp's ``p-min`` do; see
    :class:`fsd_core.topologies.Chain`. ``acceptance`` takes the length that pays best at the acceptance so far,
    see :class:`RecentAcceptance`.
    """

    title, implementation = "Chain", "fsd_core.topologies:Chain"
    kind: Literal["chain"] = CHAIN
    length: int = length_option(32)
    length_by: LengthBy = option(
        FIXED, "Draft stopping", "What may end a draft before its draft length: nothing, too low a probability of its "
        "last token or of the whole chain, or the acceptance so far", plural="Draft stopping", before=FIXED,
    )  # fmt: skip
    least_probability: float = option(
        0.4, "Least probability", "Stop drafting below this probability of the last token, or of the whole chain",
        needs={"length_by": (LAST_TOKEN, WHOLE_CHAIN)}, before=0.4, ge=0, le=1,
    )  # fmt: skip
    draft_cost: float = option(
        0.1, "Cost of a drafted token", "Time to draft a token, in target forwards", unit="forwards",
        needs={"length_by": (ACCEPTANCE,)}, before=0.1, ge=0, le=10,
    )  # fmt: skip

    def next_length(self, acceptance: RecentAcceptance) -> int:
        return acceptance.best_length(self.length, self.draft_cost) if self.length_by == ACCEPTANCE else self.length

    def label_parts(self) -> list[str]:
        if self.length_by in (LAST_TOKEN, WHOLE_CHAIN):
            return [f"length by {self.length_by} ≥ {self.least_probability:g}"]
        return changed(self, "length", "least_probability")


class MultiDraftTopology(TopologySettings):
    """``drafts`` parallel chains of ``length`` positions. Their first tokens are sampled as the verifier requires."""

    title, judged_as = "Several drafts", SEVERAL
    implementation = "fsd_core.topologies:MultiDraft"
    kind: Literal["multi-draft"] = SEVERAL
    length: int = length_option(32)
    drafts: int = option(
        3, "Drafts per position", "Drafts per position, for the rules that verify several", ge=2, le=16
    )

    @property
    def max_fed_tokens(self) -> int:
        """Most tokens fed after a text in one round."""
        return self.length * self.drafts

    def label_parts(self) -> list[str]:
        return [f"{self.drafts} drafts"]


class DynamicTreeTopology(TopologySettings):
    """EAGLE-2's tree, the likeliest ``total_tokens`` − 1 of the nodes found.

    The nodes are the first ``top_k`` and those that ``length`` − 1 expansions (its ``depth``) of the ``top_k`` best
    add. ``length`` is the number of nodes on the longest path. The published tree (60 tokens, ``length`` 6) pays off if
    a forward of many tokens costs little more than one of a few. The default tree is smaller.
    """

    title, judged_as = "Tree", TREE
    implementation = "fsd_core.topologies:DynamicTree"
    kind: Literal["dynamic-tree"] = TREE
    length: int = length_option(16)
    top_k: int = option(
        10,
        "Tree width",
        "Nodes that each level of a tree expands, the best ones",
        name="tree_top_k",
        aliases=["tree_width"],
        ge=1,
        le=32,
    )
    total_tokens: int = total_tokens_option()

    @property
    def max_fed_tokens(self) -> int:
        """Most tokens fed after a text in one round, to the target or to the drafter."""
        return max(self.total_tokens - 1, (self.length - 1) * self.top_k)

    def label_parts(self) -> list[str]:
        is_default = self.top_k == type(self).model_fields["top_k"].default
        return [f"tree {self.total_tokens}", *([] if is_default else [f"top {self.top_k}"])]


BEST_FIRST, MCTS = "best-first", "mcts"
SEARCH_TITLES = {BEST_FIRST: "Best first", MCTS: "Monte Carlo tree search"}
"""in menus"""


class SearchTreeTopology(TopologySettings):
    """The likeliest ``total_tokens`` − 1 paths of at most ``length`` tokens, by the successors that a drafter knows.

    ``best-first`` takes the node with the largest product of probabilities, again and again. ``mcts`` searches as
    Adaptix does (Liu et al. 2025), at ``iterations`` · ``length`` times the cost, for about the same tree.
    """

    title, judged_as, searches = "Search tree", TREE, True
    implementation = "fsd_core.topologies:SearchTree"
    kind: Literal["search-tree"] = "search-tree"
    length: int = length_option(16, default=4)
    total_tokens: int = total_tokens_option()
    search: Literal["best-first", "mcts"] = option(
        BEST_FIRST, "Search", "How a search tree is found: best first, or by Monte Carlo tree search"
    )
    iterations: int = option(
        150, "Iterations", "Iterations of a Monte Carlo tree search", needs={"search": (MCTS,)},
        name="search_iterations", ge=1, le=500,
    )  # fmt: skip

    @property
    def max_fed_tokens(self) -> int:
        """Most tokens fed after a text in one round."""
        return self.total_tokens - 1

    def label_parts(self) -> list[str]:
        found = f"{self.search} {self.iterations}" if self.search == MCTS else ""
        return [f"search tree {self.total_tokens}", found]


Memory = Literal["text", "run"]
MEMORY_TITLES = {"text": "This text alone", "run": "The run's earlier answers too"}
"""in menus"""


def memory_option() -> Any:
    """Return the field of a drafter that may remember earlier texts of a run."""
    return option(
        "text", "Copies from", "What the drafters 'suffix' and 'trigram' draft from: this text alone, or earlier "
        "answers of the run too, at temperature 0 and with a lossless rule", before="text",
    )  # fmt: skip


END_OF_TEXT = -1
"""stands behind each earlier answer; no token"""
_MOST_PLACES = 32
"""occurrences of a match that are looked at, the latest"""


class Matched(NamedTuple):
    """A match of the text's end, and what it proposes."""

    expected: float
    """accepted tokens, if the text goes on as the occurrences did"""
    draft: list[int]
    text: list[int]
    """earlier answers and the text itself"""
    places: list[int]
    """where its occurrences go on, the latest first"""
    most: int
    """tokens that it may propose"""


class SuffixDrafter(CopyingDrafter):
    """Copies what most often followed the longest matches of the text's end, in the prompt and in the answer so far.

    Suffix decoding (Oliaro et al. 2024, "SuffixDecoding", arXiv 2411.04975), on one text: a match of p tokens proposes
    up to ``factor`` · p tokens, each the most frequent behind those before it, as long as the share of the occurrences
    that go on like this is at least ``least``. The sum of these shares is the number of tokens that would be accepted
    if the text went on as its occurrences did; the match with the largest sum is taken. With the memory ``run`` the
    latest earlier answers of the run are looked through like the text. What is drafted then depends on the order of the
    prompts, so it is for texts that do not depend on the draft: at temperature 0, with a lossless rule.

    A search tree branches where a chain takes the most frequent token, in the match that a chain would copy.
    """

    has_successors = True
    title, word, implementation = "Suffix", "suffix", "fsd_core.drafters:SuffixProposer"
    kind: Literal["suffix"] = "suffix"
    longest: int = option(
        24, "Longest match", "Longest end of the text that the drafter 'suffix' looks for", name="longest_match",
        ge=1, le=64,
    )  # fmt: skip
    factor: float = option(
        2.0, "Tokens per matched token", "Tokens drafted per matched token", name="match_factor", ge=0.25, le=8
    )
    least: float = option(
        0.1, "Least share", "Least share of occurrences that go on as drafted", name="least_share", ge=0, le=1
    )
    memory: Memory = memory_option()

    @property
    def learns_from_run(self) -> bool:
        return self.memory == "run"

    def copied(self, text: Sequence[int]) -> Sequence[int]:
        return self.continued(text)

    def continued(self, text: Sequence[int], answers: Sequence[int] = ()) -> Sequence[int]:
        """Return the proposed continuation of a text. ``answers``: earlier answers, ``END_OF_TEXT`` behind each."""
        return self.matched(text, answers).draft

    def matched(self, text: Sequence[int], answers: Sequence[int] = ()) -> Matched:
        """Return the match whose draft is expected to keep most tokens; one without places if nothing matches."""
        text = [*answers, *text]
        matches = common_suffixes(text)
        matching = [place for place in range(len(text) - 1, 0, -1) if matches[place] and text[place] != END_OF_TEXT]
        best = Matched(0.0, [], text, [], 0)
        looked_at: list[int] = []
        for length in range(min(max(matches), self.longest), 0, -1):
            places = [place for place in matching if matches[place] >= length][:_MOST_PLACES]
            if places == looked_at:  # a shorter match in the same places proposes no more
                continue
            looked_at, most = places, int(self.factor * length)
            expected, draft = self._likeliest(text, places, most)
            if expected > best.expected:  # of equal ones the longer match, which came first
                best = Matched(expected, draft, text, places, most)
        return best

    def successors_in(self, matched: Matched, path: Sequence[int]) -> Sequence[tuple[int, float]]:
        """Return the tokens that followed a match and the tokens of ``path``, each with its share of the returned ones.

        Of all occurrences of the match, at least the share ``least`` went on with the path and the token. The most
        frequent token comes first, of equally frequent ones the latest.
        """
        if len(path) >= matched.most:
            return ()
        way, step = list(path), len(path)
        written = matched.text + way
        following = Counter(written[place + step] for place in matched.places if written[place : place + step] == way)
        del following[END_OF_TEXT]
        kept = [(token, count) for token, count in following.most_common() if count >= self.least * len(matched.places)]
        total = sum(count for _, count in kept)
        return [(token, count / total) for token, count in kept]

    def _likeliest(self, text: Sequence[int], places: list[int], most: int) -> tuple[float, list[int]]:
        """Return the expected number of accepted tokens and the tokens. ``places``: where occurrences go on, the latest
        first. One that reaches the end of the text goes on with the draft, so that what repeats itself goes on."""
        occurrences, tokens, expected, written = len(places), [], 0.0, list(text)
        while len(tokens) < most:
            step = len(tokens)
            # Of equally frequent tokens the latest.
            following = [token for place in places if (token := written[place + step]) != END_OF_TEXT]
            if not following:
                break
            token, count = Counter(following).most_common(1)[0]
            if count < self.least * occurrences:
                break
            places = [place for place in places if written[place + step] == token]
            tokens.append(token)
            written.append(token)
            expected += count / occurrences
        return expected, tokens


def common_suffixes(text: Sequence[int]) -> list[int]:
    """Return for each place how many tokens before it are the last tokens of the text; 0 at place 0.

    The Z-function of the reversed text (Gusfield 1997), in linear time.
    """
    backwards, size = list(text)[::-1], len(text)
    common, left, right = [0] * size, 0, 0
    for i in range(1, size):
        length = min(right - i, common[i - left]) if i < right else 0
        while i + length < size and backwards[length] == backwards[i + length]:
            length += 1
        common[i] = length
        if i + length > right:
            left, right = i, i + length
    return [0, *common[:0:-1]]


TABLE_TITLES = {"pair": "The pair's own, if it has one", "empty": "An empty one"}
"""in menus"""


class TrigramDrafter(CopyingDrafter):
    """Drafts the likeliest successors of the last two tokens, by a table that learns while it drafts.

    Adaptix (Liu et al. 2025, arXiv 2407.12021). The weight of a token w behind a pair of tokens is
    min(``cap``, share(pair, w) + learned(pair, w)), with the share of w among what followed the pair in training texts,
    if the pair of models has such a ``table``. A text's first round adds ``step`` for each tri-gram of the prompt, and
    each later one for each tri-gram of the last ``window`` tokens, so what was written lately is rewarded again and
    again. The ``most_successors`` heaviest follow, of equal ones the lower ids first. With the memory ``run`` what was
    learned is kept from text to text. The table changes from round to round, so its code drafts, and not ``copied``.
    """

    title, word, implementation = "Tri-gram table", "trigram", "fsd_core.drafters:TrigramProposer"
    has_successors = True
    kind: Literal["trigram"] = "trigram"
    table: Literal["pair", "empty"] = option(
        "pair", "First table", "Table that the drafter 'trigram' begins with: the pair's, counted in training texts, "
        "if it has one, or an empty one"
    )  # fmt: skip
    window: int = option(
        16, "Learning window", "Last tokens of the text whose tri-grams each round adds to the table",
        name="learning_window", ge=3, le=512,
    )  # fmt: skip
    step: float = option(
        0.04, "Learning step", "Weight that a tri-gram gains when it is learned; 0 learns nothing",
        name="learning_step", ge=0, le=10,
    )  # fmt: skip
    cap: float = option(3.0, "Largest weight", "Largest weight of a tri-gram", name="weight_cap", ge=0.01, le=100)
    most_successors: int = option(
        12, "Successors", "Heaviest successors of a pair of tokens that may follow", name="successors", ge=1, le=64
    )
    memory: Memory = memory_option()

    @property
    def learns_from_run(self) -> bool:
        return self.memory == "run"


__all__ = [
    "DRAFTERS",
    "TOPOLOGIES",
    "BeamsTopology",
    "ChainTopology",
    "CopyingDrafter",
    "DraftModelDrafter",
    "DrafterConfig",
    "DrafterSettings",
    "DynamicTreeTopology",
    "EagleDrafter",
    "MissingDrafter",
    "MissingTopology",
    "MultiDraftTopology",
    "PromptLookupDrafter",
    "RecentAcceptance",
    "SearchTreeTopology",
    "SuffixDrafter",
    "TopologyConfig",
    "TopologySettings",
    "TrigramDrafter",
]

_DRAFTERS: tuple[type[DrafterSettings], ...] = (
    DraftModelDrafter,
    PromptLookupDrafter,
    SuffixDrafter,
    TrigramDrafter,
    EagleDrafter,
)
_TOPOLOGIES: tuple[type[TopologySettings], ...] = (
    ChainTopology,
    MultiDraftTopology,
    DynamicTreeTopology,
    SearchTreeTopology,
    BeamsTopology,
)

DRAFTERS: Registry[type[DrafterSettings]] = Registry(lambda: _DRAFTERS, kind_of, classes_of(DrafterSettings))
TOPOLOGIES: Registry[type[TopologySettings]] = Registry(lambda: _TOPOLOGIES, kind_of, classes_of(TopologySettings))
"""both by ``kind``, in display order"""


def _drafter(value: Any) -> Any:
    """Return the drafter that ``kind`` names; a ``MissingDrafter`` if its package is not installed."""
    return DRAFTERS.get(str(value.get("kind")), MissingDrafter)(**value) if isinstance(value, dict) else value


def _topology(value: Any) -> Any:
    return TOPOLOGIES.get(str(value.get("kind")), MissingTopology)(**value) if isinstance(value, dict) else value


DrafterConfig = Annotated[SerializeAsAny[DrafterSettings], BeforeValidator(_drafter)]
TopologyConfig = Annotated[SerializeAsAny[TopologySettings], BeforeValidator(_topology)]
