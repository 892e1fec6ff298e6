"""Sweeps and generations for tests of what is recorded."""

from __future__ import annotations

from fsd_core.config import Autoregressive, DecodingConfig, FuzzyReducible, RunConfig, SettingConfig, SweepConfig
from fsd_core.decoding.trace import RoundRecord
from fsd_core.storage.messages import Chunk, EmittedToken, PlaygroundJob, StreamFigures
from fsd_core.storage.records import GenerationRecord

STEP = RoundRecord((5, 6), 1, (5, 7), ("strict", "correction"), (0.01, None), (0.9, 0.1), (0.8, 0.3), (0.9, 0.5), 0.01)


def sweep(name: str = "first") -> SweepConfig:
    """Three settings, two prompts each."""
    rules = Autoregressive(), FuzzyReducible(threshold=0.1), FuzzyReducible(threshold=0.3)
    return SweepConfig(name=name, limit=2, decodings=tuple(DecodingConfig(acceptance=rule) for rule in rules))


def run_config(threshold: float = 0.1, seed: int = 0) -> RunConfig:
    decoding = DecodingConfig(acceptance=FuzzyReducible(threshold=threshold))
    return RunConfig(setting=SettingConfig(decoding=decoding), limit=2, seed=seed)


def generation(position: int = 0, text: str = "so #### 5", outcome: str = "correct") -> GenerationRecord:
    return GenerationRecord(
        position=position, example_id=f"e{position}", prompt="2 + 3 = ?", reference="5", text=text, answer="5",
        outcome=outcome, stop_reason="eos", error=None, tokens=2, rounds=1, drafted=2, accepted=1, fuzzy=0,
        negative_log_likelihood=0.8, seconds=0.5, time_to_first_token=0.1, records=[STEP],
    )  # fmt: skip


def playground_job(prompt: str = "2 + 3 = ?", *decodings: DecodingConfig, pair: str = "bundled") -> PlaygroundJob:
    return PlaygroundJob.of(pair, prompt, 0, decodings or [DecodingConfig()])


def chunk(*ids: int, setting: int = 0, done: bool = False) -> Chunk:
    """What the worker writes: tokens of these ids, each a letter of the alphabet."""
    tokens = tuple(EmittedToken(chr(96 + id), id, "strict", 0.1, 0.5, 0.25, 0.5) for id in ids)
    figures = StreamFigures.of(tokens=len(ids), rounds=1, drafted=len(ids), accepted=len(ids), seconds=0.5)
    return Chunk(setting, tokens, figures, done, "eos" if done else None)
