"""Programs drive experiments, calibrations and a proposal: gradio_client and an MCP client, against the real server.

One experiment is done by a real worker; elsewhere the test plays it, with times that no pause of a machine changes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
import httpx
import pytest
from gradio_client import Client
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from dashboard.ui.api_call import INSTRUCTIONS
from dashboard.web import all_actions
from fsd_core import accounts
from fsd_core.calibration.planning import CalibrationStep
from fsd_core.calibration.summary import calibration_status, verdict
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import LOCAL
from fsd_core.storage.tables import JobRow
from tests.tools.forked import ForkedCommand
from tests.tools.plausible import finish
from tests.tools.raw_http import send_request
from tests.tools.site import Site, serving
from tests.tools.sizes import PATIENCE
from tests.tools.worker_process import ROOT, until

pytestmark = pytest.mark.ui

PATIENT = {"timeout": PATIENCE}
SETTINGS = [
    {"acceptance": "autoregressive"},
    {"acceptance": "speculative"},
    {"acceptance": "fsd-reducible", "threshold": [0.05, 0.3], "draft_length": [5]},
]
TOOLS = {action.name for action in all_actions()}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A lab in which people sign in."""
    with serving(tmp_path_factory.mktemp("lab"), FSD_ACCESS="password") as site:
        yield site


@contextmanager
def working(site: Site) -> Iterator[None]:
    """While a worker serves the lab."""
    own = {"FSD_HOME": str(site.home), "FSD_MLFLOW_URI": "http://127.0.0.1:5999", "FSD_THREADS": "1"}
    worker = ForkedCommand(("worker",), {**os.environ, **own}, site.home / "worker.out")
    try:
        yield
    finally:
        worker.kill()
        worker.wait()


def claim(site: Site, experiment: str) -> JobRow:
    """As a worker does."""
    job = site.repository.claim(("experiment",), lease_seconds=PATIENCE)
    assert job is not None
    assert job.id == experiment
    return job


def end(site: Site, job: JobRow) -> None:
    site.repository.finish_job(job.id, str(job.claim_token), "finished")


def key(site: Site, role: str) -> dict[str, str]:
    """The header of a new token of that role."""
    secret = accounts.add_token(site.repository, f"{role}-{os.urandom(4).hex()}", role)
    return {"Authorization": f"Bearer {secret}"}


def client(site: Site, role: str) -> Client:
    """Without certificates, which it would read for each request and an address of this machine has not."""
    return Client(
        site.url, headers=key(site, role), httpx_kwargs=PATIENT, verbose=False, analytics_enabled=False,
        ssl_verify=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def author(lab: Site) -> Client:
    return client(lab, "author")


@pytest.fixture(scope="module")
def viewer(lab: Site) -> Client:
    return client(lab, "viewer")


@asynccontextmanager
async def session(site: Site, headers: dict[str, str]):
    address = f"{site.url}/gradio_api/mcp/"
    async with (
        create_mcp_http_client(headers, httpx.Timeout(PATIENCE)) as http,
        streamable_http_client(address, http_client=http) as (read, write, _),
        ClientSession(read, write) as own,
    ):
        assert (await own.initialize()).instructions == INSTRUCTIONS
        yield own


def apart(driven: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs it in a thread of its own: the browser of other tests has a loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(anyio.run, driven).result()


async def asked(own: ClientSession, tool: str, **arguments: Any) -> Any:
    """A tool's answer. Raises ``AssertionError`` with the sentence if there is none."""
    answer = await own.call_tool(tool, arguments)
    text = answer.content[0].text
    assert not answer.isError, text
    return json.loads(text)


def test_gradio_client_drives_an_experiment_to_a_verdict(lab: Site, author: Client, viewer: Client) -> None:
    choices = author.predict(api_name="/list_choices")
    assert choices["pairs"][0]["pair"] == "bundled"
    assert {option["option"] for option in choices["options"]} >= {"threshold", "draft_length", "temperature"}

    begun = author.predict(SETTINGS, limit=3, name="By a program", api_name="/start_experiment")
    assert [run["options"]["acceptance"] for run in begun["runs"]] == [
        "autoregressive", "speculative", "fsd-reducible", "fsd-reducible",
    ]  # fmt: skip
    assert begun["task"] == "arithmetic"
    id = begun["experiment"]
    assert author.predict(id, api_name="/read_experiment")["status"] == "queued"
    with working(lab):
        until(lambda: lab.repository.job(id).status == "finished", "the experiment's end", PATIENCE)
    done = author.predict(id, api_name="/read_experiment")
    accuracy = done["runs"][0]["metrics"]["accuracy"]
    assert accuracy["low"] < accuracy["value"] <= 100
    assert accuracy["unit"] == "%"
    compared = author.predict(experiment=id, api_name="/compare_runs")
    assert compared["baseline"] == done["runs"][0]["run"]
    assert compared["rows"][1]["tokens_per_second_ratio"] > 0
    listed = author.predict(experiment=id, api_name="/list_runs")
    assert {run["run"] for run in listed} == {run["run"] for run in done["runs"]}

    query = "?sort=accuracy&task=arithmetic"
    view, again = (author.predict("runs", "Most accurate", query, api_name="/save_view") for _ in range(2))
    assert (again["view"], view["query"]) == (view["view"], "sort=accuracy&task=arithmetic")
    assert view["address"].endswith("/runs?sort=accuracy&task=arithmetic")
    named = author.predict(view["view"], "Best first", api_name="/rename_view")
    assert viewer.predict("runs", api_name="/list_views") == viewer.predict(api_name="/list_views") == [named]
    with pytest.raises(Exception, match="Saving a view needs the role author"):
        viewer.predict("runs", "Mine", query, api_name="/save_view")

    said = author.predict("experiment", id, note="Enough", tags=["nightly"], archived=True, api_name="/annotate")
    assert (said["name"], said["note"], said["tags"]) == ("By a program", "Enough", ["nightly"])
    assert author.predict(search="nightly", api_name="/list_runs") == []
    assert len(author.predict(search="nightly", archived=True, api_name="/list_runs")) == 4
    with pytest.raises(Exception, match="kind is 'cat': expected 'run' or 'experiment'"):
        author.predict("cat", id, api_name="/annotate")

    ReviewService(lab.repository).describe(LOCAL, "Sums in a browser")
    baseline, _, setting, _ = (run["run"] for run in done["runs"])
    request = "sums-in-a-browser", [setting], [baseline], "It is fast."
    proposed, again = (author.predict(*request, key="5" * 32, api_name="/propose") for _ in range(2))
    assert again["proposal"] == proposed["proposal"]
    assert proposed["evidence"][0]["findings"][0]["outcome"] in ("met", "not met", "undecided")
    for _ in range(2):
        said = author.predict(proposed["proposal"], "Three prompts are few.", key="6" * 32, api_name="/comment")
    assert [one["words"] for one in said["comments"]] == ["Three prompts are few."]
    verdict = viewer.predict(proposed["proposal"], api_name="/read_verdict")
    assert verdict["open_requirements"] == ["margin"]
    use = author.predict("sums-in-a-browser", api_name="/read_use")
    assert (use["candidate"], use["approved"]) == (done["runs"][2]["setting"], None)


def test_a_tool_of_the_mcp_server_does_the_same(lab: Site) -> None:
    async def driven() -> None:
        async with session(lab, key(lab, "author")) as own:
            tools = {tool.name: tool for tool in (await own.list_tools()).tools}
            assert set(tools) == TOOLS
            assert all(tool.description and tool.outputSchema for tool in tools.values())
            marks = {name: tool.annotations for name, tool in tools.items()}
            assert (marks["list_runs"].readOnlyHint, marks["delete"].destructiveHint) == (True, True)
            assert (marks["propose"].readOnlyHint, marks["search_models"].openWorldHint) == (False, True)
            start = tools["start_experiment"].inputSchema["properties"]
            assert set(start) == {"settings", "pair", "task", "limit", "seeds", "name", "batch", "key",
                                  "endpoints", "batches", "endpoint_options", "rates"}  # fmt: skip
            assert start["limit"]["default"] == 50
            assert all(field.get("description") for field in start.values())
            begun = await asked(own, "start_experiment", settings=SETTINGS[:1], limit=2, name="By a tool")
            job = claim(lab, begun["experiment"])
            for run in lab.repository.experiment(job.id).runs:
                finish(lab.repository, run)
            end(lab, job)
            found = await asked(own, "read_experiment", experiment=begun["experiment"])
            assert found["status"] == "finished"
            assert found["runs"][0]["metrics"]["accuracy"]["value"] >= 0
            refused = await own.call_tool("start_experiment", {"settings": [{"acceptance": "nonsense"}]})
            assert refused.isError
            assert refused.content[0].text.startswith("acceptance 'nonsense' is not known: expected one of")

    apart(driven)


SMALL = {"goal": "speed", "limit": 32, "choosing": 8, "minutes": 60}


def test_gradio_client_drives_a_calibration_to_its_verdict(lab: Site, author: Client) -> None:
    settings = [{"acceptance": "fsd-reducible", "threshold": 0.3, "draft_length": 5}]
    begun = author.predict(settings, **SMALL, name="By a program", api_name="/start_calibration")
    assert (begun["standing"], begun["candidates"]) == ("choosing", 3)
    assert begun["promise"] == "the fastest, whatever it costs"

    repository, job = lab.repository, claim(lab, begun["experiment"])
    config = repository.experiment(job.id).config
    assert isinstance(config, CalibrationConfig)
    while isinstance(
        step := calibration_status(repository, config, repository.experiment(job.id).runs), CalibrationStep
    ):
        ids = repository.extend_experiment(job.id, config.round_runs(step.decodings, step.start, step.end))
        for run in repository.runs(ids, limit=None):
            finish(repository, run)
    end(lab, job)
    found = author.predict(job.id, api_name="/read_calibration")
    assert found["standing"] == "ended"
    id = found["experiment"]
    assert found["chosen"]["setting"]["decoding"]["acceptance"]["kind"] == "fsd-reducible"
    assert found["verdict"] == verdict(config, step)
    assert found["verdict"].startswith("Use FSD reducible")
    assert found["chosen"]["over_target"] > 0
    assert found["minutes_spent"] > 0
    done = author.predict(id, api_name="/read_experiment")
    assert found["chosen"]["setting_id"] in {run["setting"] for run in done["runs"]}

    ReviewService(lab.repository).describe(LOCAL, "Found by a program")
    proposed = author.predict("found-by-a-program", **found["evidence"], api_name="/propose")
    (evidence,) = proposed["evidence"]
    assert (evidence["calibration"], evidence["prompts"]) == (id, found["chosen"]["prompts"])
    assert (evidence["runs"], evidence["baselines"]) == tuple(found["evidence"].values())
    assert proposed["setting"] == found["chosen"]["setting_id"]
    chose = next(run["run"] for run in done["runs"] if run["setting"] == proposed["setting"])
    with pytest.raises(Exception, match="helped to choose the setting in its calibration"):
        author.predict("found-by-a-program", [chose], evidence["baselines"], api_name="/propose")
    with pytest.raises(Exception, match=r"takes at least [0-9]+ prompts"):
        author.predict(settings, limit=100, api_name="/start_calibration")
    with pytest.raises(Exception, match="goal is 'fun': expected 'accuracy', 'acceptance' or 'speed'"):
        author.predict(settings, goal="fun", api_name="/start_calibration")


def test_a_tool_calibrates_too(lab: Site) -> None:
    async def driven() -> None:
        async with session(lab, key(lab, "author")) as own:
            tools = {tool.name: tool for tool in (await own.list_tools()).tools}
            start = tools["start_calibration"].inputSchema["properties"]
            assert set(start) == {
                "settings", "pair", "task", "goal", "margin", "accepted", "minutes", "limit", "choosing", "seed",
                "name", "key", "endpoint",
            }  # fmt: skip
            assert all(field.get("description") for field in start.values())
            begun = await asked(
                own, "start_calibration", settings=[{"acceptance": "ensemble", "draft_length": 5}], **SMALL
            )
            told = await asked(own, "read_calibration", experiment=begun["experiment"])
            assert told["standing"] in ("proposing", "choosing", "trying")
            assert told["turn"]["settings"]
            await asked(own, "cancel_experiment", experiment=begun["experiment"])
            refused = await own.call_tool("start_calibration", {"goal": "acceptance", "accepted": 90})
            assert refused.isError
            told = "accepted is 90.0: expected less than 1, for it is a share, such as 0.9 for 90 %."
            assert refused.content[0].text == told

    apart(driven)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"settings": []}, "No setting is given"),
        ({"settings": "fast"}, "settings is 'fast': expected"),
        ({"settings": [{"threshold": 3}], "limit": 0}, "expected a limit from 1 to 600"),
        ({"settings": [{"threshold": -1}]}, "-1"),
        ({"settings": [{"acceptance": "speculative"}], "pair": "nobody"}, "nobody"),
        ({"settings": [{"acceptance": "speculative"}], "task": "../etc"}, "../etc"),
        ({"settings": [{"acceptance": "speculative", "speed": 3}]}, "There is no option 'speed'"),
        ({"settings": [{"acceptance": ["speculative"], "draft_length": list(range(1, 300))}]}, "draft_length"),
        ({"settings": [{"acceptance": "autoregressive"}], "seeds": list(range(300))}, "300 runs"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence_and_nothing_begins(
    lab: Site, author: Client, arguments: dict[str, Any], told: str
) -> None:
    began = len(lab.repository.experiments(1000))
    with pytest.raises(Exception, match=r"\w") as refused:
        author.predict(**arguments, api_name="/start_experiment")
    assert told in str(refused.value)
    assert str(refused.value).rstrip("\"'").endswith(".")
    assert len(lab.repository.experiments(1000)) == began


def test_roles_hold_at_these_doors_too(lab: Site, viewer: Client) -> None:
    began = len(lab.repository.experiments(1000))
    writing = {
        "start_experiment": {"settings": SETTINGS},
        "start_calibration": {"goal": "speed"},
        "continue_calibration": {"experiment": "x", "minutes": 1},
        "time_finalists": {"experiment": "x"},
        "cancel_experiment": {"experiment": "0" * 32},
        "resume_experiment": {"experiment": "0" * 32},
        "annotate": {"kind": "run", "id": "0" * 32, "note": "mine"},
        "propose": {"use": "sums", "runs": ["0" * 32], "baselines": ["1" * 32]},
        "add_pair": {"name": "mine", "target": "a/b"},
        "fetch_pair": {"pair": "qwen2.5-7b"},
    }
    for name, arguments in writing.items():
        with pytest.raises(Exception, match="author"):
            viewer.predict(**arguments, api_name=f"/{name}")

    async def refused() -> None:
        async with session(lab, key(lab, "viewer")) as own:
            for name, arguments in writing.items():
                answer = await own.call_tool(name, arguments)
                assert answer.isError, name
                assert "author" in answer.content[0].text

    apart(refused)
    assert len(lab.repository.experiments(1000)) == began


def test_nobody_without_a_token_finds_a_door(lab: Site) -> None:
    call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    kind = {"Content_Type": "application/json", "Accept": "application/json, text/event-stream"}
    for token in ({}, {"Authorization": "Bearer fsd_nothing"}):
        assert send_request(lab.url, "POST", "/gradio_api/mcp/", call, **kind, **token)[0] == 401
        assert send_request(lab.url, "GET", "/gradio_api/info", **token)[0] == 401
    foreign = key(lab, "author") | {"Origin": "https://evil.example"}
    assert send_request(lab.url, "POST", "/gradio_api/mcp/", call, **kind, **foreign)[0] == 403
    with pytest.raises(Exception, match="credentials were not provided"):
        Client(lab.url, httpx_kwargs=PATIENT, verbose=False)


def test_the_interface_tells_of_no_event_of_the_pages(lab: Site) -> None:
    _, _, text = send_request(lab.url, "GET", "/gradio_api/info", **key(lab, "viewer"))
    assert {name.removeprefix("/") for name in json.loads(text)["named_endpoints"]} == TOOLS


def test_the_configuration_names_no_folder_of_the_machine(lab: Site) -> None:
    _, _, text = send_request(lab.url, "GET", "/config", **key(lab, "viewer"))
    assert str(lab.home).encode() not in text


def test_the_documentation_names_every_endpoint() -> None:
    told = (ROOT / "docs/api.md").read_text()
    assert [name for name in sorted(TOOLS) if f"`{name}`" not in told] == []
