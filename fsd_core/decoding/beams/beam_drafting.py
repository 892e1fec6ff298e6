"""The draft model's beams: layer by layer, drawn with replacement from its own joint law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fsd_core.config import SamplingConfig
from fsd_core.decoding.beams.beam_text import Beam, BeamNode, BeamText, log_of
from fsd_core.decoding.beams.forest_cache import ForestCache
from fsd_core.models.language_model import LanguageModel
from fsd_core.ops.beam_layers import joint_law
from fsd_core.ops.sampling import UniformStream, draw_several
from fsd_core.ops.transfer import to_device, to_host
from fsd_core.ops.warping import warp


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
