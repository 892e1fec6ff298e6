"""The algorithms in words: what each does, what it costs, and what is needed to set its knob."""

from __future__ import annotations

import math

from dashboard.ui.templates import Html, render
from fsd_core.analysis.behind import behind
from fsd_core.config import DRAFTERS, RULES, TOPOLOGIES, VERIFIERS, DecodingConfig, divergence_upper_bound
from fsd_core.config.drafting.run_memory import MEMORY_TITLES
from fsd_core.config.drafting.search_tree_topology import SEARCH_TITLES
from fsd_core.config.drafting.topologies import LENGTH_TITLES
from fsd_core.config.drafting.trigram import TABLE_TITLES
from fsd_core.config.options import Option
from fsd_core.rules.divergence_choice import divergence_fact, divergence_title, divergence_unit

# Rules without a knob are baselines, those with one are tuned.
TUNED = tuple(kind for kind, rule in RULES.items() if rule.knob is not None)
SEVERAL = tuple(VERIFIERS)
BEAM_RULES = tuple(kind for kind, rule in RULES.items() if rule.writes_beams)
PLAIN_RULES = tuple(kind for kind in RULES if kind not in (*TUNED, *SEVERAL, *BEAM_RULES))
# Tuned rules by what they ask: how far the models differ, what both distributions mix to, how likely the token is.
BY_DIVERGENCE = tuple(
    kind for kind in TUNED if "divergence" in RULES[kind].model_fields or hasattr(RULES[kind], "divergence")
)
BY_MIXTURE = tuple(kind for kind in TUNED if RULES[kind].needs_distribution and kind not in BY_DIVERGENCE)
BY_LIKELIHOOD = tuple(kind for kind in TUNED if kind not in (*BY_DIVERGENCE, *BY_MIXTURE))
RULE_CHOICES = [(rule.long_title or rule.title, kind) for kind, rule in RULES.items()]


def choices(option: Option) -> list[tuple[str, str]]:
    """Return an option's choices with their titles."""
    titles = {kind: part.title for parts in (DRAFTERS, TOPOLOGIES) for kind, part in parts.items()}
    by_option = {"length_by": LENGTH_TITLES, "memory": MEMORY_TITLES, "search": SEARCH_TITLES, "table": TABLE_TITLES}
    if option.name == "divergence":
        titles = {name: divergence_title(name) for name in option.choices}
    titles = by_option.get(option.name, titles)
    return RULE_CHOICES if option.name == "acceptance" else [(titles.get(name, name), name) for name in option.choices]


def cost(kind: str) -> str:
    """Return ``lossless``, ``lossy``, or whose distribution a rule keeps exactly if not the target's own sampling."""
    rule = RULES[kind]
    if rule.exact_for:
        return f"each layer exactly {RULES[rule.exact_for].title.lower()}"
    return "lossless" if rule.lossless else "lossy"


def knob_range(kind: str, option: Option, divergence: str) -> str:
    """Return the range of a rule's knob, such as ``0 to 0.693 nats``."""
    low, high, unit = option.low, option.high, option.unit
    selected = divergence if "divergence" in RULES[kind].model_fields else None
    if measure := getattr(RULES[kind], "divergence", selected):  # a rule may have a fixed one
        bound, unit = divergence_upper_bound(measure), divergence_unit(measure)
        low, high = 0, bound if math.isfinite(bound) else None
    if low is None:
        return "any number"
    unit = f" {unit}" if unit else ""
    return f"{low:g} or more{unit}" if high is None else f"{low:g} to {high:.3g}{unit}"


def forgiven(decoding: DecodingConfig) -> str:
    """Return the tolerance of a lenient rule, such as ``js ≤ 0.1``, or nothing for a strict one."""
    rule = decoding.acceptance
    if rule.knob is None or decoding.threshold is None:
        return ""
    return rule.label_parts(f"≤ {decoding.threshold:g}")[0]


def about(kind: str, divergence: str) -> Html:
    """Return what an algorithm does and costs in a sentence, as HTML. More of it, the facts for its knob and what was
    measured of it are folded."""
    rule = RULES[kind]
    does, _, more = rule.explanation.partition(". ")
    facts = [more] if more else []
    if "divergence" in rule.model_fields:
        facts.append(divergence_fact(divergence))
    if rule.knob is not None and rule.can_be_off():
        facts.append(f"An empty {rule.knob.field.replace('_', ' ')} turns leniency off: exact SD.")
    facts += [fact for fact in (rule.note, rule.greedy_note, *behind(kind)) if fact]
    return render("ui/page.html", "about", cost(kind), f"{does.removesuffix('.')}.", facts)
