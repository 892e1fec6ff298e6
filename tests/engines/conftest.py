"""Engines of vLLM's CPU build, in the environment that ``FSD_ENGINES_PYTHON`` names (``make test-engines``)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engines.served_pair import write_pair
from fsd_core.engines.client import EngineClient, EngineLoad
from fsd_core.rules import Served
from tests.engines.engine_record import EngineRecord
from tests.tools.worker_process import free_port
from tests.ui.conftest import browser, page, profile, site

__all__ = ["browser", "page", "profile", "site"]

_MINUTES_OF_WAITS = (1.0,) * 1200
DRIVER = Path(__file__).with_name("vllm_driver.py")
PAGE = Path(__file__).parents[2] / "docs/engines.md"


class Engine:
    """A driven engine: see ``vllm_driver.py``."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process, self._is_ready = process, False

    def answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "The engine ended: its last words are above."
        return json.loads(line)

    def ask(self, **request: Any) -> Any:
        """Return the answer to a request; the first waits for the start."""
        if not self._is_ready:
            assert self.answer() == {"ready": True}
            self._is_ready = True
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def rule(self, *arguments: Any) -> Any:
        """Put a rule in force."""
        told = self.ask(call="fsd_lab_rule", args=arguments)
        assert "error" not in told, told
        return told

    def write(self, prompts: list[list[int]], apart: bool = False, **sampling: Any) -> list[dict[str, Any]]:
        told = self.ask(generate=prompts, sampling={"temperature": 0.0, "max_tokens": 64} | sampling, apart=apart)
        assert isinstance(told, list), told
        return told


def environment(**more: str) -> dict[str, str]:
    """One thread, no network, everything in one process."""
    python = Path(os.environ["FSD_ENGINES_PYTHON"])
    openmp = python.parent.parent / "lib/libiomp5.so"
    return os.environ | {
        "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "KMP_BLOCKTIME": "0",
        **({"LD_PRELOAD": str(openmp)} if openmp.exists() else {}), **more,
    }  # fmt: skip


def engines_python() -> str:
    if "FSD_ENGINES_PYTHON" not in os.environ:
        pytest.fail("No environment with vLLM is named: run these tests by 'make test-engines'.")
    return str(Path(os.environ["FSD_ENGINES_PYTHON"]).absolute())


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled pair in folders that vLLM reads."""
    folder = tmp_path_factory.mktemp("served")
    write_pair("bundled", folder)
    return folder


@pytest.fixture(scope="session")
def record(request: pytest.FixtureRequest) -> Iterator[EngineRecord]:
    """What passed; written into the page if ``FSD_ENGINES_RECORD`` is set and no test failed."""
    results = EngineRecord()
    yield results
    if os.environ.get("FSD_ENGINES_RECORD") and not request.session.testsfailed:
        results.write(PAGE)


Start = Callable[..., Any]


@pytest.fixture(scope="session")
def start(served: Path) -> Start:
    """Starts an engine on the bundled target, with a ``speculative`` configuration, for a ``with`` statement.

    One request at a time: of several, vLLM's CPU build with a draft model wrote other texts, without the plug-in too.
    """

    @contextmanager
    def started(speculative: dict[str, Any] | None, *, plugin: bool = True, **more: Any) -> Iterator[Engine]:
        config = {
            "model": str(served / "target"), "dtype": "float32", "max_model_len": 512, "enforce_eager": True,
            "max_num_seqs": 1, "seed": 0, "enable_prefix_caching": False, "speculative_config": speculative,
        } | more  # fmt: skip
        if plugin:
            config["worker_extension_cls"] = "fsd_lab_vllm.worker.RuleExtension"
        process = subprocess.Popen(
            [engines_python(), str(DRIVER), json.dumps(config)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env=environment(VLLM_PLUGINS="fsd_lab" if plugin else "none"),
        )  # fmt: skip
        try:
            yield Engine(process)
        finally:
            process.kill()
            process.communicate()  # closes its pipes

    return started


DRAFTED = 6
"""tokens that vLLM drafts: one more than our loop's with a rule that judges the bonus"""


@pytest.fixture(scope="session")
def with_draft(start: Start, served: Path) -> Iterator[Engine]:
    """An engine with the plug-in and the bundled draft, whose probabilities are kept."""
    with start(draft_config(served)) as engine:
        yield engine


def draft_config(served: Path) -> dict[str, Any]:
    return {
        "method": "draft_model", "model": str(served / "draft"), "num_speculative_tokens": DRAFTED,
        "draft_sample_method": "probabilistic",
    }  # fmt: skip


@pytest.fixture(scope="session")
def server(served: Path) -> Iterator[Served]:
    """A server that listens to this machine alone."""
    port = free_port(8700)
    serve = ["--model", str(served / "target"), "--served-model-name", "target", "--host", "127.0.0.1", "--port",
             str(port), "--dtype", "float32", "--max-model-len", "512", "--enforce-eager", "--max-num-seqs", "1",
             "--worker-extension-cls", "fsd_lab_vllm.worker.RuleExtension", "--speculative-config",
             json.dumps(draft_config(served))]  # fmt: skip
    more = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_PLUGINS": "fsd_lab", "VLLM_USE_V2_MODEL_RUNNER": "0"}
    process = subprocess.Popen(
        [engines_python(), "-m", "vllm.entrypoints.openai.api_server", *serve],
        env=environment(**more),
        start_new_session=True,
    )
    endpoint = Served(engine="vllm", endpoint="vllm", url=f"http://127.0.0.1:{port}", model="target")
    load = EngineLoad(lambda: EngineClient(endpoint, waits=_MINUTES_OF_WAITS))
    try:
        load.call(EngineClient.check)
        yield endpoint
    finally:
        load.close()
        os.killpg(process.pid, 15)
        process.wait()
