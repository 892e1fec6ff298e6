"""Prompts of runs written, scored, timed and counted."""
