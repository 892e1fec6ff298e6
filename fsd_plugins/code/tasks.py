"""The tasks of programs, in the order in which they are offered."""

from __future__ import annotations

from fsd_core.tasks.base import Task
from fsd_plugins.code.livecodebench import live_code_bench
from fsd_plugins.code.programs import HumanEval, Mbpp

TASKS: tuple[Task, ...] = (HumanEval(), Mbpp(), *live_code_bench())
