"""API endpoints of uses: read, check, make and change what settings are approved for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import gradio as gr

from dashboard.review.review_answers import (
    ApprovedAnswer,
    CheckAnswer,
    UseAnswer,
    UseWithProposals,
    proposal_answer,
    use_answer,
)
from dashboard.ui.endpoint import Endpoint, does
from dashboard.ui.signed_in import person_of
from fsd_core.review.approvals import approval_of, check_setting
from fsd_core.review.delivery import deliver, described
from fsd_core.review.review_service import ReviewService
from fsd_core.storage.review_events import Requirements
from fsd_core.texts import Id, Key

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository


def use_endpoints(repository: Repository) -> list[Endpoint]:
    service = ReviewService(repository)

    def list_uses() -> list[UseAnswer]:
        """Return the uses that settings are wanted for, with their requirements.

        Each has the settings that are its candidate and approved for it.
        """
        return [use_answer(use) for use in service.uses()]

    def read_use(use: Id) -> UseWithProposals:
        """Return a use with its proposals.

        Args:
            use: its id, from list_uses
        """
        view = service.use(use)
        return {**use_answer(view), "proposals": [proposal_answer(proposal) for proposal in view.proposals.values()]}

    def approved_setting(use: Id, form: str = "") -> ApprovedAnswer:
        """Return the setting that is approved for a use. An engine that cannot run it is refused, with the reason.

        Args:
            use: its id
            form: python, json, yaml, vllm or sglang for its text. Default: its options alone
        """
        view = service.use(use)
        setting = repository.setting(service.approved(view)).config
        weights = service.approved_weights(view)
        state = approval_of(repository, view)
        answer = described(setting, weights) | {"weights": weights, "approval": state and state.as_json()}
        answer |= {"form": form, "text": deliver(setting, form, weights)} if form else {}
        return cast(ApprovedAnswer, answer)

    def check_use(use: Id, setting: str = "") -> CheckAnswer:
        """Return whether a setting may serve a use now, with each requirement, its approval and its evidence.

        Args:
            use: its id
            setting: id of the setting. Default: the approved one
        """
        return cast(CheckAnswer, check_setting(repository, service.use(use), setting).as_json())

    @does()
    def make_use(
        name: str,
        request: gr.Request,
        description: str = "",
        requirements: dict[str, float | None] = {},  # noqa: B006  # read, never written
        approvals: int = 1,
        days: int = 0,
        key: Key = "",
    ) -> UseAnswer:
        """Make a use, which settings can be proposed for then. Needs the role author.

        Args:
            name: its name, which also makes its id
            description: what it is for
            requirements: margin (points of accuracy that may be lost, 2 by default), least_speedup and longest_answers
                (times as fast by time per answer, at least; times as long, at most), highest_cost (per solved task, at
                the price per hour of the machine). null requires nothing
            approvals: how many people must approve
            days: for which an approval counts. 0: for ever
            key: 32 hexadecimal digits, random for each use. Sent again with the same key, it is made once
        """
        asked = Requirements.named(requirements)
        return use_answer(
            service.describe(person_of(request), name, description, asked, approvals, days or None, key=key or None)
        )

    @does()
    def change_use(
        use: Id,
        version: int,
        request: gr.Request,
        name: str | None = None,
        description: str | None = None,
        requirements: dict[str, float | None] = {},  # noqa: B006  # read, never written
        approvals: int | None = None,
        days: int | None = None,
        key: Key = "",
    ) -> UseAnswer:
        """Change what a use asks for. For people with the role admin. What is left out stays unchanged.

        Approvals of what was asked for before become stale. It is refused if somebody else changed the use after the
        version that was read.

        Args:
            use: its id
            version: as read_use returned it
            name: new name. The id stays
            description: new description
            requirements: those that change, such as {"margin": 3, "least_speedup": null}. null requires nothing
            approvals: how many people must approve
            days: for which an approval counts. 0: for ever
            key: 32 hexadecimal digits, random for each change. Sent again with the same key, it is made once
        """
        changes = {"name": name, "description": description, "approvals": approvals}
        told: dict[str, Any] = {field: value for field, value in changes.items() if value is not None}
        told |= {"requirements": requirements} | ({} if days is None else {"days": days or None})
        return use_answer(service.change_use(person_of(request), use, told, version, key or None))

    return [list_uses, read_use, approved_setting, check_use, make_use, change_use]
