"""Every route of MLflow's server as JSON: ``python -m tests.tools.attack.mlflow_routes``."""

from __future__ import annotations

import json
import warnings

from tests.tools.attack.routes import routes

if __name__ == "__main__":
    warnings.simplefilter("ignore")  # what MLflow's own imports warn of
    from mlflow.server import app as flask_app
    from mlflow.server.fastapi_app import app

    every = set(routes(app.routes))
    every |= {(method, rule.rule) for rule in flask_app.url_map.iter_rules() for method in rule.methods or ()}
    print(json.dumps(sorted(every)))
