from __future__ import annotations

import json
import random

import pytest

from fsd_core.config import (
    Autoregressive,
    DecodingConfig,
    DynamicTreeTopology,
    Fuzzy,
    SamplingConfig,
    Speculative,
    SpeculativeBeams,
)
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.errors import Cancelled
from fsd_core.models.loading import LoadedPair
from fsd_core.storage.messages import Chunk, EmittedToken, PlaygroundJob
from fsd_core.testing import toy_pair
from fsd_core.worker import playground
from fsd_core.worker.playground import SettingStream, generate
from fsd_core.worker.token_builder import IncrementalText

SAMPLING = SamplingConfig(temperature=1.0)
SETTINGS = (
    DecodingConfig(acceptance=Autoregressive(), sampling=SAMPLING, max_new_tokens=40),
    DecodingConfig(acceptance=Speculative(), sampling=SAMPLING, max_new_tokens=40),
    DecodingConfig(acceptance=Fuzzy(threshold=0.3), sampling=SAMPLING, max_new_tokens=40),
)


@pytest.fixture(scope="module")
def pair() -> LoadedPair:
    return toy_pair()


@pytest.fixture(autouse=True)
def _flush_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playground, "FLUSH_SECONDS", 0.005)


def job(*settings: DecodingConfig, prompt: str = "Ava has 3 apples.", seed: int = 5) -> PlaygroundJob:
    return PlaygroundJob.of("toy", prompt, seed, settings)


def run(asked: PlaygroundJob, pair: LoadedPair, written: list[Chunk] | None = None) -> list[Chunk]:
    """The chunks as they come back from their JSON."""
    chunks: list[Chunk] = []

    def write(some: list[Chunk]) -> None:
        stored = [json.loads(json.dumps(chunk.as_json(), allow_nan=False)) for chunk in some]
        assert [Chunk.read(value) for value in stored] == some
        chunks.extend(some)

    generate(asked, pair, written or [], write, lambda: None)
    return chunks


def tokens_of(chunks: list[Chunk], setting: int) -> list[EmittedToken]:
    return [token for chunk in chunks if chunk.setting == setting for token in chunk.tokens]


def test_every_setting_writes_what_its_decoder_writes_alone(pair: LoadedPair) -> None:
    beams = DecodingConfig(acceptance=SpeculativeBeams(least=3), sampling=SAMPLING, max_new_tokens=40)
    chunks = run(job(*SETTINGS, beams), pair)
    for i, config in enumerate((*SETTINGS, beams)):
        decoder = PairDecoder(pair, config)
        alone = decoder.generate(decoder.prompt_ids("Ava has 3 apples."), 5)
        shown = tokens_of(chunks, i)
        assert [token.id for token in shown] == alone.tokens
        assert "".join(token.text for token in shown) == pair.tokenizer.decode(alone.tokens, skip_special_tokens=True)
        assert [token.kind for token in shown] == [kind for record in alone.records for kind in record.kinds]
        last = [chunk for chunk in chunks if chunk.setting == i][-1]
        assert last.done
        assert last.error is None
        assert last.stop_reason == alone.stop_reason
        assert last.figures.tokens == len(alone.tokens)
        assert last.figures.rounds == len(alone.records)


def test_settings_take_turns(pair: LoadedPair) -> None:
    order = [chunk.setting for chunk in run(job(*SETTINGS), pair) if chunk.tokens]
    assert order[:3] == [0, 1, 2]
    assert order.count(0) > 1


def test_no_setting_is_always_the_one_behind_a_write(pair: LoadedPair, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []
    run_round = SettingStream.run_round

    def noted(stream: SettingStream) -> None:
        turns.append(stream.index)
        run_round(stream)

    monkeypatch.setattr(SettingStream, "run_round", noted)
    run(job(*SETTINGS), pair)
    assert turns[:9] == [0, 1, 2, 1, 2, 0, 2, 0, 1]


def test_drafted_tokens_carry_their_numbers_and_corrections_the_rejected_token(pair: LoadedPair) -> None:
    shown = tokens_of(run(job(SETTINGS[1]), pair), 0)
    corrections = [token for token in shown if token.kind == "correction"]
    assert corrections
    for token in shown:
        judged = token.kind in ("strict", "lenient", "correction")
        assert (token.p is not None) == (token.q is not None) == (token.divergence is not None) == judged
        assert (token.rejected is not None) == (token.kind == "correction")


@pytest.mark.parametrize("topology", [None, "tree"])
def test_a_lenient_token_tells_what_the_target_would_have_written(pair: LoadedPair, topology: str | None) -> None:
    """It is what the greedy target writes after the tokens before it."""
    setting = DecodingConfig(acceptance=Fuzzy(threshold=0.3), max_new_tokens=40)
    if topology is not None:
        setting = setting.model_copy(update={"topology": DynamicTreeTopology(length=3, top_k=2, total_tokens=6)})
    shown = tokens_of(run(job(setting), pair), 0)
    assert "lenient" in [token.kind for token in shown]
    decoder = PairDecoder(pair, DecodingConfig(acceptance=Autoregressive(), max_new_tokens=1))
    ids = decoder.prompt_ids("Ava has 3 apples.")
    for i, token in enumerate(shown):
        (target,) = decoder.generate(ids + [before.id for before in shown[:i]], 5).tokens
        told = pair.tokenizer.decode([target], skip_special_tokens=False) if target != token.id else None
        assert token.likeliest == (told if token.p is not None else None), (i, token)


def test_each_setting_stands_beside_the_target_alone(pair: LoadedPair, monkeypatch: pytest.MonkeyPatch) -> None:
    last = [chunk for chunk in run(job(*SETTINGS[1:]), pair) if chunk.done]
    assert len(last) == 2
    for chunk in last:
        alone = chunk.figures.target_tokens_per_second
        assert alone is not None
        assert alone > 0
        assert chunk.figures.speed_up == pytest.approx(chunk.figures.tokens_per_second / alone)

    def broken(**_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr("fsd_core.worker.playground.DecodingConfig", broken)
    alone = run(job(*SETTINGS[1:]), pair)  # the texts are written without that figure
    assert {chunk.figures.speed_up for chunk in alone} == {None}
    assert not any(chunk.error for chunk in alone)


def test_a_job_that_was_left_half_way_is_completed_without_repeating_a_token(pair: LoadedPair) -> None:
    whole = run(job(*SETTINGS), pair)
    cut = whole[: len(whole) // 2]
    rest = run(job(*SETTINGS), pair, written=cut)
    for i in range(len(SETTINGS)):
        assert tokens_of(cut + rest, i) == tokens_of(whole, i)
        assert sum(chunk.done for chunk in cut + rest if chunk.setting == i) == 1


def test_what_is_wrong_with_one_setting_stops_it_alone(pair: LoadedPair) -> None:
    asked = job(*SETTINGS[:2])
    asked.settings[0]["acceptance"] = {"kind": "fsd", "divergence": "tv", "threshold": 3}
    chunks = run(asked, pair)
    failed = [chunk for chunk in chunks if chunk.setting == 0]
    assert len(failed) == 1
    assert failed[0].done
    assert (failed[0].error or "").startswith("The threshold 3")
    assert len(tokens_of(chunks, 1)) > 0


@pytest.mark.parametrize(("prompt", "told"), [("  ", "empty"), ("x" * 400, "shorten")])
def test_a_prompt_that_cannot_be_used_is_told(pair: LoadedPair, prompt: str, told: str) -> None:
    (chunk,) = run(job(SETTINGS[0], prompt=prompt), pair)
    assert told in (chunk.error or "")


def test_a_cancelled_job_stops_and_keeps_what_it_wrote(pair: LoadedPair) -> None:
    checks = iter(range(100))

    def check() -> None:
        if next(checks) == 3:
            raise Cancelled

    chunks: list = []
    with pytest.raises(Cancelled):
        generate(job(*SETTINGS), pair, [], chunks.extend, check)
    assert 0 < len(tokens_of(chunks, 0)) < 40
    assert not any(chunk.done for chunk in chunks)


def test_texts_of_tokens_join_to_the_decoded_text_whatever_the_bytes(pair: LoadedPair) -> None:
    """Random bytes are mostly no UTF-8; pieces of real characters are mixed in."""
    rng = random.Random(0)
    alphabet = [
        pair.tokenizer(s, return_token_type_ids=False)["input_ids"] for s in ("é", "日本", "🙂", "a b", " ", "\n")
    ]
    for _ in range(300):
        ids: list[int] = []
        while len(ids) < 30:
            ids += rng.choice(alphabet) if rng.random() < 0.7 else [rng.randrange(257)]
        text = IncrementalText(pair.tokenizer.backend_tokenizer)
        parts = [text.add(token) for token in ids]
        assert "".join(parts) + text.remaining_text() == pair.tokenizer.decode(ids, skip_special_tokens=True)


def test_a_character_appears_with_the_token_that_completes_it(pair: LoadedPair) -> None:
    text = IncrementalText(pair.tokenizer.backend_tokenizer)
    ids = pair.tokenizer("é!", return_token_type_ids=False)["input_ids"]
    assert [text.add(token) for token in ids] == ["", "é", "!"]
