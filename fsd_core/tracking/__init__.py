"""Mirroring to MLflow, and the provenance of results."""
