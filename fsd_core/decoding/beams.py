"""Beams: a text of several candidates, written layer by layer beside the loop, which writes one.

Writes one text as beams, with the surface of :class:`fsd_core.decoding.loop.Batch`.

A round drafts layers of beams, scores the live beams and all drafts in one forward of the target, and judges layer by
layer (:mod:`fsd_core.ops.distributions`). A layer that passes hands its beams to the next one. The first that fails is
filled and ends the round; after the last layer the target samples one more. Beam sampling is a round without drafts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fsd_core.config import SamplingConfig
from fsd_core.decoding.loop import Closing, Method, TextMarks
from fsd_core.decoding.trace import Kind, RoundRecord
from fsd_core.errors import IncompatibleModels
from fsd_core.models.caches import KVCache
from fsd_core.models.language_model import LanguageModel
from fsd_core.ops.distributions import UniformStream, draw_several, joint_law, judge_layer, warp
from fsd_core.ops.kernels import Forest, to_device, to_host
from fsd_core.theory import acceptance_counts, layer_width, rejected_shares


@dataclass(eq=False, slots=True, repr=False)
class BeamNode:
    """A token behind the beginning of a text. Texts that share a beginning share its nodes. The root is the prompt's
    last token, at depth 0."""

    token: int
    parent: BeamNode | None = None
    depth: int = 0
    ends: bool = False
    """whether the text ends with it"""
    kind: Kind = "plain"
    probability: float = 1.0
    """under the raw target; known once it belongs to a beam"""
    log_likelihood: float = 0.0
    """sum of the logarithms from the root to here, under the raw target"""

    def up(self) -> Iterator[BeamNode]:
        """Yield the node and what is above it, the root last."""
        node: BeamNode | None = self
        while node is not None:
            yield node
            node = node.parent

    @property
    def mean_log_likelihood(self) -> float:
        return self.log_likelihood / max(self.depth, 1)


@dataclass(frozen=True, slots=True)
class Beam:
    """A beam of weight exp(``log_weight``). Two beams may have the same text."""

    node: BeamNode
    log_weight: float


class BeamText:
    """A prompt, the beams behind it, and what of their text has been told.

    ``limit``: most tokens to write; ``limited_by``: its reason. ``eos``: ids that end a text; ``marks``: strings that
    do. ``stop_reason``: ``None`` until the end.
    """

    def __init__(
        self, prompt: Sequence[int], limit: int, limited_by: str, eos: frozenset[int], marks: TextMarks | None
    ) -> None:
        self.history = list(prompt)
        self.stop_reason: str | None = None
        self.live = [Beam(BeamNode(prompt[-1]), 0.0)]
        self._prompt, self._limit, self._limited_by = list(prompt), limit, limited_by
        self._eos, self._marks = eos, marks
        self._nodes: dict[tuple[BeamNode, int], BeamNode] = {}  # by parent and token
        self._told = self.live[0].node
        self._best: BeamNode | None = None  # the ended beam of the largest mean log-likelihood

    @property
    def remaining_layers(self) -> int:
        return self._limit - self.live[0].node.depth

    @property
    def length(self) -> int:
        """Tokens of each live beam, the prompt included."""
        return len(self._prompt) + self.live[0].node.depth

    def child(self, parent: BeamNode, token: int) -> BeamNode:
        """Return the node of a token behind another, which is made at first."""
        key = parent, token
        if key not in self._nodes:
            self._nodes[key] = BeamNode(token, parent, parent.depth + 1, self._ends(parent, token))
        return self._nodes[key]

    def _ends(self, parent: BeamNode, token: int) -> bool:
        if token in self._eos or self._marks is None:
            return token in self._eos
        return self._marks.first(self.tokens(parent), [token], None) is not None

    def tokens(self, node: BeamNode) -> list[int]:
        """Return the token ids of the prompt and of the text up to a node."""
        return self._prompt + [above.token for above in node.up()][-2::-1]

    def add_layer(self, beams: Iterable[Beam]) -> None:
        """Replace the live beams by those of the next layer. The ended ones among them are candidates for the answer
        from now on."""
        beams = list(beams)
        self.live = [beam for beam in beams if not beam.node.ends]
        ended = [beam.node for beam in beams if beam.node.ends]
        candidates = ended if self._best is None else [self._best, *ended]
        self._best = max(candidates, key=lambda node: node.mean_log_likelihood, default=None)
        if not self.live:
            self.stop_reason = "eos"
        elif self.remaining_layers <= 0:
            self.stop_reason = self._limited_by

    def tell(self) -> list[BeamNode]:
        """Return the nodes that have become common to all candidates; at the end, the rest of the answer.

        The ended beam that could be the answer is a candidate like the live ones, so that nothing told is taken back.
        """
        nodes = [*(beam.node for beam in self.live), *filter(None, [self._best])]
        if self.stop_reason is not None:
            answer = max(nodes, key=lambda node: node.mean_log_likelihood)
            self.stop_reason = "eos" if answer.ends else self._limited_by
            nodes = [answer]
        common = common_node(nodes)
        new = list(reversed([node for node in common.up() if node.depth > self._told.depth]))
        self._told = common
        self.history += [node.token for node in new]
        return new


def common_node(nodes: Iterable[BeamNode]) -> BeamNode:
    """Return the deepest node on the paths to all of these."""
    distinct = {*nodes}
    while len(distinct) > 1:
        deepest = max(distinct, key=lambda node: node.depth)
        assert deepest.parent is not None  # the root alone is left before it is reached
        distinct = (distinct - {deepest}) | {deepest.parent}
    return distinct.pop()


def log_of(probability: float) -> float:
    """Return the logarithm, −inf for 0."""
    return math.log(probability) if probability > 0 else -math.inf


class ForestCache:
    """A model with its cache: a straight prefix that all beams share, and the other cached nodes behind it."""

    def __init__(self, model: LanguageModel, capacity: int) -> None:
        self.model = model
        self.cache = model.new_cache(capacity)
        self._forest = Forest(0)
        self._nodes: dict[BeamNode, int] = {}  # those behind the prefix, with their indices in the forest
        self._trunk = 0  # depth of the first node that is not in the prefix

    def begin(self, prompt: Sequence[int]) -> None:
        """Feed all of a prompt but its last token, which is the root of the beams."""
        if len(prompt) > 1:
            self.model.forward(self._tensor(prompt[:-1]), self.cache, logits_to_keep=1)
        self._forest = Forest(len(prompt) - 1)

    def logits(self, wanted: Sequence[BeamNode]) -> Tensor:
        """Feed these nodes, none of them cached, with what is missing above them. Return the logits after each:
        [N,V]."""
        fed = self._missing(wanted)
        parents = [-1 if node.parent is None else self._nodes.get(node.parent, -1) for node in fed]
        attention = self._forest.add(parents, self.model.device)
        logits = self.model.forward(
            self._tensor([node.token for node in fed]),
            self.cache,
            logits_to_keep=len(fed),
            tree_attention=None if self._forest.is_chain else attention,
        )[0]
        if len(fed) == len(wanted):
            return logits
        start = len(self._nodes) - len(fed)
        rows = torch.tensor([self._nodes[node] - start for node in wanted])
        return logits[to_device(rows, logits.device)]

    def _missing(self, wanted: Sequence[BeamNode]) -> list[BeamNode]:
        """Return the nodes to feed, parents first and the wanted ones last, and take them into the forest."""
        missing: dict[BeamNode, None] = {}
        for node in wanted:
            for above in node.up():
                if above in self._nodes or above.depth < self._trunk:
                    break
                missing[above] = None
        fed = sorted(missing, key=lambda node: node.depth)
        if [*wanted] != fed:
            fed = [node for node in fed if node not in {*wanted}] + [*wanted]
        for node in fed:
            self._nodes[node] = len(self._nodes)
        return fed

    def keep(self, leaves: Iterable[BeamNode], shared: BeamNode | None) -> None:
        """Keep only what is above the leaves. ``shared``: the deepest node above all of them, down to which the nodes
        become the prefix."""
        above = {node for leaf in leaves for node in list(leaf.up())[1:]}
        kept = {node: index for node, index in self._nodes.items() if node in above}
        indices, prefix = list(kept.values()), self._forest.prefix
        if indices != list(range(len(indices))):
            self.cache.compact(prefix, to_device(torch.tensor(indices), self.model.device))
        self.cache.rollback(prefix + len(indices))
        trunk = 0 if shared is None else sum(node.depth <= shared.depth for node in kept)
        self._forest.keep(indices, trunk)
        self._nodes = {node: index for index, node in enumerate(list(kept)[trunk:])}
        self._trunk += trunk

    def _tensor(self, tokens: Sequence[int]) -> Tensor:
        return to_device(torch.tensor([list(tokens)]), self.model.device)


@dataclass(frozen=True, slots=True)
class DraftedLayer:
    """A layer of M drafts. Its law is over the pairs of a beam of the layer before it and a token."""

    parents: list[BeamNode]
    """the beams that it continues, [B]"""
    origins: list[int]
    """for each of them, which draft of the layer before it is; of the first layer, which live beam"""
    law: Tensor
    """q, float64 [B·V]"""
    atoms: Tensor
    """the drafts in the order drawn, int64 [M]"""
    nodes: list[BeamNode]
    """their nodes, [M]"""


def weights_of(log_weights: Sequence[float], device: torch.device) -> Tensor:
    """Return logarithms of weights on a device, float64 [B]."""
    return to_device(torch.tensor(log_weights, dtype=torch.float64), device)


class BeamDrafting:
    """Drafts beams of one text, ``drafts`` in each of up to ``length`` layers.

    Draft beams start as the live ones, with the weights that the target gave them. A beam that ended is not continued.
    """

    def __init__(self, model: LanguageModel, sampling: SamplingConfig, length: int, drafts: int, capacity: int) -> None:
        self.length, self._drafts, self._sampling = length, drafts, sampling
        self.context = model.context
        self.forest = ForestCache(model, capacity)

    def layers(self, text: BeamText, depth: int, uniforms: UniformStream) -> list[DraftedLayer]:
        """Return at most ``depth`` layers behind the live beams; fewer if all draft beams have ended."""
        layers: list[DraftedLayer] = []
        beams, origins = text.live, list(range(len(text.live)))
        while len(layers) < depth and beams:
            nodes = list(dict.fromkeys(beam.node for beam in beams))
            rows = warp(self.forest.logits(nodes), self._sampling)
            of_beam = [nodes.index(beam.node) for beam in beams]
            rows = rows if of_beam == list(range(len(rows))) else rows[of_beam]
            law = joint_law(weights_of([beam.log_weight for beam in beams], rows.device), rows)
            atoms = draw_several(law[None], uniforms.take(1, self._drafts), "with_replacement")[0]
            drawn, chances = to_host(torch.stack([atoms.double(), law[atoms]]))
            vocabulary = rows.shape[1]
            drafted = [text.child(beams[int(x) // vocabulary].node, int(x) % vocabulary) for x in drawn]
            layers.append(DraftedLayer([beam.node for beam in beams], origins, law, atoms, drafted))
            origins = [i for i, node in enumerate(drafted) if not node.ends]
            beams = [Beam(drafted[i], log_of(chances[i])) for i in origins]
        return layers


@dataclass(frozen=True, slots=True)
class _Scores:
    """The target's distributions after nodes: warped and raw, [N,V], and each node's row."""

    warped: Tensor
    raw: Tensor
    rows: Mapping[BeamNode, int]

    def law(self, beams: Sequence[tuple[BeamNode, float]]) -> Tensor:
        """Return the joint law over beams, which are nodes with the logarithms of their weights: float64 [B·V]."""
        weights = weights_of([log_weight for _, log_weight in beams], self.warped.device)
        return joint_law(weights, self.warped[[self.rows[node] for node, _ in beams]])


class BeamBatch(Closing):
    """One text being written as beams, one round at a time. As a context manager it closes itself.

    ``eos``: ids that end a text. ``capacity``: see ``Method.capacity``. Raises ``InvalidSetting`` for more rows than
    one.
    """

    def __init__(self, method: Method, eos: frozenset[int], capacity: int, rows: int = 1) -> None:
        method.check_batch_size(rows)
        assert method.beams is not None
        self.model: LanguageModel = method.model
        self._method, self._plan, self._eos = method, method.beams, eos
        self._capacity = capacity
        self.text: BeamText | None = None
        self.forest: ForestCache
        self.drafting: BeamDrafting | None = None
        self._prompt: list[int] | None = None

    @property
    def cache(self) -> KVCache:
        return self.forest.cache

    @property
    def live(self) -> list[list[int]]:
        """The live beams' texts so far: token ids, the prompt included."""
        assert self.text is not None
        return [self.text.tokens(beam.node) for beam in self.text.live]

    @torch.inference_mode()
    def put(self, row: int, prompt: Sequence[int], seed: int) -> BeamText:
        """Start a text, replacing the one before. ``seed``: the uniforms' seed.

        Raises ``InvalidSetting`` for an empty prompt, ``PromptTooLong`` for one that fills the context.
        """
        method, plan = self._method, self._plan
        method.check_prompt(len(prompt))
        if self.text is not None:
            self.close()
        limit = min(method.max_new_tokens, method.context - len(prompt))
        limited_by = "length" if limit == method.max_new_tokens else "context"
        self.text = BeamText(prompt, limit, limited_by, self._eos, method.marks)
        self._uniforms = UniformStream(seed, self.model.device)
        self.forest = ForestCache(self.model, self._capacity)
        self._prompt = list(prompt)  # fed in the first round, whose time counts
        self.drafting = None
        if plan.draft is not None and len(prompt) < plan.draft.context:
            self.drafting = BeamDrafting(plan.draft, method.sampling, plan.length, plan.drafts, self._capacity)
        return self.text

    def close(self) -> None:
        """Release the caches, which may serve the next texts. Nothing can be written afterwards."""
        if self.text is not None:
            self.forest.cache.release()
            if self.drafting is not None:
                self.drafting.forest.cache.release()

    def likeliest(self) -> list[list[int]]:
        """Return nothing: the tokens of a round are those of several texts."""
        return [[]]

    @torch.inference_mode()
    def run_round(self) -> list[RoundRecord]:
        """Run one round, which adds 1 to draft length + 1 layers, and return its record: what has become common to all
        beams, if anything."""
        text = self.text
        assert text is not None
        started = time.perf_counter()
        self._feed_prompt()
        layers = self._draft(text)
        drafted_at = time.perf_counter()
        scores = self._score(text, layers)
        widths, accepted = self._judge(text, layers, scores)
        if text.stop_reason is None:
            self._keep(text)
        record = _record(text, layers, accepted, widths, len(scores.rows))
        drafting = drafted_at - started if layers else 0.0
        return [replace(record, seconds=time.perf_counter() - started, draft_seconds=drafting)]

    def _feed_prompt(self) -> None:
        if self._prompt is not None:
            self.forest.begin(self._prompt)
            if self.drafting is not None:
                self.drafting.forest.begin(self._prompt)
            self._prompt = None

    def _draft(self, text: BeamText) -> list[DraftedLayer]:
        if self.drafting is None:
            return []
        # The target's own layer is the last within the limit, so nothing is drafted if one remains.
        depth = min(self.drafting.length, text.remaining_layers - 1, self.drafting.context - text.length)
        return self.drafting.layers(text, max(depth, 0), self._uniforms)

    def _score(self, text: BeamText, layers: Sequence[DraftedLayer]) -> _Scores:
        nodes = [beam.node for beam in text.live] + [node for layer in layers for node in layer.nodes if not node.ends]
        fed = list(dict.fromkeys(nodes))
        logits = self.forest.logits(fed)
        return _Scores(
            warp(logits, self._method.sampling), logits.softmax(-1), {node: row for row, node in enumerate(fed)}
        )

    def _judge(self, text: BeamText, layers: Sequence[DraftedLayer], scores: _Scores) -> tuple[list[int], int]:
        """Add the layers that pass and the one that ends the round. Return the widths of all, and how many passed."""
        plan, widths, kind = self._plan, [], "bonus" if layers else "plain"
        valid = {i: beam.log_weight for i, beam in enumerate(text.live)}  # weights by origin
        for passed, layer in enumerate(layers):
            parents = [(node, valid.get(i, -math.inf)) for node, i in zip(layer.parents, layer.origins, strict=True)]
            p, q = scores.law(parents), layer.law
            *shares, target, draft = to_host(torch.stack([*rejected_shares(p, q, plan.drafts), p.sum(), q.sum()]))
            self._check_numbers(self._method.writer, [target])
            self._check_numbers("draft", [draft])
            width = layer_width(acceptance_counts(shares), plan.confidence, plan.least, plan.most)
            widths.append(width)
            judged = judge_layer(
                p[None], q[None], layer.atoms[None], layer.atoms.new_tensor([width]),
                self._uniforms.take(1, plan.drafts), self._uniforms.take(1, plan.most)[:, :width],
            )  # fmt: skip
            beams = self._beams(text, layer.parents, judged.atoms[0], p, scores)
            count, *drafts = to_host(torch.cat([judged.accepted, judged.drafts[0]]))
            for i, beam in enumerate(beams):
                beam.node.kind = "strict" if i < count else "correction"
            text.add_layer(beams)
            if count < width:
                return widths, passed
            if text.stop_reason is not None:
                return widths, passed + 1
            valid = {draft: beam.log_weight for draft, beam in zip(drafts, beams, strict=True)}
        parents = [beam.node for beam in text.live]
        p = scores.law([(beam.node, beam.log_weight) for beam in text.live])
        atoms = draw_several(p[None], self._uniforms.take(1, plan.most), "with_replacement")[0]
        text.add_layer(self._beams(text, parents, atoms, p, scores, kind))
        return [*widths, plan.most], len(layers)

    def _beams(
        self,
        text: BeamText,
        parents: Sequence[BeamNode],
        atoms: Tensor,
        law: Tensor,
        scores: _Scores,
        kind: Kind = "plain",
    ) -> list[Beam]:
        """Return the beams of drawn pairs. atoms: int64 [W]; law: float64 [B·V], from which they were drawn."""
        vocabulary = scores.raw.shape[1]
        rows = to_device(torch.tensor([scores.rows[node] for node in parents]), atoms.device)
        raw = scores.raw[rows[atoms // vocabulary], atoms % vocabulary]
        beams = []
        drawn, weights, chances = to_host(torch.stack([atoms.double(), law[atoms], raw.double()]))
        self._check_numbers(self._method.writer, chances)
        for atom, weight, chance in zip(map(int, drawn), weights, chances, strict=True):
            parent = parents[atom // vocabulary]
            node = text.child(parent, atom % vocabulary)
            node.kind, node.probability = kind, chance
            node.log_likelihood = parent.log_likelihood + log_of(chance)
            beams.append(Beam(node, log_of(weight)))
        return beams

    def _keep(self, text: BeamText) -> None:
        leaves = {beam.node for beam in text.live}
        shared = common_node(leaves) if len(leaves) > 1 else next(iter(leaves)).parent
        self.forest.keep(leaves, shared)
        if self.drafting is not None:
            self.drafting.forest.keep(leaves, shared)

    @staticmethod
    def _check_numbers(model: str, values: Sequence[float]) -> None:
        if any(map(math.isnan, values)):
            raise IncompatibleModels.not_numbers(model)


def _record(
    text: BeamText, layers: Sequence[DraftedLayer], accepted: int, widths: Sequence[int], fed: int
) -> RoundRecord:
    """Return the round's record, untimed. Of each layer its first draft is recorded. Drafts behind the end of the text
    were neither accepted nor rejected."""
    layers = layers[: len(widths)] if text.stop_reason is not None else layers
    told = text.tell()
    return RoundRecord(
        drafted=tuple(layer.nodes[0].token for layer in layers),
        accepted=accepted,
        emitted=tuple(node.token for node in told),
        kinds=tuple(node.kind for node in told),
        divergence=(),
        target_probability=(),
        draft_probability=(),
        emitted_probability=tuple(node.probability for node in told),
        seconds=0.0,
        widths=tuple(widths),
        fed=fed,
    )
