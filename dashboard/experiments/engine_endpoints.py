"""API endpoints for running engines, with the actions and roles of the page: named, asked, listed, forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gradio as gr

from dashboard.experiments.experiment_answers import EndpointAnswer
from dashboard.ui.endpoint import Endpoint, does
from dashboard.ui.signed_in import person_of
from fsd_core.roles import require
from fsd_core.worker.endpoint_names import ADD_ROLE
from fsd_core.worker.endpoint_names import add_endpoint as add
from fsd_core.worker.endpoint_names import check_endpoint as check_engine

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.database.repository import Repository


def engine_endpoints(repository: Repository, settings: Settings) -> list[Endpoint]:
    def list_endpoints() -> list[EndpointAnswer]:
        """Return the running engines that somebody has named, which start_experiment measures beside its settings."""
        return [
            {
                "endpoint": engine.name, "kind": engine.served.engine, "url": engine.served.url,
                "model": engine.served.model, "key_variable": engine.key_variable, "hardware": engine.hardware,
                "added_by": engine.added_by,
            }
            for engine in repository.engines()
        ]  # fmt: skip

    @does(repeatable=True, elsewhere=True)
    def add_endpoint(
        name: str,
        url: str,
        model: str,
        kind: str,
        request: gr.Request,
        key_variable: str = "",
        hardware: str = "",
        check: bool = True,
    ) -> str:
        """Name a running engine, which is asked first. Needs the role admin.

        A name that exists refers to the new engine, and what was measured with the earlier one stays. Where people sign
        in, the address is public and begins with https://, unless the operator names the host.

        Args:
            name: 1 to 40 small letters, digits, dots and hyphens, such as vllm-draft5
            url: base address, such as https://engine.example.org/v1
            model: as the engine calls it
            kind: vllm, sglang, llama.cpp, transformers-serve or openai
            key_variable: environment variable that holds its key, which begins with ENGINE_KEY. Empty: none
            hardware: what it computes on, such as one H100, which runs show
            check: whether to ask the engine if it is there and has the model
        """
        values = {
            "endpoint": name, "url": url, "model": model, "engine": kind, "key_variable": key_variable,
            "hardware": hardware,
        }  # fmt: skip
        return add(repository, settings, person_of(request), values, check=check)

    @does(writes=False, elsewhere=True, repeatable=True)
    def check_endpoint(endpoint: str, request: gr.Request) -> str:
        """Ask a running engine whether it is there and has the model. Needs the role author.

        Args:
            endpoint: its name, as in list_endpoints
        """
        require(person_of(request), "author", "Checking an endpoint")
        return check_engine(repository, settings, endpoint)

    @does(destroys=True)
    def remove_endpoint(endpoint: str, request: gr.Request) -> str:
        """Forget a running engine. What was measured stays. Needs the role admin.

        Args:
            endpoint: its name, as in list_endpoints
        """
        require(person_of(request), ADD_ROLE, "Forgetting an endpoint")
        repository.remove_engine(endpoint)
        return f"{endpoint} is forgotten. Its runs stay."

    return [list_endpoints, add_endpoint, check_endpoint, remove_endpoint]
