"""MLflow, and where a result comes from."""
