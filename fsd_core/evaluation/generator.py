"""Writers of the prompts of runs: this process, with pairs that it has loaded, or another ``TextGenerator``.

``runner`` alone decides what is recorded, and when a run starts and ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch

from fsd_core.decoding.decoder import PairDecoder
from fsd_core.errors import ModelUnavailable
from fsd_core.evaluation.device_meter import MeterOf, metered, nvml_meter
from fsd_core.evaluation.harness import run_examples
from fsd_core.models.chat_template import template_marks
from fsd_core.models.loading import LoadedPair, gpu_name
from fsd_core.models.prompt import prompt_hash
from fsd_core.models.thoughts import kept_marks
from fsd_core.storage.records import GenerationRecord, RunView
from fsd_core.tasks import Example, Task
from fsd_core.tracking import provenance

logger = logging.getLogger(__name__)

PairLoader = Callable[[str, str, str], LoadedPair]
"""(name, device, dtype) -> pair: ``load_pair`` itself, or a loader with a cache."""
_T = TypeVar("_T")
Plan = Sequence[tuple[RunView, Sequence[int]]]
"""runs with the positions of some of their prompts, in the order of writing"""

_WARM_UP_ROUNDS = 3


@runtime_checkable
class TextGenerator(Protocol):
    """Writes prompts of runs. A run is opened before any other call for it."""

    def open(self, run: RunView) -> dict[str, Any]:
        """Return the provenance of the texts to be written, with ``weights`` if these have fingerprints.

        An ``identity`` of the pair stands beside it. Raises what ``load_pair`` raises, and ``DeviceUnavailable``.
        """
        ...

    def warm_up(self, run: RunView, example: Example) -> None:
        """Run and discard some rounds: the first ones of a process are slow and would be charged to one prompt."""
        ...

    def prompt_hash(self, run: RunView, example: Example) -> str:
        """Return the hash of the token ids that a prompt is rendered to, without a forward."""
        ...

    def plan(self, plan: Plan) -> None:
        """Receive the complete plan, once, when all runs are open."""
        ...

    def write(self, run: RunView, task: Task, examples: Mapping[int, Example]) -> Iterator[GenerationRecord]:
        """Yield a record for each prompt, by position, as soon as it is written. See ``harness.run_examples``."""
        ...

    def ask(self, pair: str, device: str, dtype: str, query: Callable[[LoadedPair], _T]) -> _T:
        """Return the answer of a picklable function for a pair. Raises what ``load_pair`` and the function raise."""
        ...

    def threads(self) -> int:
        """Return the current number of CPU threads."""
        ...


class LocalGenerator:
    """Writes in this process, with pairs from a loader."""

    def __init__(self, pair_loader: PairLoader, meter_of: MeterOf = nvml_meter) -> None:
        """``meter_of``: finds what reads the energy and the memory of a device."""
        self._pair_loader, self._meter_of = pair_loader, cache(meter_of)
        self._decoders: dict[str, PairDecoder] = {}  # by run

    def open(self, run: RunView) -> dict[str, Any]:
        pair = self._pair_loader(run.pair, run.config.device, run.config.dtype)
        self._decoders[run.id] = PairDecoder(pair, run.decoding)
        return about(pair)

    def warm_up(self, run: RunView, example: Example) -> None:
        warm_up(self._decoders[run.id], example)

    def prompt_hash(self, run: RunView, example: Example) -> str:
        return prompt_hash(self._decoders[run.id].prompt_ids(example.model_input))

    def plan(self, plan: Plan) -> None:
        """Do nothing: this generator needs no plan."""

    def write(self, run: RunView, task: Task, examples: Mapping[int, Example]) -> Iterator[GenerationRecord]:
        decoder = self._decoders[run.id]
        records = run_examples(decoder, task, examples, run.seed, run.config.batch)
        pair = decoder.pair  # what several devices take, one meter does not tell
        return metered(records, None if pair.target.split else self._meter_of(pair.device))

    def ask(self, pair: str, device: str, dtype: str, query: Callable[[LoadedPair], _T]) -> _T:
        return query(self._pair_loader(pair, device, dtype))

    def threads(self) -> int:
        return torch.get_num_threads()


def about(pair: LoadedPair) -> dict[str, Any]:
    """Return the provenance of the texts that a pair writes in this process."""
    details = provenance.collect(pair.computed_on, pair.dtype, torch.get_num_threads(), gpu_name(pair.device))
    details |= {"identity": pair.identity} if pair.identity else {}
    details |= ({"weights": pair.weights} if pair.weights else {}) | ({"note": pair.note} if pair.note else {})
    return details | kept_marks(template_marks(pair.tokenizer))


def warm_up(decoder: PairDecoder, example: Example) -> None:
    """See :meth:`TextGenerator.warm_up`. Raises ``ModelUnavailable`` if no prompt can be read."""
    try:
        list(islice(decoder.stream(decoder.prompt_ids(example.model_input), seed=0), _WARM_UP_ROUNDS))
    except ModelUnavailable:
        raise
    except Exception as error:  # a bad prompt is reported when its turn comes
        logger.info("The warm-up ended early: %s", error)
