"""The generator that asks engines for their runs and leaves all other runs to the generator of the pairs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, TypeVar

from fsd_core.engines.engine_client import EngineClient, check_sampling
from fsd_core.engines.engine_hosts import EngineHosts
from fsd_core.engines.engine_knob import EngineKnob
from fsd_core.engines.engine_load import EngineLoad
from fsd_core.errors import EngineUnavailable, UnknownName
from fsd_core.evaluation.generator import Plan, TextGenerator
from fsd_core.evaluation.served_runs import ServedRun, served_by
from fsd_core.models.chat_template import template_marks
from fsd_core.models.loading import LoadedPair
from fsd_core.models.model_pairs import get_pair
from fsd_core.models.thoughts import kept_marks
from fsd_core.models.tokenizer_source import tokenizer_of
from fsd_core.rules import Served
from fsd_core.settings import get_settings
from fsd_core.storage.database.repository import Repository
from fsd_core.storage.records import GenerationRecord, RunView, ServedEngine
from fsd_core.tasks import Example, Task

_T = TypeVar("_T")


class WithEngines:
    """A :class:`fsd_core.evaluation.generator.TextGenerator` that asks engines for their runs, and another one for all
    other runs. To be closed, as a context manager."""

    def __init__(
        self, others: TextGenerator, repository: Repository, knob: EngineKnob, on_wait: Callable[[], None]
    ) -> None:
        """``knob``: tells engines the rules of runs that have one. ``on_wait``: see :class:`EngineLoad`."""
        self._others, self._repository, self._knob, self._on_wait = others, repository, knob, on_wait
        self._served: dict[str, ServedRun] = {}
        self._writing: dict[str, Generator[GenerationRecord]] = {}
        """by run; what was cut off reads the counters when it is closed"""

    def __enter__(self) -> WithEngines:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as ends:  # an error of one leaves the others to be closed
            for served in self._served.values():
                ends.callback(served.load.close)
            for writing in self._writing.values():
                ends.callback(writing.close)
        self._served.clear()

    def open(self, run: RunView) -> dict[str, Any]:
        """Return the provenance of a run's texts: for an engine its kind and version, and the load."""
        served = served_by(run)
        if served is None:
            return self._others.open(run)
        check_sampling(served, run.decoding.sampling)
        spec = get_pair(run.pair)
        tokenizer = tokenizer_of(spec.target, spec.adapter)
        engine = self._endpoint(served)
        hosts = EngineHosts.of(get_settings()) if engine.guarded else None
        knob = None if served.rule is None else self._knob
        load = EngineLoad(
            lambda: EngineClient(served, engine.key_variable, parallel=run.config.batch, hosts=hosts), self._on_wait
        )
        try:
            if knob is not None:
                knob.tell(load, served)
            facts = load.call(EngineClient.check)
        except BaseException:
            load.close()
            raise

        def record(stretch: str, reading: dict[str, Any]) -> None:
            self._repository.record_reading(run.id, stretch, reading)

        self._served[run.id] = ServedRun(run, served, tokenizer, load, facts.get("max_model_len"), record, knob)
        facts |= kept_marks(template_marks(tokenizer))
        return facts | ({"gpu": engine.hardware} if engine.hardware else {})

    def warm_up(self, run: RunView, example: Example) -> None:
        """Leave an engine alone: what it does first is its affair, and a text would count in its metrics."""
        if run.id not in self._served:
            self._others.warm_up(run, example)

    def prompt_hash(self, run: RunView, example: Example) -> str:
        """Return the hash of the prompt as the pair or the engine reads it."""
        served = self._served.get(run.id)
        return self._others.prompt_hash(run, example) if served is None else served.prompt_hash(example)

    def plan(self, plan: Plan) -> None:
        """Hand on the plan of the runs that no engine writes."""
        self._others.plan([(run, positions) for run, positions in plan if run.id not in self._served])

    def write(self, run: RunView, task: Task, examples: Mapping[int, Example]) -> Iterator[GenerationRecord]:
        """Yield the records of a run's prompts, from whoever writes them."""
        served = self._served.get(run.id)
        if served is None:
            return self._others.write(run, task, examples)
        writing = self._writing[run.id] = served.write(task, examples)
        return writing

    def ask(self, pair: str, device: str, dtype: str, query: Callable[[LoadedPair], _T]) -> _T:
        """Ask the generator of the pairs."""
        return self._others.ask(pair, device, dtype, query)

    def threads(self) -> int:
        """Return the number of CPU threads of the generator of the pairs."""
        return self._others.threads()

    def _endpoint(self, served: Served) -> ServedEngine:
        """Return an endpoint, which must be what the run says. Raises ``EngineUnavailable``."""
        try:
            engine = self._repository.engine(served.endpoint)
        except UnknownName:
            raise EngineUnavailable(
                f"There is no endpoint '{served.endpoint}' any more: add it again with `endpoints add`."
            ) from None
        if engine.served != served.engine_alone:
            raise EngineUnavailable(
                f"The endpoint '{served.endpoint}' is another engine now than the one of this run ({served.url}): add "
                "it as it was, or start a new run."
            )
        return engine
