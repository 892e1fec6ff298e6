"""Lists of pairs with their states: those that people have named, and those of the program that are not here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from dashboard.ui.actions import button
from dashboard.ui.components import notice
from dashboard.ui.quantities import moment
from dashboard.ui.templates import Html, joined, render
from fsd_core.config.model_names import HUB_ID, dtype_of, folder_of, models_of, template_arguments_of
from fsd_core.models.local_models import moved
from fsd_core.models.model_pairs import MODEL_PAIRS
from fsd_core.models.pair_check import HERE, TO_FETCH, UNUSABLE, DeviceMemory, check_name, size
from fsd_core.settings import get_settings
from fsd_core.storage.records import UNENDED
from fsd_core.worker.device_memory import device_memory
from fsd_core.worker.pair_fetches import pair_fetches

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import JobView, OwnPair, WorkerView

_FILE = "experiments/own_models.html"
_WAITING = "The worker will begin when it has done what it does now."
_NO_WORKER = "Waiting: nothing fetches now. The head of this page says what is missing."


class PairLists(NamedTuple):
    """A line for each pair."""

    own: Html
    presets: Html


def pair_lists(repository: Repository, worker: WorkerView | None, badges: Mapping[str, str]) -> PairLists:
    """Return the pairs that somebody has named, and those of the program that are not here or are being fetched.

    ``badges``: the states of all pairs by their names (:func:`dashboard.ui.pair_field.pair_badges`).
    """
    fetches = pair_fetches(repository)
    alive = worker is not None and worker.alive
    memory = device_memory(repository)
    own = [
        _own_line(pair, badges[pair.models], fetches.get(pair.models), alive, memory)
        for pair in repository.own_pairs()
        if pair.models in badges
    ]
    presets = [
        _line(name, spec.title, spec.description, badge, fetches.get(name), alive, Html())
        for name, spec in MODEL_PAIRS.items()
        if (badge := badges[name]) != HERE
    ]
    return PairLists(render(_FILE, "pairs", own), render(_FILE, "pairs", presets))


def _own_line(pair: OwnPair, badge: str, job: JobView | None, alive: bool, memory: DeviceMemory) -> Html:
    parts = [f"{role} {_where(model)}" for role, model in models_of(pair.models).items()]
    parts += [dtype] if (dtype := dtype_of(pair.models)) != "auto" else []
    parts += [f"template arguments {given}"] if (given := template_arguments_of(pair.models)) else []
    about = f"{', '.join(parts)} · {pair.added_by}, {moment(pair.added_at)}"
    question = f"Forget the name {pair.name}? What was measured with it stays."
    forget = button("forget models", "pair", pair.name, "Forget", question)
    fault = notice(check_name(pair.models, memory).problems[0], "warn") if badge == UNUSABLE else Html()
    return _line(pair.models, pair.name, about, badge, job, alive, forget, fault)


def _where(model: str) -> str:
    """Return a model's id at the hub, or the folder that it is loaded from."""
    return model if HUB_ID.fullmatch(model) else str(moved(folder_of(model), get_settings().home))


def _line(
    name: str, title: str, about: str, badge: str, job: JobView | None, alive: bool, forget: Html, fault: str = ""
) -> Html:
    if job is not None and job.status in UNENDED:
        stopping = job.cancel_requested
        action = button("cancel fetch", "pair", name, "Cancelling" if stopping else "Cancel", disabled=stopping)
    else:
        has_part = job is not None and job.status != "finished" and job.bytes_done
        fetch = button("fetch models", "pair", name, "Go on fetching" if has_part else "Fetch")
        action = fetch if badge.startswith(TO_FETCH) else Html()
    return render(_FILE, "pair", title, badge, about, joined([action, forget]), _state(job, badge, alive) or fault)


def _state(job: JobView | None, badge: str, alive: bool) -> Html:
    """Return how far a fetch is, or why it ended, until the models are here."""
    if job is None or badge == HERE or job.status == "finished":
        return Html()
    if job.status in UNENDED:
        if job.bytes_total:
            told = f"{size(job.bytes_done or 0)} of {size(job.bytes_total)}"
            return render(_FILE, "progress", told, job.bytes_done or 0, job.bytes_total)
        return notice(_WAITING if alive else _NO_WORKER)
    kept = f"It was stopped at {size(job.bytes_done)}, which are kept." if job.bytes_done else "It was stopped."
    return notice(job.error or kept, "warn")
