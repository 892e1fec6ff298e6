"""Replay: what other rules would have kept of the drafts of one strict run, without a model (docs/replay.md)."""
