"""What ``import fsd_core`` offers to a notebook or a program; ``fsd_core/__init__.py`` names it, docs/library.md
shows it."""
