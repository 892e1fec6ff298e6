"""The quality of an answer at matched points: correctness or, if nothing is scored, the target's likelihood of it."""

from __future__ import annotations

from typing import NamedTuple

from fsd_core.statistics.intervals import Estimate
from fsd_core.statistics.ranking import MARGINS_LISTED


class Quality(NamedTuple):
    """How a quality is displayed. In a difference between a setting and the target, more is better."""

    key: str
    equal: str
    """noun after ``at equal``"""
    lost: str
    """noun before ``at equal target passes``"""
    title: str
    in_words: str
    """the unit in words"""
    unit: str
    """the unit after a number, with the space between"""
    sign: int
    """-1 if a larger displayed value is worse"""
    scale: float
    """units per difference of 1"""
    digits: int
    """decimals in a figure"""
    margins: tuple[float, ...]
    """default margins of loss, in hundredths"""
    note: str = ""
    """an explanation after other sentences"""
    is_ranked: bool = True
    """whether more is always better"""

    @property
    def is_share(self) -> bool:
        """Whether it is accuracy."""
        return self.scale == 100

    def recorded(self, difference: Estimate) -> Estimate:
        """Return accuracy less the target's, -1 to 1, or excess NLL, with the lower end first."""
        value, low, high = difference
        if self.sign > 0 or low is None or high is None:
            return Estimate(self.sign * value, low, high)
        return Estimate(-value, -high, -low)

    def displayed(self, difference: Estimate) -> Estimate:
        """Return :meth:`recorded` in the displayed unit."""
        value, low, high = self.recorded(difference)
        if low is None or high is None:
            return Estimate(self.scale * value)
        return Estimate(self.scale * value, self.scale * low, self.scale * high)

    def within(self, hundredths: float) -> str:
        """Return a text such as ``within 2 points``."""
        margin = hundredths * self.scale / 100
        return f"within {margin:g} {'point' if self.is_share and margin == 1 else self.in_words}"


ACCURACY_QUALITY = Quality(
    key="accuracy", equal="accuracy", lost="Accuracy lost", title="Accuracy to the target's", in_words="points",
    unit=" pts", sign=1, scale=100.0, digits=1, margins=MARGINS_LISTED,
)  # fmt: skip
EXCESS_NLL = Quality(
    key="excess_nll", equal="excess NLL", lost="Excess NLL", title="Excess NLL", in_words="nats a token",
    unit=" nats", sign=-1, scale=1.0, digits=3, margins=(2.0, 5.0, 10.0),
    note=" Nothing is scored here. Excess NLL is how much less likely, per token, the target finds the texts than its "
    "own.",
)  # fmt: skip
NOT_RANKED = "Not ranked: sampled texts below 0 are likelier than the target's own samples, so less varied, not better."
EXCESS_NLL_SAMPLED = EXCESS_NLL._replace(note=f"{EXCESS_NLL.note} {NOT_RANKED}", is_ranked=False)
