"""Writes one text as beams, with the surface of :class:`fsd_core.decoding.batch.Batch`.

A round drafts layers of beams, scores the live beams and all drafts in one forward of the target, and judges layer by
layer (:mod:`fsd_core.ops.beam_layers`). A layer that passes hands its beams to the next one. The first that fails is
filled and ends the round; after the last layer the target samples one more. Beam sampling is a round without drafts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType

import torch
from torch import Tensor

from fsd_core.decoding.beams.beam_drafting import BeamDrafting, DraftedLayer, weights_of
from fsd_core.decoding.beams.beam_text import Beam, BeamNode, BeamText, common_node, log_of
from fsd_core.decoding.beams.forest_cache import ForestCache
from fsd_core.decoding.composition import Method
from fsd_core.decoding.trace import Kind, RoundRecord
from fsd_core.errors import IncompatibleModels
from fsd_core.models.kv_cache import KVCache
from fsd_core.models.language_model import LanguageModel
from fsd_core.ops.beam_layers import joint_law, judge_layer
from fsd_core.ops.sampling import UniformStream, draw_several
from fsd_core.ops.transfer import to_device, to_host
from fsd_core.ops.warping import warp
from fsd_core.theory.widths import acceptance_counts, layer_width, rejected_shares


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


class BeamBatch:
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

    def __enter__(self) -> BeamBatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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
