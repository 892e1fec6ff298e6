"""Generation, scoring, timing and summary of the prompts of runs."""
