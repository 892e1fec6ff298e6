"""Replay: what other rules would have accepted of the drafts of one strict run, without a model (docs/replay.md)."""
