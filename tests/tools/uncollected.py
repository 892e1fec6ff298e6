"""Loaded first by a process that loads modules and is forked: until then nothing is looked through for rubbish.

Each fork collects its own again (``forked._run``).
"""

from __future__ import annotations

import gc

gc.disable()
