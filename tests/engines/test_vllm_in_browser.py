"""A real vLLM server in a browser: added, measured beside our own loop, compared: ``make test-engines``."""

from __future__ import annotations

import httpx
from playwright.sync_api import Page

from fsd_core.config import RunConfig, SettingConfig
from fsd_core.config.options import method
from fsd_core.rules import Served
from tests.engines.engine_record import EngineRecord
from tests.tools.engine_in_browser import measured_beside
from tests.tools.site import Site

PROMPTS = 20


def test_vllm_with_a_draft_answers_as_our_target_does_and_compare_says_so(
    page: Page, site: Site, server: Served, record: EngineRecord
) -> None:
    alone = method({"acceptance": "autoregressive", "max_new_tokens": 64})
    ours = RunConfig(setting=SettingConfig(pair="bundled", decoding=alone), task="arithmetic", limit=PROMPTS)
    off = {"method": "fsd_lab_rule", "args": [{"kind": "off"}]}  # another test may have left a rule in force
    httpx.post(f"{server.url}/collective_rpc", json=off, trust_env=False, timeout=60).raise_for_status()
    served = measured_beside(page, site, ours, "vLLM", f"{server.url}/v1", server.model)
    measured = served.metrics or {}
    assert measured["acceptance_rate"] > 0
    record.add(
        "Added on Experiments and measured beside our target alone, greedily, the plug-in off",
        {
            "engine": served.label, "prompts": f"{PROMPTS}", "texts that equal our target's": f"{PROMPTS}",
            "accepted / drafted": f"{measured['acceptance_rate']:.2f}",
        },
    )  # fmt: skip
