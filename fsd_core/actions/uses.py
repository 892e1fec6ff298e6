"""What is done with uses: what a setting is wanted for, and which one is approved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

from typing_extensions import TypedDict

from fsd_core.actions.action import Ask, Told, action
from fsd_core.actions.reviews import ProposalAnswer, proposal_answer
from fsd_core.review.approvals import approval_of, check_setting
from fsd_core.review.delivery import deliver, described
from fsd_core.review.review_service import ReviewService
from fsd_core.storage.review_events import Requirements
from fsd_core.texts import Id, Key

if TYPE_CHECKING:
    from fsd_core.review.history import Use


class UseAnswer(TypedDict):
    """A use. ``version`` is what ``change_use`` takes."""

    use: str
    name: str
    description: str
    requirements: dict[str, float | None]
    approvals_needed: int
    days: int | None
    version: int
    candidate: str | None
    approved: str | None


class UseWithProposals(UseAnswer):
    """A use with its proposals."""

    proposals: list[ProposalAnswer]


class ApprovalAnswer(TypedDict):
    """What an approval is worth now."""

    expires_at: str | None
    expired: bool
    stale: bool
    evidence: str
    requirements: dict[str, float | None] | None
    note: str


class _Approved(TypedDict):
    setting: str
    pair: str
    models: dict[str, dict[str, str]]
    options: dict[str, Any]
    weights: dict[str, str]
    approval: ApprovalAnswer | None


class ApprovedAnswer(_Approved, total=False):
    """The approved setting; ``text`` if a ``form`` was asked for."""

    form: str
    text: str


_Passing = TypedDict("_Passing", {"pass": bool})


class CheckAnswer(_Passing):
    """Whether a setting may serve a use."""

    use: str
    setting: str
    approved: bool
    approval: ApprovalAnswer | None
    requirements: list[dict[str, Any]]
    reasons: list[str]


def use_answer(use: Use) -> UseAnswer:
    """Return a use as a call answers with it."""
    return {
        "use": use.id,
        "name": use.name,
        "description": use.description,
        "requirements": use.requirements.as_json(),
        "approvals_needed": use.approvals,
        "days": use.days,
        "version": use.described_at,
        "candidate": use.named("candidate"),
        "approved": use.named("approved"),
    }


def _service(ask: Ask) -> ReviewService:
    return ReviewService(ask.repository)


@action()
def list_uses(
    ask: Ask,
) -> list[UseAnswer]:
    """Return the uses that settings are wanted for, with their requirements.

    Each has the settings that are its candidate and approved for it.
    """
    return [use_answer(use) for use in _service(ask).uses()]


@action()
def read_use(
    ask: Ask,
    use: Annotated[Id, "its id, from list_uses"],
) -> UseWithProposals:
    """Return a use with its proposals."""
    view = _service(ask).use(use)
    return {**use_answer(view), "proposals": [proposal_answer(proposal) for proposal in view.proposals.values()]}


@action()
def approved_setting(
    ask: Ask,
    use: Annotated[Id, "its id"],
    form: Annotated[str, "python, json, yaml, vllm or sglang for its text. Default: its options alone"] = "",
) -> ApprovedAnswer:
    """Return the setting that is approved for a use. An engine that cannot run it is refused, with the reason."""
    view = _service(ask).use(use)
    setting = ask.repository.setting(_service(ask).approved(view)).config
    weights = _service(ask).approved_weights(view)
    state = approval_of(ask.repository, view)
    answer = described(setting, weights) | {"weights": weights, "approval": state and state.as_json()}
    answer |= {"form": form, "text": deliver(setting, form, weights)} if form else {}
    return cast(ApprovedAnswer, answer)


def _tell_checked(checked: CheckAnswer) -> Told:
    rows = [
        (it["requirement"], f"answered for: {it['waived']}" if it["waived"] else it["outcome"], it["text"])
        for it in checked["requirements"]
    ]
    noted = checked["approval"]["note"] if checked["approval"] else ""
    line = f"The setting {checked['setting']} {'passes' if checked['pass'] else 'does not pass'} for {checked['use']}."
    notes = [note for note in (*checked["reasons"], noted) if note]
    return Told([line], notes, ("Requirement", "Outcome", "Figures"), rows, checked["pass"])


@action("review check", tells=_tell_checked)
def check_use(
    ask: Ask,
    use: Annotated[Id, "its id"],
    setting: Annotated[str, "id of the setting. Default: the approved one"] = "",
) -> CheckAnswer:
    """Return whether a setting may serve a use now, with each requirement, its approval and its evidence.

    The command exits with 1 where it may not.
    """
    return cast(CheckAnswer, check_setting(ask.repository, _service(ask).use(use), setting).as_json())


@action(writes=True)
def make_use(
    ask: Ask,
    name: Annotated[str, "its name, which also makes its id"],
    description: Annotated[str, "what it is for"] = "",
    requirements: Annotated[
        dict[str, float | None],
        "margin (points of accuracy that may be lost, 2 by default), least_speedup and longest_answers (times as fast "
        "by time per answer, at least; times as long, at most), highest_cost (per solved task, at the price per hour "
        "of the machine). null requires nothing",
    ] = {},  # noqa: B006
    approvals: Annotated[int, "how many people must approve"] = 1,
    days: Annotated[int, "for which an approval counts. 0: for ever"] = 0,
    key: Annotated[
        Key, "32 hexadecimal digits, random for each use. Sent again with the same key, it is made once"
    ] = "",
) -> UseAnswer:
    """Make a use, which settings can be proposed for then. Needs the role author."""
    asked = Requirements.named(requirements)
    return use_answer(
        _service(ask).describe(ask.person, name, description, asked, approvals, days or None, key=key or None)
    )


@action(writes=True)
def change_use(
    ask: Ask,
    use: Annotated[Id, "its id"],
    version: Annotated[int, "as read_use returned it"],
    name: Annotated[str | None, "new name. The id stays"] = None,
    description: Annotated[str | None, "new description"] = None,
    requirements: Annotated[
        dict[str, float | None],
        'those that change, such as {"margin": 3, "least_speedup": null}. null requires nothing',
    ] = {},  # noqa: B006
    approvals: Annotated[int | None, "how many people must approve"] = None,
    days: Annotated[int | None, "for which an approval counts. 0: for ever"] = None,
    key: Annotated[
        Key, "32 hexadecimal digits, random for each change. Sent again with the same key, it is made once"
    ] = "",
) -> UseAnswer:
    """Change what a use asks for. For people with the role admin. What is left out stays unchanged.

    Approvals of what was asked for before become stale. It is refused if somebody else changed the use after the
    version that was read.
    """
    changes = {"name": name, "description": description, "approvals": approvals}
    told: dict[str, Any] = {field: value for field, value in changes.items() if value is not None}
    told |= {"requirements": requirements} | ({} if days is None else {"days": days or None})
    return use_answer(_service(ask).change_use(ask.person, use, told, version, key or None))
