"""The search for the fastest setting that keeps a promise."""
