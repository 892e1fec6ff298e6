"""API for programs: the setting that is approved for a use. Responses can be cached and revalidated by their ETag.

A failure is answered with a problem document, never with a sentence in place of the data.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Header, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from dashboard.server.problem_document import problem_document
from fsd_core.auth.middleware.origin import READING_METHODS
from fsd_core.errors import FsdError
from fsd_core.review.approvals import approval_of, check_setting
from fsd_core.review.delivery import deliver, described
from fsd_core.review.review_service import ReviewService

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository

API_PATHS = r"/api/v1/uses(/[a-z0-9-]{1,64}/(approved|check))?"


def api_routes(repository: Repository) -> APIRouter:
    """Return the routes ``/api/v1/uses``, and ``approved`` and ``check`` below each use."""
    router, service = APIRouter(prefix="/api/v1"), ReviewService(repository)

    @router.api_route("/uses", methods=[*READING_METHODS])
    def uses() -> Response:
        """Return every use with the settings that its aliases name."""
        try:
            records = [
                {
                    "use": use.id,
                    "name": use.name,
                    "approved": use.named("approved"),
                    "candidate": use.named("candidate"),
                }
                for use in service.uses()
            ]
        except FsdError as error:
            return problem_document(error)
        return JSONResponse({"uses": records})

    @router.api_route("/uses/{use_id}/approved", methods=[*READING_METHODS])
    def approved(use_id: str, form: str = "", if_none_match: str = Header("")) -> Response:
        """Return the approved setting as JSON with its approval, or in a form of ``delivery.FORMS``."""
        try:
            use = service.use(use_id)
            setting, weights = repository.setting(service.approved(use)).config, service.approved_weights(use)
            approvals = (logged for logged in use.log if logged.event in use.in_force[-1:])
            moved = next(approvals, use.aliases["approved"].moved)  # a roll-back puts one in force again
            approval: dict[str, Any] = {"by": moved.who, "at": moved.at.isoformat(), "sequence": moved.sequence}
            state = approval_of(repository, use)
            approval |= state.as_json() if state else {}
            body = {"use": use.id, "approved": approval} | described(setting, weights) | {"weights": weights}
            answer = PlainTextResponse(deliver(setting, form, weights)) if form else JSONResponse(body)
            tag = f'"{hashlib.sha256(bytes(answer.body) + repr(state).encode()).hexdigest()[:16]}"'
            answer.headers.update({"ETag": tag, "Cache-Control": "no-cache"})
            if state is not None:  # for the forms that are no JSON
                marks = {"FSD-Expired": str(state.expired).lower(), "FSD-Stale": str(state.stale).lower()}
                answer.headers.update(marks | {"FSD-Evidence": state.evidence})
            if {tag, "*"} & {part.strip().removeprefix("W/") for part in if_none_match.split(",")}:
                return Response(status_code=304, headers={"ETag": tag, "Cache-Control": "no-cache"})
            return answer
        except FsdError as error:
            return problem_document(error)

    @router.api_route("/uses/{use_id}/check", methods=[*READING_METHODS])
    def check(use_id: str, setting: str = "") -> Response:
        """Return whether a setting, by default the approved one, may serve a use now, by requirement."""
        try:
            return JSONResponse(check_setting(repository, service.use(use_id), setting).as_json())
        except FsdError as error:
            return problem_document(error)

    return router
