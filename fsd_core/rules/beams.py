"""Beams: several texts at once, and the best of them is the answer."""

from __future__ import annotations

from typing import Literal

from fsd_core.errors import Contradiction
from fsd_core.frozen import option
from fsd_core.rules.base import BEAMS, Rule


class BeamSampling(Rule):
    """The target alone writes W beams. A layer's beams are W independent draws, with replacement, from the joint law

        P(b, v) = norm(exp(L_b) · p(v | b)),   L ← L_b + ln p(v | b)

    over beams b and tokens v. A beam that wrote an end token has weight 0 from then on. The answer is the beam, ended
    or not, with the largest mean log-likelihood under the raw target.
    """

    title, baseline, shapes, writes_beams = "Beam sampling", True, (), True
    explanation = "The large model writes several beams and keeps the one that it finds likeliest per token."
    note = "Not the target's sampling distribution: likely texts become likelier."
    symbol, colour = "star-triangle-up", "#9d174d"
    kind: Literal["beam-sampling"] = "beam-sampling"
    beams: int = option(4, "Beams", "Beams that beam sampling writes", ge=1, le=16)

    def label_parts(self, knob: str) -> list[str]:
        return [f"{self.beams} beams"]


class SpeculativeBeams(Rule):
    """Speculative beam decoding of dynamic width (Qin et al. 2025, arXiv 2409.16560), exact for beam sampling.

    The draft model drafts M beams a layer by its own joint law. The target judges them layer by layer against its own
    (:mod:`fsd_core.ops.beam_layers`). A layer's width is the largest that drafts fill with at least the chance
    ``confidence``, between ``least`` and ``most``. Given what was written before, a layer of width W is W draws of beam
    sampling; given all widths of a text it is not, because later widths follow from the beams. ``least`` = ``most`` is
    beam sampling of that width.
    """

    title, long_title, shapes, writes_beams = "DSBD", "DSBD · speculative beams", (BEAMS,), True
    exact_for = "beam-sampling"
    explanation = (
        "Drafts several beams and keeps as many as the target confirms with confidence. Layer by layer, given "
        "what was written before, they are exactly beam sampling's draws."
    )
    note = (
        "Compare it with beam sampling, not with the target's own samples. On a CPU only a width that adapts made it "
        "faster than beam sampling."
    )
    symbol, colour = "star-triangle-down", "#be185d"
    kind: Literal["dsbd"] = "dsbd"
    confidence: float = option(
        0.9, "Confidence", "Chance with which drafts must fill a layer's beams", gt=0, le=1
    )  # fmt: skip
    least: int = option(1, "Fewest beams", "Fewest beams of a layer", name="least_width", ge=1, le=16)
    most: int = option(
        0, "Most beams", "Most beams of a layer; 0 is as many as are drafted", name="most_width", ge=0, le=16
    )

    def widest(self, drafts: int) -> int:
        """Return the most beams of a layer. ``drafts``: M."""
        return self.most or drafts

    def check_widths(self, drafts: int) -> None:
        """Raise ``InvalidSetting`` for widths that no layer can have with ``drafts`` drafts."""
        if self.least > self.widest(drafts):
            raise Contradiction(
                f"A layer has at least {self.least} and at most {self.widest(drafts)} beams: give a least width that "
                "is not above the most, which is the number of drafts unless you give one."
            )
        if self.least > drafts:
            raise Contradiction(
                f"{drafts} drafts cannot fill {self.least} beams, so no layer could pass: draft at least {self.least}, "
                "or lower the least width."
            )

    def label_parts(self, knob: str) -> list[str]:
        most = f" to {self.most}" if self.most not in (0, self.least) else ""
        fixed = self.most == self.least
        widths = f"width {self.least}{most}" if fixed or most or self.least != 1 else ""
        return [f"confidence {self.confidence:g}" if not fixed else "", widths]
