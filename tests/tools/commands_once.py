"""The tree of our commands, built once for a process and its forks.

Typer builds all of it, from the signature of each command, whenever one is called: longer than most of them take.
"""

from __future__ import annotations

from functools import cache

import typer.main

from fsd_core.cli.commands import application

typer.main.get_command = cache(typer.main.get_command)
typer.main.get_command(application())
