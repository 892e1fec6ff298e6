"""What a browser keeps of the job that it began last: scripts of the Playground's events.

The browser names the job, so that a page that is loaded anew before the server has answered finds it all the same. It
keeps which it began last: the tab first, since another tab may have begun another one since. One that was refused is
forgotten, and the one before it is the last again.
"""

from __future__ import annotations

from dashboard.ui.templates import script

ASK = script("playground/ask.js")
REMEMBER = script("playground/remember.js")
RESUMED = script("playground/resumed.js")
RECALL = script("playground/recall.js")
