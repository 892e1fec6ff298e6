"""The command line: ``python -m fsd_core``."""
