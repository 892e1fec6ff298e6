"""Beams beside the loop: exactly beam sampling's texts, caches that hold what is shared once, and every way to end."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from fsd_core.config import (
    BeamSampling,
    BeamsTopology,
    DecodingConfig,
    Rule,
    SamplingConfig,
    Speculative,
    SpeculativeBeams,
)
from fsd_core.decoding import beams
from fsd_core.decoding.beams import Beam, BeamBatch, BeamText
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.decoding.loop import TextMarks, compose
from fsd_core.decoding.trace import pack_rounds, unpack
from fsd_core.errors import IncompatibleModels, IncompatibleOptions, InvalidSetting, NotGiven
from fsd_core.evaluation.aggregate import _trace_metrics
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import ModelSet
from fsd_core.ops.distributions import judge_layer
from fsd_core.testing import in_memory, open_session, recomputed_logits, related, run, toy_model, toy_tokenizer, written
from fsd_core.theory import rejected_shares
from fsd_core.worker.token_builder import TokenBuilder

PROMPT, NO_END = [0, 1, 2, 1], frozenset[int]()
SMALL = toy_model(5, seed=21, layers=1, hidden=16)
TARGET, DRAFT = LanguageModel(SMALL), LanguageModel(related(SMALL, noise=1.5, seed=24))
LARGE = toy_model(40, seed=11)
LARGE_TARGET, LARGE_DRAFT = LanguageModel(LARGE), LanguageModel(related(LARGE, noise=0.15, seed=12))


def config(rule: Rule, tokens: int, length: int = 3, drafts: int = 3, **sampling) -> DecodingConfig:
    beams = {"topology": BeamsTopology(length=length, drafts=drafts)} if isinstance(rule, SpeculativeBeams) else {}
    sampling = SamplingConfig(**{"temperature": 1.0} | sampling)
    return DecodingConfig(acceptance=rule, sampling=sampling, max_new_tokens=tokens, **beams)


def fixed(width: int) -> SpeculativeBeams:
    return SpeculativeBeams(least=width, most=width)


def batch(decoding: DecodingConfig, prompt: list[int], seed: int, eos=NO_END, models=(TARGET, DRAFT)) -> BeamBatch:
    method = compose(ModelSet(*models), decoding)
    beams = BeamBatch(method, eos, method.capacity(len(prompt)))
    beams.put(0, prompt, seed)
    return beams


def beam_law(width: int, layers: int) -> dict[tuple[tuple[int, ...], ...], float]:
    """Return the exact law of beam sampling's ordered beams after some layers, all of them enumerated."""
    after = {
        text: recomputed_logits(TARGET, PROMPT + list(text)).softmax(-1).double().numpy()
        for n in range(layers)
        for text in product(range(5), repeat=n)
    }
    states: dict[tuple, float] = {(((), 1.0),): 1.0}
    for _ in range(layers):
        following: Counter[tuple] = Counter()
        for living, chance in states.items():
            joint = {
                (b, v): weight * float(p) for b, (text, weight) in enumerate(living) for v, p in enumerate(after[text])
            }
            total = sum(joint.values())
            for drawn in product(joint, repeat=width):
                key = tuple(((*living[b][0], v), joint[b, v]) for b, v in drawn)
                following[key] += chance * np.prod([joint[pair] / total for pair in drawn])
        states = following
    law: Counter[tuple[tuple[int, ...], ...]] = Counter()
    for living, chance in states.items():
        law[tuple(text for text, _ in living)] += chance
    return law


def texts(decoding: DecodingConfig, count: int) -> Counter[tuple[tuple[int, ...], ...]]:
    """Return how often each ordered set of beams was written, one seed each."""
    written: Counter[tuple[tuple[int, ...], ...]] = Counter()
    for seed in range(count):
        beams = batch(decoding, PROMPT, seed)
        while beams.text.stop_reason is None:
            beams.run_round()
        written[tuple(tuple(text[len(PROMPT) :]) for text in beams.live)] += 1
    return written


def p_value(written: Counter, law: dict) -> float:
    """Return the p-value of a χ² test. Beams that are expected less than five times count together."""
    count = sum(written.values())
    often = [key for key, chance in law.items() if chance * count >= 5]
    observed = [written[key] for key in often]
    expected = [law[key] * count for key in often]
    rest = [(count - sum(observed), count - sum(expected))] if count - sum(expected) > 1e-6 else []
    return float(chisquare([*observed, *(o for o, _ in rest)], [*expected, *(e for _, e in rest)]).pvalue)


def least_p_value(written: Counter, law: dict, width: int) -> float:
    """Return the least p-value of few texts: of each beam by itself, and of what all begin with."""
    parts = [lambda beams, i=i: beams[i] for i in range(width)]
    parts.append(lambda beams: tuple(text[0] for text in beams))
    values = []
    for part in parts:
        counted: tuple[Counter, Counter] = Counter(), Counter()
        for counts, weights in zip(counted, (written, law), strict=True):
            for living, weight in weights.items():
                counts[part(living)] += weight
        values.append(p_value(*counted))
    return min(values)


class TestLaw:
    @pytest.mark.wide
    @pytest.mark.parametrize(
        ("rule", "drafts"),
        [(BeamSampling(beams=2), 0), (fixed(2), 3), pytest.param(fixed(2), 2, marks=pytest.mark.long)],
    )
    def test_ordered_beams_of_whole_texts(self, rule, drafts):
        width = rule.beams if isinstance(rule, BeamSampling) else rule.least
        written = texts(config(rule, 2, drafts=max(drafts, 1)), 300)
        assert least_p_value(written, beam_law(width, 2), width) > 1e-5

    @pytest.mark.long
    @pytest.mark.parametrize(("width", "drafts", "length"), [(1, 3, 2), (2, 2, 1), (2, 3, 2), (2, 4, 3), (3, 3, 2)])
    def test_more_texts_of_three_layers(self, width, drafts, length):
        layers = 2 if width == 3 else 3
        written = texts(config(fixed(width), layers, length, drafts), 20_000)
        assert p_value(written, beam_law(width, layers)) > 1e-5

    @pytest.mark.wide
    def test_a_layer_filled_from_the_wrong_law_is_caught(self, monkeypatch):
        def without_residual(p, q, drafts, widths, tests, fills):
            judged = judge_layer(p, q, drafts, widths, tests, fills)
            afresh = judge_layer(p, q, drafts[:, :0], widths, tests, fills).atoms
            return type(judged)(judged.atoms.where(judged.drafts >= 0, afresh), judged.drafts, judged.accepted)

        monkeypatch.setattr(beams, "judge_layer", without_residual)
        assert least_p_value(texts(config(fixed(2), 2, drafts=2), 300), beam_law(2, 2), 2) < 1e-7

    @pytest.mark.wide
    def test_acceptance_of_the_first_layer(self):
        p, q = (recomputed_logits(model, PROMPT).softmax(-1).double() for model in (TARGET, DRAFT))
        for drafts in (1, 3):  # that of SD, and that of RRS
            rejected = float(np.prod([float(share) for share in rejected_shares(p, q, drafts)]))
            decoding, count = config(fixed(1), 2, length=1, drafts=drafts), 200
            accepted = sum(batch(decoding, PROMPT, seed).run_round()[0].accepted for seed in range(count))
            error = (rejected * (1 - rejected) / count) ** 0.5
            assert abs(accepted / count - (1 - rejected)) < 5 * error

    @pytest.mark.wide
    def test_one_draft_of_one_beam_is_speculative_decoding(self):
        speculative = DecodingConfig(
            acceptance=Speculative(), sampling=SamplingConfig(temperature=1.0), max_new_tokens=60
        )
        rates = []
        for decoding in (config(fixed(1), 60, length=5, drafts=1), speculative):
            drafted = accepted = 0
            for seed in range(6):
                with open_session(LARGE_TARGET, LARGE_DRAFT, decoding, PROMPT, seed, NO_END) as session:
                    while session.stop_reason is None:
                        record = session.run_round()
                        drafted, accepted = drafted + len(record.drafted), accepted + record.accepted
            rates.append(accepted / drafted)
        assert rates[0] == pytest.approx(rates[1], abs=0.12)

    def test_a_draft_that_is_the_target_passes_every_layer_at_full_width(self):
        for seed in range(3):
            beams = batch(config(SpeculativeBeams(), 12, drafts=4), PROMPT, seed, models=(LARGE_TARGET, LARGE_TARGET))
            while beams.text.stop_reason is None:
                (record,) = beams.run_round()
                assert set(record.widths) == {4}
                assert record.accepted == len(record.drafted)

    @pytest.mark.parametrize("rule", [SpeculativeBeams(), BeamSampling(beams=3)])
    def test_from_one_token_alone_it_writes_the_greedy_text(self, rule):
        greedy = written(
            LARGE_TARGET, LARGE_DRAFT, DecodingConfig(acceptance=Speculative(), max_new_tokens=24), PROMPT, ends=False
        )
        assert written(LARGE_TARGET, LARGE_DRAFT, config(rule, 24, top_k=1), PROMPT, ends=False) == greedy


class TestCaches:
    @pytest.mark.parametrize(
        ("rule", "seed"), [(fixed(3), 0), (SpeculativeBeams(confidence=0.4), 1), (BeamSampling(), 2)]
    )
    def test_what_beams_share_is_stored_once_and_nothing_else(self, rule, seed):
        decoding, widest = config(rule, 16), 0
        drafted = 0 if decoding.topology is None else decoding.topology.max_fed_tokens
        max_fed = 1 + drafted
        beams = batch(decoding, PROMPT, seed, models=(LARGE_TARGET, LARGE_DRAFT))
        while True:
            (record,) = beams.run_round()
            if beams.text.stop_reason is not None:
                break
            live, forests = beams.live, [beams.forest]
            forests += [] if beams.drafting is None else [beams.drafting.forest]
            nodes = {tuple(text[:end]) for text in live for end in range(len(PROMPT), len(text))}
            assert beams.cache.length == len(PROMPT) - 1 + len(nodes)
            assert all(text[: len(beams.text.history)] == beams.text.history for text in live)
            assert record.fed <= max_fed
            leaves = list(dict.fromkeys(beam.node for beam in beams.text.live))
            widest, max_fed = max(widest, len(leaves)), len(leaves) + drafted
            with torch.inference_mode():
                for forest in forests:
                    through_cache = forest.logits(leaves)
                    for leaf, logits in zip(leaves, through_cache, strict=True):
                        exact = recomputed_logits(forest.model, beams.text.tokens(leaf))
                        assert torch.allclose(logits, exact, atol=1e-4, rtol=1e-4)
                    forest.keep(leaves, None)
        assert widest > 1

    def test_a_closed_text_can_be_followed_by_another(self):
        decoding = config(SpeculativeBeams(), 8)
        beams = batch(decoding, PROMPT, 3)
        beams.run_round()
        first, again = beams.put(0, PROMPT[:1], 4), batch(decoding, PROMPT[:1], 4)
        while first.stop_reason is None:
            assert beams.run_round()[0].emitted == again.run_round()[0].emitted
        assert first.history == again.text.history


class TestEnds:
    @pytest.mark.parametrize("rule", [SpeculativeBeams(confidence=0.5), BeamSampling(beams=3)])
    def test_rounds_add_up_to_the_answer_however_it_ends(self, rule):
        reasons = Counter()
        for seed in range(12):
            beams = batch(config(rule, 16), PROMPT, seed, eos=frozenset({4}))
            emitted, records = [], []
            while beams.text.stop_reason is None:
                (record,) = beams.run_round()
                assert len(record.emitted) == len(record.kinds) == len(record.emitted_probability)
                emitted += record.emitted
                records.append(record)
            assert PROMPT + emitted == beams.text.history
            assert records[-1].emitted  # the page gets the end of the text with it
            assert (beams.text.stop_reason == "eos") == (emitted[-1] == 4)
            assert 4 not in emitted[:-1]
            assert 1 <= len(emitted) <= 16
            probabilities = [p for record in records for p in record.emitted_probability]
            exact = [
                recomputed_logits(TARGET, PROMPT + emitted[:i]).softmax(-1)[t].item() for i, t in enumerate(emitted)
            ]
            assert probabilities == pytest.approx(exact, abs=1e-4)
            assert unpack(*pack_rounds(records)) == records
            reasons[beams.text.stop_reason] += 1
        assert reasons["eos"]

    def test_pages_and_metrics_take_rounds_that_emit_nothing(self):
        beams, tokenizer = batch(config(fixed(3), 24), PROMPT, 0, models=(LARGE_TARGET, LARGE_DRAFT)), toy_tokenizer()
        records = []
        while beams.text.stop_reason is None:
            records += beams.run_round()
        builder = TokenBuilder(tokenizer.backend_tokenizer)
        tokens = [t for i, one in enumerate(records) for t in builder.add(one, last=i == len(records) - 1)]
        assert any(not record.emitted for record in records)
        assert "".join(token.text for token in tokens) == tokenizer.decode(beams.text.history[len(PROMPT) :])
        assert {token.rejected for token in tokens} == {None}  # no draft of that round stood in its place
        by_position = _trace_metrics([records])["conditional_acceptance_at_position"]
        assert by_position
        assert all(0 <= share <= 1 for share in by_position)

    def test_the_context_ends_a_text(self):
        short = LanguageModel(toy_model(5, seed=21, layers=1, hidden=16, context=10))
        for rule in (SpeculativeBeams(), BeamSampling(beams=2)):
            session = run(open_session(short, DRAFT, config(rule, 50), PROMPT, 0, NO_END))
            assert (session.stop_reason, len(session.history)) == ("context", 10)

    def test_beyond_the_draft_s_context_the_target_writes_on(self):
        short = LanguageModel(related(toy_model(5, seed=21, layers=1, hidden=16, context=8), noise=0.6, seed=22))
        session = run(open_session(TARGET, short, config(SpeculativeBeams(), 12), PROMPT, 0, NO_END))
        assert len(session.history) == 16

    def test_the_answer_is_the_likeliest_per_token_and_nothing_told_is_taken_back(self):
        text = BeamText([7], 3, "length", frozenset({9}), None)
        root = text.live[0].node

        def beams(*chosen: tuple) -> list[Beam]:
            made = []
            for parent, token, log_likelihood in chosen:
                node = text.child(parent, token)
                node.log_likelihood = log_likelihood
                made.append(Beam(node, 0.0))
            return made

        text.add_layer(beams((root, 1, -1.0), (root, 1, -1.0)))
        assert [node.token for node in text.tell()] == [1]
        shared = text.live[0].node
        text.add_layer(beams((shared, 9, -3.0), (shared, 2, -2.0)))
        assert (text.stop_reason, len(text.live), text.tell()) == (None, 1, [])  # the ended beam may be the answer
        text.add_layer(beams((text.live[0].node, 3, -9.0)))
        assert [node.token for node in text.tell()] == [9]  # -3/2 is more than -9/3
        assert (text.stop_reason, text.history) == ("eos", [7, 1, 9])

    def test_strings_end_beams(self):
        marks = TextMarks(lambda ids: "".join("abc"[token] for token in ids), ["cb"], thoughts=False)
        text = BeamText([0], 5, "length", NO_END, marks)
        c = text.child(text.live[0].node, 2)
        assert (c.ends, text.child(c, 1).ends, text.child(c, 2).ends) == (False, True, False)

    def test_a_model_without_numbers_is_named(self):
        broken = toy_model(5, seed=21, layers=1, hidden=16)
        with torch.no_grad():
            broken.lm_head.weight.fill_(torch.nan)
        nan = LanguageModel(broken)
        for models, named in (((nan, DRAFT), "target"), ((TARGET, nan), "draft")):
            with pytest.raises(IncompatibleModels, match=f"The {named} model computes values that are not numbers"):
                run_rounds(batch(config(SpeculativeBeams(), 6), PROMPT, 0, models=models))


def run_rounds(beams: BeamBatch) -> None:
    while beams.text.stop_reason is None:
        beams.run_round()


class TestRefusals:
    @pytest.mark.parametrize(
        ("settings", "sentence"),
        [
            ({"sampling": SamplingConfig()}, "At temperature 0 all beams are the greedy text: choose a temperature"),
            ({"strict_first": 2}, "judges beams, not single tokens: leave out strict_first"),
            (
                {"drafter": {"kind": "prompt-lookup"}},
                "drafts beams with the pair's draft model, not with 'prompt-lookup'",
            ),
            ({"drafter": {"kind": "eagle"}}, "drafts beams with the pair's draft model, not with 'eagle'"),
            ({"acceptance": SpeculativeBeams(least=3, most=2)}, "at least 3 and at most 2 beams"),
            ({"acceptance": SpeculativeBeams(least=4, most=5)}, "3 drafts cannot fill 4 beams"),
            ({"topology": {"kind": "chain"}}, "judges drafts of the shape 'beams'"),
            ({"acceptance": Speculative(), "topology": BeamsTopology()}, "judges drafts of the shape 'chain'"),
        ],
    )  # fmt: skip
    def test_what_beams_cannot_do(self, settings, sentence):
        with pytest.raises(InvalidSetting, match=sentence):
            DecodingConfig.checked(
                **{"acceptance": SpeculativeBeams(), "sampling": SamplingConfig(temperature=1.0)} | settings
            )

    def test_without_a_draft_model(self):
        with pytest.raises(NotGiven):
            compose(ModelSet(TARGET), config(SpeculativeBeams(), 4))

    def test_one_text_at_a_time(self):
        decoder = PairDecoder(in_memory(TARGET, DRAFT), config(BeamSampling(), 4))
        with pytest.raises(IncompatibleOptions, match="choose --batch 1"):
            list(decoder.generate_all([PROMPT, PROMPT], [0, 1], rows=2))
        results = list(decoder.generate_all([PROMPT, PROMPT], [0, 1], rows=1))
        assert [text.tokens for _, text in results] == [decoder.generate(PROMPT, seed).tokens for seed in (0, 1)]
        assert all(0 < text.time_to_first_token <= (text.latency or 0) for _, text in results)
