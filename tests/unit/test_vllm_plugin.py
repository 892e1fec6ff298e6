"""The plug-in for vLLM, without vLLM: it verifies as our own loop does, and what it is told is a rule or a sentence.

tests/engines runs it inside vLLM.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from fsd_core.config import SamplingConfig
from fsd_core.config.vllm_plugin import SERVED_RULES, is_off, served_rule
from fsd_core.decoding.verification import ChainVerification, DraftProposal
from fsd_core.errors import OutOfRange
from fsd_core.ops.distributions import allowed, draw, warp
from fsd_core.rules import Rule
from fsd_core.testing import CASES
from fsd_core.topologies import DraftTree
from fsd_lab_vllm import active_rule, check_versions
from fsd_lab_vllm.active_rule import Drafting
from fsd_lab_vllm.verification import FlatDrafts, verify
from fsd_lab_vllm.worker import RuleExtension

V, LENGTH = 12, 5
BY_KIND = [[rule for rule in CASES if rule.kind == kind and not is_off(rule)] for kind in SERVED_RULES]
GREEDY, WARM, CUT = SamplingConfig(), SamplingConfig(temperature=0.8), SamplingConfig(temperature=0.8, top_k=5)


class Dealt:
    """A stream of uniforms that are given."""

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def take(self, count: int) -> Tensor:
        assert count == len(self.values)
        return self.values


@pytest.mark.parametrize("sampling", [GREEDY, WARM, CUT], ids=["greedy", "sampled", "top-k"])
@pytest.mark.parametrize("rule", [rule for several in BY_KIND for rule in (several[0], several[-1])], ids=repr)
def test_it_writes_what_our_loop_writes_with_the_same_uniforms(rule: Rule, sampling: SamplingConfig) -> None:
    generator = torch.Generator().manual_seed(3)
    for _ in range(6):
        judged = LENGTH + rule.bonus_is_judged
        target, draft = (torch.randn(1, LENGTH + 2, V, generator=generator) * 1.5 for _ in range(2))
        draft = (draft + 3 * target)[:, :judged] / 2  # as near as a draft of some use
        target[..., 0] += 3  # so that 'margin' sees a positive first logit
        q, uniforms = warp(draft, sampling), torch.rand(2 * judged + 1, generator=generator, dtype=torch.float64)
        tokens = draw(q, torch.rand(1, judged, generator=generator, dtype=torch.float64))
        proposal = DraftProposal(
            DraftTree(tokens, judged, q, draft.softmax(-1)), LENGTH, [LENGTH], [judged], [0]
        )  # fmt: skip
        ours = ChainVerification(rule, sampling).verify(proposal, target[:, : LENGTH + 1], [Dealt(uniforms)])  # type: ignore[list-item]
        expected = ours.emitted[0, : int(ours.count[0]) + 1].tolist()
        t = sampling.temperature or 1.0
        logits = target[0, :judged]
        flat = FlatDrafts(
            tokens[0], [judged], logits,
            (draft[0] / t).softmax(-1), torch.tensor([expected[-1]]), torch.tensor([sampling.temperature]),
            torch.tensor([bool(sampling.cut)]),
        )  # fmt: skip
        dealt = iter([uniforms[:judged], uniforms[judged:-1], uniforms[-1:].expand(judged)])
        found = verify(rule, flat, judged, lambda dealt=dealt: next(dealt), lambda x: restricted(x, sampling))
        assert found.output.dtype == torch.int32
        assert [token for token in found.output[0].tolist() if token >= 0] == expected


def restricted(logits: Tensor, sampling: SamplingConfig) -> Tensor:
    kept = allowed(logits, SamplingConfig(temperature=1.0, top_k=sampling.top_k))
    return logits if kept is None else logits.masked_fill(~kept, -torch.inf)


def test_requests_of_several_kinds_stand_side_by_side() -> None:
    """Requests without drafts, greedy and sampled, with padding and with a forbidden token, each as if alone."""
    rule = served_rule({"kind": "fsd", "threshold": 0.69, "judge_bonus": False})  # keeps all but what is excluded
    assert rule is not None
    counts, N = [2, 0, 3, 2], 7
    generator = torch.Generator().manual_seed(0)
    logits, draft = (torch.randn(N, V, generator=generator) for _ in range(2))
    tokens = torch.tensor([3, 4, 5, -1, 6, 7, 8])
    logits[6, 8] = -torch.inf  # by a grammar
    temperatures = torch.tensor([0.0, 1.0, 1.0, 0.0])
    drafts = FlatDrafts(
        tokens, counts, logits, draft.softmax(-1), torch.tensor([9, 10, 11, 9]), temperatures,
        torch.zeros(4, dtype=torch.bool),
    )  # fmt: skip
    found = verify(
        rule, drafts, 3, lambda: torch.rand(N, generator=generator, dtype=torch.float64), lambda logits: logits
    )
    first, none, padded, forbidden = found.output.tolist()
    assert first == [3, 4, 9, -1]
    assert none == [10, -1, -1, -1]
    assert (padded[0], padded[1] >= 0, padded[2:]) == (5, True, [-1, -1])
    assert forbidden == [7, int(logits[6].argmax()), -1, -1]
    assert found.accepted.tolist() == [2, 0, 1, 1]


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    for name in ("FSD_LAB_RULE", "FSD_LAB_KNOB"):
        monkeypatch.delenv(name, raising=False)
    before = {name: value for name, value in vars(active_rule).items() if not callable(value)}
    yield monkeypatch
    vars(active_rule).update(before)


PROBABILISTIC = Drafting("draft_model", True)


def test_the_environment_or_the_configuration_names_the_rule(plugin: pytest.MonkeyPatch) -> None:
    plugin.setenv("FSD_LAB_RULE", "fsd-reducible")
    plugin.setenv("FSD_LAB_KNOB", "0.3")
    active_rule.read_environment()
    assert active_rule.rule is None  # until the worker knows how it drafts
    active_rule.begin(PROBABILISTIC, {}, second_runner=False)
    assert active_rule.described()["threshold"] == 0.3
    with pytest.raises(RuntimeError, match=r"^Both FSD_LAB_RULE and 'fsd_lab'"):
        active_rule.begin(PROBABILISTIC, {"fsd_lab": "typical"}, second_runner=False)
    plugin.delenv("FSD_LAB_RULE")
    with pytest.raises(RuntimeError, match=r"^FSD_LAB_KNOB is '0\.3' without a rule"):
        active_rule.read_environment()
    plugin.delenv("FSD_LAB_KNOB")
    active_rule.read_environment()
    active_rule.begin(PROBABILISTIC, {"fsd_lab": {"kind": "typical"}}, second_runner=False)
    assert active_rule.described()["kind"] == "typical"
    active_rule.begin(PROBABILISTIC, {}, second_runner=False)


def test_a_worker_changes_the_rule_and_a_refusal_changes_nothing(plugin: pytest.MonkeyPatch) -> None:
    active_rule.begin(PROBABILISTIC, {}, second_runner=False)
    worker = RuleExtension()
    assert worker.fsd_lab_rule() == {"kind": "off"}
    assert worker.fsd_lab_rule("lenience", 0.5)["lenience"] == 0.5
    active_rule.add_counts(1, 5, torch.tensor(3))
    active_rule.add_counts(1, 5, torch.tensor(4))
    assert worker.fsd_lab_counts() == {"rounds": 2, "drafted": 10, "accepted": 7}
    for value, knob, sentence in (
        ("ensemble", None, "vLLM is given no rule 'ensemble' by fsd-lab-vllm: expected off, or fsd, "),
        ("fsd", "much", "The knob 'much' is no number"),
        ('{"kind": ', None, "The rule '{\"kind\":' is no JSON"),
        ("fsd", 9.0, "The threshold 9 is beyond the range"),
        ({"kind": "fsd", "treshold": 0.1}, None, "Treshold: extra inputs"),
    ):
        with pytest.raises(RuntimeError, match="^" + sentence.replace("(", r"\(").replace("{", r"\{")):
            worker.fsd_lab_rule(value, knob)
    assert worker.fsd_lab_rule()["kind"] == "lenience"
    assert worker.fsd_lab_rule(worker.fsd_lab_rule()) == worker.fsd_lab_rule()
    for off in ("off", {"kind": "off"}):
        assert worker.fsd_lab_rule(off) == {"kind": "off"}
    assert worker.fsd_lab_rule("fsd", "off") == worker.fsd_lab_rule("lenience", 0) == {"kind": "off"}


@pytest.mark.parametrize(
    ("drafting", "second_runner", "rule", "sentence"),
    [
        (None, False, "typical", "Typical judges drafted tokens: serve with --speculative-config"),
        (PROBABILISTIC, True, "typical", "Typical is served by vLLM's V1 model runner alone"),
        (Drafting("medusa", False), False, "typical", "The speculative method 'medusa' was not tried with Typical"),
        (Drafting("draft_model", False), False, "fsd", "FSD reads the draft's probabilities"),
        (Drafting("ngram", False), False, "lenience", "Lenience needs the probabilities of a draft model"),
    ],
)
def test_what_the_drafts_lack_is_refused(
    plugin: pytest.MonkeyPatch, drafting: Drafting | None, second_runner: bool, rule: str, sentence: str
) -> None:
    active_rule.begin(drafting, {}, second_runner=second_runner)  # off needs nothing
    with pytest.raises(RuntimeError, match=f"^{sentence}"):
        active_rule.begin(drafting, {"fsd_lab": rule}, second_runner=second_runner)
    assert active_rule.rule is None
    if drafting is not None and not second_runner and drafting.method != "medusa":
        assert active_rule.change("typical")["kind"] == "typical"


def test_other_versions_are_refused() -> None:
    check_versions("0.32.0")
    check_versions("0.32.0+cpu")
    for version in ("0.33.0", "0.32.1", "0.32"):
        with pytest.raises(RuntimeError, match=r"tested with vLLM 0\.32\.0"):
            check_versions(version)


@pytest.mark.wide
def test_a_rule_is_a_name_an_object_or_off() -> None:
    assert served_rule("") is served_rule("off") is None
    assert served_rule('{"kind": "head", "head_width": 0.4}') == served_rule("head", "0.4")
    with pytest.raises(OutOfRange, match="Head width"):
        served_rule({"kind": "head", "head_width": 2})
    fields: dict[str, Any] = {"kind": "fsd", "judge_bonus": True}
    rule = served_rule(fields)
    assert rule is not None
    assert rule.bonus_is_judged
