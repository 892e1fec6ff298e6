"""Every route of MLflow's server."""

from __future__ import annotations

import warnings

from tests.tools.routes import routes


def routes_of_mlflow() -> set[tuple[str, str]]:
    """Methods and paths of both of its applications."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what MLflow's own imports warn of
        from mlflow.server import app as flask_app
        from mlflow.server.fastapi_app import app

    rules = {(method, rule.rule) for rule in flask_app.url_map.iter_rules() for method in rule.methods or ()}
    return rules | set(routes(app.routes))
