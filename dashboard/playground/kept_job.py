"""Browser scripts that remember the last job of the Playground.

The browser chooses the job's id, so that a page reloaded before the server's answer still finds the job. It remembers
the last job per tab first, because another tab may have started another one since. A refused job is forgotten, and the
one before it is the last again.
"""

from __future__ import annotations

from dashboard.ui.templates import script

ASK = script("playground/ask.js")
REMEMBER = script("playground/remember.js")
RESUMED = script("playground/resumed.js")
RECALL = script("playground/recall.js")
