"""The controls of one setting of the playground."""

from __future__ import annotations

from typing import Any

import gradio as gr

from dashboard.ui.algorithms import (
    ALGORITHMS,
    DRAFTER_CHOICES,
    SHAPE_CHOICES,
    TREE_TOKENS,
    about,
    divergence_title,
    threshold_range,
)
from dashboard.ui.components import QUIET, show
from fsd_core.config import (
    CHAIN,
    DIVERGENCES,
    RULES,
    TREE,
    VERIFIERS,
    DecodingConfig,
    DynamicTreeTopology,
    MultiDraftTopology,
)

DIVERGENCE = "js"

Updates = dict[Any, Any]


class SettingCard:
    """Those controls that the chosen algorithm does not read are hidden."""

    def __init__(self, number: int, kind: str) -> None:
        at_first = arranged(kind, DIVERGENCE, CHAIN)
        with gr.Column(min_width=300, visible=number <= 2, elem_classes=["setting"]) as self.column:
            self.kind = gr.Dropdown(
                [(algorithm.title, name) for name, algorithm in ALGORITHMS.items()],
                value=kind,
                label=f"Setting {number}",
            )
            self.about = show(**at_first["about"])
            with gr.Row(elem_classes=["dials"]):
                self.divergence = gr.Dropdown(
                    [(divergence_title(name), name) for name in DIVERGENCES],
                    value=DIVERGENCE, label="Divergence", min_width=160, scale=2, **at_first["divergence"],
                )  # fmt: skip
                self.threshold = gr.Number(0.1, label="Threshold", step=0.01, min_width=110, **at_first["threshold"])
                self.drafter = gr.Dropdown(
                    DRAFTER_CHOICES, value="draft-model", label="Drafter", min_width=140, scale=2, **at_first["drafter"]
                )
                self.length = gr.Number(5, label="Draft length", precision=0, min_width=96, **at_first["length"])
                self.drafts = gr.Number(3, label="Drafts", precision=0, min_width=96, **at_first["drafts"])
                self.shape = gr.Dropdown(
                    SHAPE_CHOICES, value=CHAIN, label="Shape", min_width=110, scale=2, **at_first["shape"]
                )
                self.tree_tokens = gr.Number(
                    TREE_TOKENS, label="Tree tokens", precision=0, min_width=110, **at_first["tree_tokens"]
                )
        read = [self.kind, self.divergence, self.shape]
        gr.on([part.input for part in read], self.arrange, read, [self.about, *self.inputs[1:]], **QUIET)

    @property
    def inputs(self) -> list[Any]:
        """The arguments of :func:`dashboard.algorithms.decoding`, but for what all settings share."""
        dials = [self.divergence, self.threshold, self.drafter, self.length, self.drafts, self.shape, self.tree_tokens]
        return [self.kind, *dials]

    @property
    def parts(self) -> list[Any]:
        """What :meth:`restore` may change."""
        return [self.about, *self.inputs]

    def arrange(self, kind: str, divergence: str, shape: str) -> Updates:
        """Shows what the algorithm reads, with the range of its threshold."""
        return self._updates(arranged(kind, divergence, shape))

    def restore(self, method: DecodingConfig) -> Updates:
        """The controls as they were when they asked for ``method``; those that it does not read stay as they are."""
        rule = method.acceptance
        tree = method.topology if isinstance(method.topology, DynamicTreeTopology) else None
        options = arranged(rule.kind, method.divergence or DIVERGENCE, CHAIN if tree is None else TREE)
        if options["divergence"]["visible"]:
            options["divergence"]["value"] = method.divergence
        if options["threshold"]["visible"]:
            options["threshold"]["value"] = method.threshold
        if method.drafter is not None and method.topology is not None:
            options["drafter"]["value"], options["length"]["value"] = method.drafter.kind, method.topology.length
        if options["shape"]["visible"]:
            options["shape"]["value"] = CHAIN if tree is None else TREE
        if tree is not None:
            options["tree_tokens"]["value"] = tree.total_tokens
        if isinstance(method.topology, MultiDraftTopology):
            options["drafts"]["value"] = method.topology.drafts
        return self._updates(options) | {self.kind: rule.kind}

    def _updates(self, options: dict[str, dict[str, Any]]) -> Updates:
        return {getattr(self, name): gr.update(**values) for name, values in options.items()}


def arranged(kind: str, divergence: str, shape: str) -> dict[str, dict[str, Any]]:
    """What each control shows for an algorithm, by the control's name."""
    rule = RULES[kind]
    own = getattr(rule, "divergence", divergence)  # a rule may have one of its own, which nobody chooses
    return {
        "about": {"value": about(kind, divergence)},
        "divergence": {"visible": "divergence" in rule.model_fields},
        "threshold": {"visible": "threshold" in rule.model_fields, "info": threshold_range(own)},
        "drafter": {"visible": not rule.baseline},
        "length": {"visible": not rule.baseline},
        "drafts": {"visible": kind in VERIFIERS and kind != "spec-hub"},
        "shape": {"visible": not rule.baseline and kind not in VERIFIERS},
        "tree_tokens": {"visible": not rule.baseline and kind not in VERIFIERS and shape == TREE},
    }
