"""Fills a real database with runs such as the worker leaves behind, in a second and without a model."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import insert

from fsd_core.config import DecodingConfig, SweepConfig
from fsd_core.decoding.trace import RoundRecord, pack_rounds
from fsd_core.evaluation.aggregate import summarise
from fsd_core.metrics import conditions_of
from fsd_core.storage import opening
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.records import READING_VERSIONS, GenerationRecord, RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import GenerationRow, RunRow, TraceRow
from fsd_core.tasks.readings import READING_VERSION
from fsd_plugins.training import generators
from tests.tools.sizes import PATIENCE

T = TypeVar("T")
PROMPTS = 24
PROVENANCE = {
    "device": "cpu", "dtype": "float32", "threads": 2, "cpu": "Some processor",
    "git_revision": "c0ffee" * 7 + "+changes", "weights": {"target": "3f9c1a77b0d2e845", "draft": "0b6e5d21c4a7f983"},
    READING_VERSIONS: str(READING_VERSION),
}  # fmt: skip
_HELD_OUT = 600
THRESHOLDS = (0.05, 0.1, 0.2, 0.4)


def new_repository(home: Path) -> Repository:
    """An empty database under ``home``, migrated."""
    opening.make_folder(home)
    (home / "fsd.db").write_bytes(_empty())
    return Repository(open_database(f"sqlite:///{home / 'fsd.db'}", busy_timeout=PATIENCE))


def filled_file(home: Path, fill: Callable[[Repository], T]) -> tuple[Path, T]:
    """The file of a new database that was filled and is closed, to be copied, and what ``fill`` returned."""
    repository = new_repository(home)
    result = fill(repository)
    repository._database.close()
    return home / "fsd.db", result


@cache
def _empty() -> bytes:
    """The file of an empty database. To migrate one takes longer than most tests; those of the database do."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fsd.db"
        upgrade(f"sqlite:///{file}")
        return file.read_bytes()


def decoding(kind: str, **fields: object) -> DecodingConfig:
    """A decoding method whose acceptance rule is ``kind`` with ``fields``."""
    return DecodingConfig.model_validate({"acceptance": {"kind": kind, **fields}})


def sweep(name: str, limit: int = PROMPTS, seeds: tuple[int, ...] = (0,)) -> SweepConfig:
    """Target alone, draft alone, SD and four thresholds."""
    tuned = [decoding("fsd-reducible", divergence="js", threshold=t) for t in THRESHOLDS]
    baselines = [decoding(kind) for kind in ("autoregressive", "draft-only", "speculative")]
    return SweepConfig(name=name, limit=limit, seeds=seeds, decodings=(*baselines, *tuned))


def add_finished(repository: Repository, name: str = "Find the knee", **options: object) -> str:
    """A finished experiment; returns its id."""
    experiment = repository.create_experiment(sweep(name, **options), enqueue=False)  # type: ignore[arg-type]
    for run in repository.experiment(experiment).runs:
        finish(repository, run)
    return experiment


def finish(repository: Repository, run: RunView) -> None:
    """Does a run to its end."""
    generations = do_prompts(repository, run, run.prompts_total)
    repository.finish_run(run.id, _summary(tuple(map(_Same, generations))))


def do_prompts(repository: Repository, run: RunView, count: int) -> list[GenerationRecord]:
    """Starts a run and records its first ``count`` prompts."""
    repository.start_run(run.id, PROVENANCE)
    problems = _problems(_HELD_OUT if run.config.shuffled else run.config.first + count)
    positions = run.config.positions(len(problems))[:count]
    generations = [generation(run, position, problems[position]) for position in positions]
    record(repository, run.id, generations)
    return generations


def record(repository: Repository, run_id: str, generations: Sequence[GenerationRecord]) -> None:
    """What ``record_generation`` stores of each. It is called for the first, which begins the session in which all are
    measured; the others are stored in one transaction, for one by one they take ten times as long."""
    for done in generations[:1]:
        repository.record_generation(run_id, done, conditions_of(repository.run(run_id).provenance))
    recorded = repository.done_positions(run_id)
    if not (others := [done for done in generations if done.position not in recorded]):
        return
    with repository._database.session() as session:
        run = session.get_one(RunRow, run_id)
        (measured,) = run.measurement_sessions
        own = {"run_id": run_id, "sitting_id": measured.id}
        rows = [own | done.columns() for done in others]
        ids = session.scalars(insert(GenerationRow).returning(GenerationRow.id, sort_by_parameter_order=True), rows)
        packed = zip(ids.all(), (_packed(_Same(done.records)) for done in others), strict=True)
        traces = [{"generation_id": id, "data": data, "sha256": checksum} for id, (data, checksum) in packed]
        session.execute(insert(TraceRow), traces)
        run.prompts_done += len(rows)
        run.decoding_seconds += sum(done.seconds for done in others)


class _Same(NamedTuple):
    """Something that is known by where it was made: what was made twice is the same."""

    made: Any

    def __hash__(self) -> int:
        return id(self.made)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.made is other.made


@cache
def _packed(records: _Same) -> tuple[bytes, str]:
    return pack_rounds(records.made)


@cache
def _summary(generations: tuple[_Same, ...]) -> dict[str, Any]:
    done = [each.made for each in generations]
    return summarise(done, (each.records for each in done))


@cache
def _problems(count: int) -> Sequence[generators.Problem]:
    return generators.held_out_long(count)


def generation(run: RunView, position: int, problem: generators.Problem) -> GenerationRecord:
    return _generation(run.label, run.seed, _character(run), run.decoding.threshold, position, problem)


@cache
def _generation(
    label: str, seed: int, character: tuple[float, float, float | None], threshold: float | None, position: int,
    problem: generators.Problem,
) -> GenerationRecord:  # fmt: skip
    rng = random.Random(f"{label} {seed} {position}")
    accuracy, speed, acceptance = character
    # The same prompts are hard for every setting, as they are in life.
    solved = 0.7 * random.Random(position).random() + 0.3 * rng.random() < accuracy
    answer = problem.answer if solved else problem.answer + rng.randint(1, 9)
    text = problem.solution(rng).replace(str(problem.answer), str(answer))
    rounds = _rounds(rng, len(text) // 3, speed * rng.uniform(0.9, 1.1), acceptance, threshold)
    tokens = sum(len(record.emitted) for record in rounds)
    drafted, accepted = (sum(counts) for counts in zip(*((len(s.drafted), s.accepted) for s in rounds), strict=True))
    return GenerationRecord(
        position=position, example_id=f"arithmetic-{position}", prompt=problem.prompt, reference=str(problem.answer),
        text=text, answer=str(answer), outcome="correct" if solved else "wrong", stop_reason="eos", error=None,
        tokens=tokens, rounds=len(rounds), drafted=drafted, accepted=accepted,
        fuzzy=sum(record.kinds.count("lenient") for record in rounds), negative_log_likelihood=0.2 * tokens,
        seconds=sum(record.seconds for record in rounds), time_to_first_token=rounds[0].seconds, records=rounds,
    )  # fmt: skip


def _character(run: RunView) -> tuple[float, float, float | None]:
    """Accuracy, tokens per second and acceptance rate by position."""
    kind, threshold = run.decoding.acceptance.kind, run.decoding.threshold or 0.0
    if kind == "autoregressive":
        return 0.94, 110.0, None
    if kind == "draft-only":
        return 0.42, 430.0, None
    return 0.94 - 1.1 * max(0.0, threshold - 0.06), 190 + 260 * threshold, min(0.99, 0.75 + 0.6 * threshold)


def _rounds(
    rng: random.Random, tokens: int, speed: float, acceptance: float | None, threshold: float | None
) -> list[RoundRecord]:
    rounds: list[RoundRecord] = []
    while tokens > 0:
        if acceptance is None:
            rounds.append(RoundRecord((), 0, (7,), ("plain",), (), (), (), (0.8,), 1 / speed))
            tokens -= 1
            continue
        accepted = next((i for i in range(5) if rng.random() > acceptance), 5)
        judged = min(5, accepted + 1)
        divergence = tuple(min(0.69, rng.expovariate(8)) for _ in range(judged))
        lenient = [threshold is not None and d <= threshold and rng.random() < 0.2 for d in divergence]
        kinds = tuple("lenient" if lenient[i] else "strict" for i in range(accepted))
        written = accepted + 1
        rounds.append(
            RoundRecord(
                drafted=(5,) * 5, accepted=accepted, emitted=(5,) * written,
                kinds=(*kinds, "bonus" if accepted == 5 else "correction"), divergence=divergence,
                target_probability=(0.6,) * judged, draft_probability=(0.5,) * judged,
                emitted_probability=(0.6,) * written, seconds=written / speed, draft_seconds=0.4 * written / speed,
            )
        )  # fmt: skip
        tokens -= accepted + 1
    return rounds
