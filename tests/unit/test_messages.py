"""What pages and worker tell each other is read as it has always been stored, and text is told token by token."""

from __future__ import annotations

import copy
import json
import math
import random
from dataclasses import asdict
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models
from tokenizers.decoders import ByteLevel
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import ByteLevel as PreTokenizersByteLevel

from fsd_core.config import DecodingConfig, FuzzyReducible
from fsd_core.decoding.trace import RoundRecord
from fsd_core.errors import DataDamaged, OutOfRange
from fsd_core.storage.messages import BoundsJob, Chunk, EmittedToken, ExperimentJob, FetchJob, PlaygroundJob, RunJob
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import StreamChunkRow
from fsd_core.worker.token_builder import IncrementalText, TokenBuilder
from tests.tools.tracking_examples import chunk, playground_job

# As they were stored before these classes were; databases have them, so this does not change.
STORED_CHUNK = json.loads("""{"setting": 1, "tokens": [
  {"text": " 3", "id": 400, "kind": "lenient", "divergence": null, "p": 0.25, "q": 0.5, "probability": 0.25},
  {"text": " 4", "id": 401, "kind": "correction", "divergence": 0.7, "p": 0.0, "q": 1.0, "probability": 0.5,
   "rejected": " 5"},
  {"text": "", "id": 402, "kind": "plain", "divergence": null, "p": null, "q": null, "probability": 1.0}],
 "stats": {"tokens": 3, "seconds": 0.5, "tokens_per_second": 6.0, "acceptance_rate": 0.5,
  "mean_acceptance_length": 1.5, "rounds": 2},
 "done": true, "stop_reason": "eos", "error": null}""")
STORED_JOB = json.loads("""{"pair": "bundled", "prompt": "2 + 3 = ?", "seed": 7, "settings": [
  {"acceptance": {"kind": "fsd-reducible", "divergence": "js", "threshold": 0.1, "divergence_top_k": 50, "guard": true},
   "drafter": {"kind": "draft-model"}, "topology": {"kind": "chain", "length": 5},
   "sampling": {"temperature": 0.0, "top_k": 0, "top_p": 1.0}, "max_new_tokens": 128},
  {"acceptance": {"kind": "fsd", "divergence": "tv", "threshold": 3}}]}""")


def as_stored(message: Any) -> Any:
    return json.loads(json.dumps(message.as_json(), allow_nan=False))


def test_a_chunk_that_is_stored_is_read_and_would_be_stored_the_same(repository: Repository) -> None:
    id = repository.enqueue(playground_job())
    with repository._database.session() as session:
        session.add(StreamChunkRow(job_id=id, sequence=0, payload=STORED_CHUNK))
    ((_, found),) = repository.chunks(id)
    assert (found.setting, found.done, found.stop_reason, found.error) == (1, True, "eos", None)
    assert found.tokens[1] == EmittedToken(" 4", 401, "correction", 0.7, 0.0, 1.0, 0.5, " 5")
    assert (found.figures.tokens_per_second, found.figures.rounds) == (6.0, 2)
    assert as_stored(found) == STORED_CHUNK


def test_a_job_that_is_stored_is_read_and_would_be_stored_the_same() -> None:
    job = PlaygroundJob.read(STORED_JOB)
    assert job.decoding(0) == DecodingConfig(acceptance=FuzzyReducible(threshold=0.1))
    with pytest.raises(OutOfRange):  # it stops this setting alone
        job.decoding(1)
    assert as_stored(job) == STORED_JOB
    owned = STORED_JOB | {"owner": "ann"}
    assert (PlaygroundJob.read(STORED_JOB).owner, PlaygroundJob.read(owned).owner) == (None, "ann")
    assert as_stored(PlaygroundJob.read(owned)) == owned
    assert as_stored(ExperimentJob("e")) == {"experiment_id": "e"}
    assert as_stored(RunJob("r")) == {"run_id": "r"}
    assert as_stored(BoundsJob("r", None)) == {"run_id": "r", "temperature": None}
    assert as_stored(FetchJob("gsm8k")) == {"task": "gsm8k"}
    others = BoundsJob("r", None), BoundsJob("r", 0.7), FetchJob("gsm8k"), playground_job()
    for one in (ExperimentJob("e"), RunJob("r"), *others):
        assert type(one).read(as_stored(one)) == one


def without(value: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: item for name, item in value.items() if name != key}


@pytest.mark.parametrize(
    "payload",
    [
        None, [], "text", {}, *(without(STORED_JOB, key) for key in STORED_JOB), STORED_JOB | {"seed": "x"},
        STORED_JOB | {"settings": 3}, STORED_JOB | {"settings": [1]}, STORED_JOB | {"unknown": 1},
    ],
)  # fmt: skip
def test_a_payload_that_is_none_is_refused_in_a_sentence_that_does_not_repeat_it(payload: Any) -> None:
    with pytest.raises(DataDamaged, match="playground") as told:
        PlaygroundJob.read(payload)
    assert "bundled" not in str(told.value)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to everything in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


@pytest.mark.parametrize("path", places(STORED_CHUNK), ids=str)
@pytest.mark.parametrize("damage", [None, [], {}, "x", -1, 2.5, True], ids=repr)
def test_a_damaged_chunk_is_refused_or_is_a_chunk_still(path: tuple[Any, ...], damage: Any) -> None:
    value = {"whole": copy.deepcopy(STORED_CHUNK)}
    *way, last = ("whole", *path)
    inside: Any = value
    for key in way:
        inside = inside[key]
    inside[last] = damage
    try:
        found = Chunk.read(value["whole"])
    except DataDamaged:
        return
    assert found.setting >= 0
    assert Chunk.read(as_stored(found)) == found


@pytest.mark.parametrize("key", [*STORED_CHUNK, "text", "id", "kind", "rounds", "acceptance_rate"])
def test_a_chunk_that_lacks_something_is_refused(key: str) -> None:
    value = without(STORED_CHUNK, key)
    if key in STORED_CHUNK["tokens"][0]:
        value["tokens"] = [without(STORED_CHUNK["tokens"][0], key)]
    elif key in STORED_CHUNK["stats"]:
        value["stats"] = without(STORED_CHUNK["stats"], key)
    with pytest.raises(DataDamaged, match="cannot be read"):
        Chunk.read(value)


def a_b_and_end() -> Tokenizer:
    tokenizer = Tokenizer(WordLevel({"a": 0, "b": 1, "</s>": 2}, unk_token="</s>"))
    tokenizer.decoder = ByteLevel()
    tokenizer.add_special_tokens(["</s>"])
    return tokenizer


def test_the_end_of_the_text_has_a_name_where_it_was_rejected_and_no_text_where_it_was_written() -> None:
    record = RoundRecord((2,), 0, (1,), ("correction",), (0.5,), (0.1,), (0.9,), (0.8,), 0.1)
    end = RoundRecord((), 0, (2,), ("plain",), (), (), (), (1.0,), 0.1)
    builder = TokenBuilder(a_b_and_end())
    (correction,), (ended,) = builder.add(record, last=False), builder.add(end, last=True)
    assert (correction.text, correction.rejected) == ("b", "</s>")
    assert (ended.text, ended.p, ended.rejected) == ("", None, None)


def test_what_json_cannot_say_does_not_get_into_it() -> None:
    """Also where a model's numbers are broken."""
    nan = math.nan
    record = RoundRecord(
        (0, 1), 1, (0, 0), ("lenient", "correction"), (math.inf, nan), (nan, 0.5), (0.5, nan), (math.inf, 0.25), 0.1
    )
    kept, correction = TokenBuilder(a_b_and_end()).add(record, last=True)
    assert kept == EmittedToken("a", 0, "lenient", None, None, 0.5, None)
    assert correction == EmittedToken("a", 0, "correction", None, 0.5, None, 0.25, "b")
    as_stored(Chunk(0, (kept, correction), chunk(1).figures))


def test_figures_follow_from_counts_and_nothing_has_none() -> None:
    assert asdict(chunk(1, 2).figures) == {
        "tokens": 2, "rounds": 1, "seconds": 0.5, "tokens_per_second": 4.0, "acceptance_rate": 1.0,
        "mean_acceptance_length": 2.0, "cpu_seconds": None, "target_tokens_per_second": None,
    }  # fmt: skip
    nothing = type(chunk().figures).of(tokens=0, rounds=0, drafted=0, accepted=0, seconds=0.0)
    assert (nothing.tokens_per_second, nothing.acceptance_rate, nothing.mean_acceptance_length) == (0.0, None, 0.0)


WORDS = ("▁", "▁▁", "▁foo", "bar", "é", "\ufffd", "▁🙂", "</think>", "<0x0A>x")
DECODERS = {
    "llama-2": decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    ),
    "gemma": decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]),
    "mistral": decoders.Metaspace(replacement="▁", prepend_scheme="first"),
    "gpt-2": decoders.ByteLevel(),
    "qwen": decoders.ByteLevel(),
}


def a_tokenizer(name: str) -> Tokenizer:
    """Every byte as a token, a few words, an end token, and for Qwen marks that are no special tokens."""
    if name in ("gpt-2", "qwen"):
        tokens = [*sorted(PreTokenizersByteLevel.alphabet()), "Ġfoo", "bar", "ĠðŁĻĤ", "ðŁ", "âĤ¬"]
        tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[]))
    else:
        tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *WORDS]
        vocabulary = {token: i for i, token in enumerate(tokens)}
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, unk_token="<unk>"))
    tokenizer.decoder = DECODERS[name]
    tokenizer.add_special_tokens(["<s>", "</s>"])
    if name == "qwen":
        tokenizer.add_tokens(["<think>"])
    return tokenizer


def shown(tokenizer: Tokenizer, ids: list[int]) -> str:
    text = IncrementalText(tokenizer)
    return "".join(text.add(token) for token in ids) + text.remaining_text()


@pytest.mark.parametrize("name", DECODERS)
def test_pieces_of_random_bytes_and_words_are_the_whole_text(name: str) -> None:
    tokenizer, rng = a_tokenizer(name), random.Random(0)
    euro = [tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in "€🙂\n".encode()]
    for _ in range(1500):
        ids = [rng.randrange(tokenizer.get_vocab_size()) for _ in range(rng.randrange(1, 14))]
        if None not in euro and rng.random() < 0.5:
            at = rng.randrange(len(ids) + 1)
            ids[at:at] = euro[: rng.randrange(1, len(euro) + 1)]
        assert shown(tokenizer, ids) == tokenizer.decode(ids, skip_special_tokens=True), ids


@pytest.mark.parametrize("name", DECODERS)
def test_words_are_shown_as_they_come(name: str) -> None:
    tokenizer = a_tokenizer(name)
    text, words = IncrementalText(tokenizer), [tokenizer.token_to_id(word) for word in ("bar", "</s>", "bar")]
    assert [text.add(word) for word in words] == ["bar", "", "bar"]
    assert text.remaining_text() == ""
