"""An engine that others wrote, transformers' own server, in a browser: added, measured beside our own loop, compared.

The server and our loop have the same target, so their greedy answers are the same, and the pages must say so.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page

from fsd_core.config import RunConfig, SettingConfig
from fsd_core.config.options import method
from tests.tools.engine_in_browser import measured_beside
from tests.tools.site import Site
from tests.tools.transformers_server import serving_bundled_target

pytestmark = pytest.mark.ui


@pytest.mark.wide("test_served_runs.py")
def test_an_engine_of_others_answers_as_our_loop_does_and_compare_says_so(
    page: Page, site: Site, tmp_path: Path
) -> None:
    alone = method({"acceptance": "autoregressive", "max_new_tokens": 48})
    ours = RunConfig(setting=SettingConfig(pair="bundled", decoding=alone), task="arithmetic", limit=4)
    with serving_bundled_target(tmp_path) as (address, model):
        measured_beside(page, site, ours, "transformers serve", address, model)
