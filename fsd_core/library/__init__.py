"""The API that ``import fsd_core`` offers to a notebook or a program.

``fsd_core/__init__.py`` exports it, docs/library.md documents it.
"""
