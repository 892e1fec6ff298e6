"""Tasks whose answers are programs, scored by running them in a sandbox."""
