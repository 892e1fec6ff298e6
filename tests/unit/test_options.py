"""From options to a configuration: what is asked for arrives, and one grammar holds at every door."""

from __future__ import annotations

import io
from inspect import signature
from types import SimpleNamespace
from typing import Any

import pytest

from dashboard.experiments.experiment_form import build_sweep
from fsd_core.cli.commands import generate
from fsd_core.cli.common import flag, read_prompt, swept_flag, swept_name
from fsd_core.cli.measuring_commands import run, sweep
from fsd_core.config import (
    DRAFTERS,
    RULES,
    TOPOLOGIES,
    ChainTopology,
    DecodingConfig,
    DynamicTreeTopology,
    Fuzzy,
    FuzzyReducible,
    MultiDraftTopology,
    PromptLookupDrafter,
    SamplingConfig,
    TemplateConfig,
)
from fsd_core.config.decoding_config import JUDGING_OPTIONS
from fsd_core.config.options import (
    ALIASES,
    METHOD_OPTIONS,
    OPTIONS,
    experiment_name,
    method,
    methods,
    parse_threshold,
    parse_thresholds,
    reads,
)
from fsd_core.config.run_config import with_baselines
from fsd_core.errors import (
    Contradiction,
    IncompatibleOptions,
    InvalidSetting,
    Malformed,
    NotApplicable,
    OutOfRange,
    Unreadable,
)


def decoding(**given: Any) -> DecodingConfig:
    return method(given, flag)


def test_every_rule_and_drafter_of_the_configuration_can_be_asked_for() -> None:
    for name in RULES:
        sampled = {"temperature": 1.0} if RULES[name].writes_beams else {}
        assert decoding(acceptance=name, **sampled).acceptance.kind == name
    for name in DRAFTERS:
        drafter = decoding(drafter=name).drafter
        assert drafter is not None
        assert drafter.kind == name


def test_every_parameter_of_a_method_has_its_option() -> None:
    models = (*RULES.values(), *DRAFTERS.values(), *TOPOLOGIES.values(), SamplingConfig, TemplateConfig)
    fields = {name for model in models for name in model.model_fields} - {"kind"}
    assert fields == {option.field for option in METHOD_OPTIONS.values()} - {"kind", "max_new_tokens", *JUDGING_OPTIONS}
    for command in (generate, run):
        assert METHOD_OPTIONS.keys() <= signature(command).parameters.keys()
    several = {swept_name(option) if option.is_knob else name for name, option in METHOD_OPTIONS.items()}
    assert several <= signature(sweep).parameters.keys()


def test_no_options_are_the_configuration_s_own_defaults() -> None:
    assert decoding() == DecodingConfig()


def test_options_reach_their_place() -> None:
    config = decoding(
        acceptance="fsd", divergence="top-k-tv", threshold="0.25", divergence_top_k=20, drafter="prompt-lookup",
        draft_length=3, max_ngram=4, temperature=0.7, top_p=0.9, top_k=40, max_new_tokens=9,
    )  # fmt: skip
    assert config.acceptance == Fuzzy(divergence="top-k-tv", threshold=0.25, divergence_top_k=20)
    assert config.drafter == PromptLookupDrafter(max_ngram=4)
    assert config.topology is not None
    assert config.topology.length == 3
    assert config.sampling.model_dump() == {"temperature": 0.7, "top_p": 0.9, "top_k": 40}
    assert config.max_new_tokens == 9
    assert decoding(guard=False).acceptance == FuzzyReducible(guard=False)
    assert decoding(guard=True) == DecodingConfig()


def test_a_tree_is_as_deep_as_the_draft_length() -> None:
    config = decoding(drafter="eagle", topology="dynamic-tree", draft_length=4, tree_top_k=3, tree_tokens=20)
    assert config.topology == DynamicTreeTopology(length=4, top_k=3, total_tokens=20)
    assert config.label == "FSD reducible · js ≤ 0.1 · EAGLE · tree 20 · top 3 · γ 4"
    assert decoding(topology="dynamic-tree").topology == DynamicTreeTopology()


def test_former_names_ask_for_the_same() -> None:
    present = {"topology": "dynamic-tree", "tree_top_k": 3}
    former = {"shape": "dynamic-tree", "tree_width": 3}
    assert ALIASES == {"shape": "topology", "tree_width": "tree_top_k"}
    assert method(former) == method(present)
    assert methods(former | {"threshold": 0.1}) == methods(present | {"threshold": 0.1})
    assert reads(METHOD_OPTIONS["tree_tokens"], former)
    assert method(former | {"topology": None}) == method(present)  # not given
    with pytest.raises(Contradiction, match="topology"):
        method(present | former)


def test_baselines_are_measured_in_every_shape_that_is_compared() -> None:
    asked = [
        decoding(drafter=drafter, topology=shape)
        for drafter in ("draft-model", "eagle")
        for shape in ("chain", "dynamic-tree")
    ]
    found = with_baselines(asked)
    assert [d.acceptance.kind for d in found] == ["autoregressive", *4 * ["speculative"], *4 * ["fsd-reducible"]]
    assert [(d.drafter, d.topology) for d in found[1:5]] == [(d.drafter, d.topology) for d in asked]
    alone = with_baselines(swept(["autoregressive", "draft-only", "speculative"]))
    assert [d.acceptance.kind for d in alone] == ["autoregressive", "speculative", "draft-only"]
    several = with_baselines([decoding(acceptance="k-seq", draft_length=4)])
    assert several[1].topology == ChainTopology(length=4)
    beams = with_baselines([decoding(acceptance="dsbd", temperature=1, draft_length=4, drafts=5, most_width=2)])
    assert [d.label for d in beams] == [
        "Target alone · t 1", "Beam sampling · 2 beams · t 1", "SD · γ 4 · t 1",
        "DSBD · confidence 0.9 · width 1 to 2 · 5 drafts · γ 4 · t 1",
    ]  # fmt: skip


def swept(rules: list[str], threshold: str | None = None, **given: Any) -> list[DecodingConfig]:
    return methods({"acceptance": rules, "threshold": threshold, **given}, swept_flag)


def test_of_several_rules_each_is_given_what_it_reads() -> None:
    found = swept(
        ["speculative", "fsd", "k-seq", "spec-hub", "autoregressive"], "0.1,0.3", topology=["chain", "dynamic-tree"],
        divergence="tv", draft_length=7, drafts=4, tree_tokens=20,
    )  # fmt: skip
    chain, tree = ChainTopology(length=7), DynamicTreeTopology(length=7, total_tokens=20)
    assert [(d.acceptance.kind, d.threshold, d.topology) for d in found] == [
        ("speculative", None, chain), ("speculative", None, tree),
        ("fsd", 0.1, chain), ("fsd", 0.3, chain), ("fsd", 0.1, tree), ("fsd", 0.3, tree),
        ("k-seq", None, MultiDraftTopology(length=7, drafts=4)),
        ("spec-hub", None, MultiDraftTopology(length=7, drafts=2)),
        ("autoregressive", None, None),
    ]  # fmt: skip
    assert {d.divergence for d in found} == {"tv", None}


@pytest.mark.parametrize(
    ("rules", "given", "told"),
    [
        (["speculative", "k-seq"], {"threshold": "0.1"}, "--thresholds does not apply to the rule 'speculative'"),
        (["speculative", "fsd"], {"drafts": 3}, "--drafts does not apply to the rule 'speculative'"),
        (["k-seq", "rrs"], {"topology": ["dynamic-tree"]}, "--topology does not apply to the rule 'k-seq'"),
        (["speculative", "fsd"], {"threshold": "0.1", "tree_top_k": 3}, "--tree-top-k does not apply to the shape"),
        (["spec-hub"], {"drafts": 3}, "couples 2 drafts, not 3"),
        (["speculative", "nonsense"], {}, "--acceptance 'nonsense' is not known: expected one of autoregressive"),
        (["speculative"], {"topology": ["bush"]}, "--topology 'bush' is not known: expected one of chain"),
    ],
)
def test_what_none_of_several_rules_reads_is_refused(rules: list[str], given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidSetting, match=told):
        swept(rules, **given)


def test_a_rule_whose_knob_is_not_given_is_swept_over_its_own_values() -> None:
    found = swept(["speculative", "ensemble", "head", "head-strict"], temperature=1.0)
    knobs = {kind: RULES[kind].knob for kind in ("ensemble", "head", "head-strict")}
    told = [(d.acceptance.kind, getattr(d.acceptance, d.acceptance.knob.field)) for d in found if d.acceptance.knob]
    assert told == [(kind, value) for kind, knob in knobs.items() if knob for value in knob.grid]
    narrow = swept(["head", "head-strict"], head_width="0.3", temperature=1.0)
    assert [d.acceptance.model_dump(include={"head_width"}) for d in narrow] == [{"head_width": 0.3}] * 2


def test_a_sweep_of_several_rules_names_them() -> None:
    two = swept(["fsd", "k-seq"], "0.1,0.3")
    name = "FSD · js 0.1 to 0.3 · target's bonus and K-SEQ · 3 drafts · γ 5 on arithmetic"
    assert experiment_name(two, "arithmetic") == name
    lengths = [decoding(threshold=t, draft_length=γ) for t in (0.1, 0.3) for γ in (16, 5, 8)]
    assert experiment_name(lengths, "arithmetic") == "FSD reducible · js 0.1 to 0.3 · γ 5, 8 and 16 on arithmetic"
    assert experiment_name(swept(["fsd", "k-seq", "rrs"], "0.1,0.3"), "gsm8k").endswith("bonus and 2 others on gsm8k")


def test_off_is_no_threshold() -> None:
    assert decoding(threshold="off").threshold is None
    assert decoding(threshold="OFF").threshold is None
    with pytest.raises(IncompatibleOptions, match="cannot be off"):
        decoding(acceptance="fsd-official", threshold="off")


@pytest.mark.parametrize("threshold", ["-0.1", "nan", "0.7", "inf", "much", ""])
def test_thresholds_that_cannot_be(threshold: str) -> None:
    with pytest.raises(InvalidSetting, match="threshold"):
        decoding(threshold=threshold)


def test_an_unbounded_divergence_takes_any_threshold() -> None:
    assert decoding(divergence="kl", threshold="1e9").threshold == 1e9
    assert decoding(divergence="kl", threshold="inf").threshold == float("inf")


@pytest.mark.parametrize(
    ("acceptance", "option", "value"),
    [
        ("speculative", "threshold", "0.1"),
        ("speculative", "divergence", "js"),
        ("autoregressive", "threshold", "off"),
        ("autoregressive", "drafter", "draft-model"),
        ("draft-only", "draft_length", 5),
        ("speculative", "drafts", 3),
        ("k-seq", "topology", "dynamic-tree"),
        ("fsd-official", "divergence", "ag"),
        ("fsd-official", "divergence_top_k", 20),
        ("speculative", "divergence_top_k", 20),
        ("autoregressive", "max_ngram", 2),
    ],
)
def test_an_option_the_rule_does_not_read_is_refused(acceptance: str, option: str, value: object) -> None:
    with pytest.raises(
        NotApplicable, match=f"{flag(METHOD_OPTIONS[option])} does not apply to the rule '{acceptance}'.*choose from"
    ):
        decoding(acceptance=acceptance, **{option: value})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"acceptance": "fsd", "guard": True}, "--guard does not apply to the rule 'fsd': leave it out, or choose"),
        ({"acceptance": "fsd", "guard": False}, "--no-guard does not apply to the rule 'fsd'.* choose fsd-reducible."),
        ({"divergence_top_k": 9}, "--divergence-top-k does not apply to the divergence 'js'.*choose from top-k-kl,"),
        ({"max_ngram": 2}, "--max-ngram does not apply to the drafter 'draft-model'.*choose prompt-lookup."),
        ({"tree_top_k": 2}, "--tree-top-k does not apply to the shape 'chain'.*choose dynamic-tree."),
        (
            {"topology": "chain", "tree_tokens": 9},
            "--tree-tokens does not apply to the shape 'chain'.*choose from dynamic-tree, search-tree.",
        ),
    ],
)
def test_an_option_that_divergence_or_drafter_do_not_read_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(NotApplicable, match=told):
        decoding(**given)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"max_new_tokens": 0}, "--max-new-tokens is 0: expected at least 1."),
        ({"draft_length": 33}, "--draft-length is 33: expected at most 32."),
        ({"top_p": 0.0}, "--top-p is 0.0: expected more than 0."),
        ({"divergence": "top-k-js", "divergence_top_k": 0}, "--divergence-top-k is 0: expected at least 1."),
        ({"drafter": "prompt-lookup", "max_ngram": 9}, "--max-ngram is 9: expected at most 8."),
        ({"topology": "dynamic-tree", "draft_length": 17}, "--draft-length is 17: expected at most 16."),
        ({"topology": "dynamic-tree", "tree_top_k": 0}, "--tree-top-k is 0: expected at least 1."),
        ({"topology": "dynamic-tree", "tree_tokens": 257}, "--tree-tokens is 257: expected at most 256."),
    ],
)
def test_a_value_out_of_range_is_told_by_the_option_that_was_typed(given: dict[str, Any], told: str) -> None:
    with pytest.raises(OutOfRange) as caught:
        decoding(**given)
    assert str(caught.value) == told


@pytest.mark.parametrize(
    ("thresholds", "given", "name"),
    [
        (["0.6", "0.05", "0.1"], {}, "FSD reducible · js 0.05 to 0.6 on arithmetic"),
        (["0.1"], {"acceptance": "fsd", "divergence": "tv"}, "FSD · tv 0.1 · target's bonus on arithmetic"),
        (["0.1", "off", "0.3"], {"draft_length": 3}, "FSD reducible · js 0.1 to 0.3 and off · γ 3 on arithmetic"),
        (["off"], {"drafter": "prompt-lookup"}, "FSD reducible · js off · prompt lookup on arithmetic"),
    ],
)
def test_a_sweep_is_named_by_what_its_settings_share(thresholds: list[str], given: dict[str, Any], name: str) -> None:
    assert experiment_name([decoding(threshold=t, **given) for t in thresholds], "arithmetic") == name


def test_a_dash_reads_the_prompt_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def typed(data: bytes) -> str:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))
        return read_prompt("-")

    assert typed("Häuser\nAnswer:\n".encode()) == "Häuser\nAnswer:"
    assert typed(b"a\r\n") == "a"
    assert typed(b"\xef\xbb\xbfa\n") == "a"  # with the mark that some editors put first
    with pytest.raises(Unreadable):
        typed(b"\xff")


def test_a_prompt_is_taken_as_it_stands() -> None:
    assert read_prompt("[bold]--x\n") == "[bold]--x\n"
    with pytest.raises(Unreadable):
        read_prompt("\udcff")  # what Python makes of a broken byte in an argument


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.1", (0.1,)),
        ("0.05, 0.1,0.2", (0.05, 0.1, 0.2)),
        ("0:0.6:7", (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)),
        ("0.05:0.25:5", (0.05, 0.1, 0.15, 0.2, 0.25)),
        ("off, 0.1, 0.1", (None, 0.1)),
        ("0.3; 0:0.1:2, OFF", (0.3, 0, 0.1, None)),
        ("0,1;0,25", (0.1, 0.25)),
        ("0,1; off; 0,2:0,4:2", (0.1, None, 0.2, 0.4)),
        ("1;2", (1, 2)),
        ("0:1:7", (0, 0.166667, 0.333333, 0.5, 0.666667, 0.833333, 1)),
    ],
)
def test_thresholds_are_a_list_or_a_range(text: str, expected: tuple[float | None, ...]) -> None:
    assert parse_thresholds(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", " , ", "0,05", "0,1, 0,05", "a", "nan", "0:1", "1:2:3:4", "a:b:c", "1:0:5",
     "0:1:1", "0:1:x", "0:1:101", "0:1:2.5", "0:inf:3",
     "0:1:" + "9" * 5000],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_in_a_short_sentence(text: str) -> None:
    with pytest.raises(InvalidSetting, match="expected") as raised:
        parse_thresholds(text)
    assert len(str(raised.value)) < 250


def test_one_threshold_is_a_number_or_off() -> None:
    assert (parse_threshold(" Off "), parse_threshold("0.1"), parse_threshold("1e9")) == (None, 0.1, 1e9)
    with pytest.raises(Malformed, match="much"):
        parse_threshold("much")


def test_page_and_command_line_make_the_same_settings_of_a_range() -> None:
    form = {
        **{name: option.default for name, option in OPTIONS.items()}, "name": "", "seeds": "0", "baselines": [],
        "several": [], "tuned": ["fsd"], "divergence": ["tv"], "drafter": ["draft-model"], "topology": ["chain"],
        "threshold": "0:1:7", "draft_length": "5",
    }  # fmt: skip
    typed = methods({"acceptance": ["fsd"], "divergence": "tv", "threshold": "0:1:7"})
    assert build_sweep(form).decodings == tuple(typed)
    assert [setting.threshold for setting in typed] == [*parse_thresholds("0:1:7")]
