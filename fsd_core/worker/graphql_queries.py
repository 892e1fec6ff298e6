"""GraphQL of MLflow's pages: documents that ask, and none that changes something."""

from __future__ import annotations

import json

from graphql import GraphQLError, OperationDefinitionNode, OperationType, parse
from starlette.types import ASGIApp, Receive, Scope, Send

from fsd_core.auth.middleware.bodies import replayed
from fsd_core.auth.middleware.refusal import refuse
from fsd_core.worker.mlflow_service import GRAPHQL

_LONGEST_DOCUMENT, _MOST_TOKENS = 100_000, 5_000
"""characters; names, values and signs in them"""
NOT_A_QUERY = "MLflow's pages are for reading: expected one GraphQL document that holds queries alone."


class QueriesAlone:
    """Refuses GraphQL that mutates or subscribes, and what cannot be read as JSON with a document."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != GRAPHQL:
            return await self.app(scope, receive, send)
        body = (await receive()).get("body", b"")  # whole, see BoundedBody
        receive = replayed(body, receive)
        if not asks_only(body):
            return await refuse(receive, send, 403, NOT_A_QUERY)
        return await self.app(scope, receive, send)


def asks_only(body: bytes) -> bool:
    """Whether a request's body holds a document whose operations are queries."""
    try:
        document = json.loads(body)["query"]
        if not isinstance(document, str) or len(document) > _LONGEST_DOCUMENT:
            return False
        operations = [
            part
            for part in parse(document, no_location=True, max_tokens=_MOST_TOKENS).definitions
            if isinstance(part, OperationDefinitionNode)
        ]
    except (ValueError, TypeError, KeyError, RecursionError, GraphQLError):
        return False
    return bool(operations) and all(part.operation == OperationType.QUERY for part in operations)
