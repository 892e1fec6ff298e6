"""The address of every page, by a name, over what a database holds."""

from __future__ import annotations

from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.storage.records import ExperimentView, RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements

AUTHOR = Person("Ann", "author")
EVERY_TAB = ("&tab=figures", "&tab=settings", "&tab=prompts")
"""opens a tab of Compare each, in an address"""


def every_page(repository: Repository) -> dict[str, str]:
    """Every page with something on it, and the one that says that an address leads nowhere.

    Of a database with a finished experiment that has a lenient setting and exact speculative decoding; where nothing is
    proposed yet, a use is made and that setting proposed.
    """
    experiment = max(repository.experiments(limit=100, offset=0), key=_told)
    lenient = _telling(experiment)
    use, proposal = _proposed(repository, experiment, lenient)
    return {
        "start": "/",
        "playground": "/playground",
        "experiments": "/experiments",
        "compare": f"/compare?experiment={experiment.id}",
        "runs": "/runs",
        "run": f"/runs?run={lenient.id}",
        "settings": "/settings",
        "setting": f"/settings?setting={lenient.setting_id}",
        "review": "/review",
        "use": f"/review?use={use}",
        "propose": f"/review?propose={lenient.setting_id}",
        "proposal": f"/review?proposal={proposal}",
        "reports": "/reports",
        "theory": "/theory",
        "nothing": "/nosuch",
    }


def _told(experiment: ExperimentView) -> tuple[int, int]:
    """How many lenient settings were measured in it, and how many runs it has."""
    return sum(bool(run.decoding.threshold and run.metrics) for run in experiment.runs), len(experiment.runs)


def _telling(experiment: ExperimentView) -> RunView:
    """The lenient run with the middle threshold."""
    tuned = [run for run in experiment.runs if run.decoding.threshold and run.metrics]
    tuned.sort(key=lambda run: run.decoding.threshold or 0)
    return tuned[len(tuned) // 2]


def _proposed(repository: Repository, experiment: ExperimentView, run: RunView) -> tuple[str, str]:
    """A use and a proposal for it: those that are there, or made here."""
    service = ReviewService(repository)
    if not (uses := service.uses()):
        asked = Requirements.checked(margin=2.0, least_speedup=1.5, longest_answers=1.2)
        service.describe(AUTHOR, "Word problems on one CPU", "Short sums, answered at once.", asked)
        uses = service.uses()
    for use in uses:
        for id in use.proposals:
            return use.id, id
    baselines = [one.id for one in experiment.runs if one.decoding.acceptance.kind == "autoregressive"]
    return uses[0].id, service.propose(AUTHOR, uses[0].id, [run.id], baselines, "As fast as we need it.")
