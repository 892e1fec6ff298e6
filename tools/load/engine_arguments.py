"""Whether the parsers of serving engines take the arguments that settings are delivered as.

    python -m tools.load.engine_arguments vllm
    python -m tools.load.engine_arguments sglang

Runs where the engine's package is installed beside this project; no device is needed, and no model is fetched. It shows
that every name, choice and type is the engine's; what the engine then does with them, only an engine can show.
"""

from __future__ import annotations

import dataclasses
import shlex
import sys
from importlib.metadata import version
from typing import Any, get_type_hints

from fsd_core.config import SettingConfig
from fsd_core.config.options import method
from fsd_core.errors import NoEquivalent
from fsd_core.review.delivery import deliver

MODELS = "hub:a/target@v1+a/draft@v2+a/head@v3"
METHODS: list[dict[str, Any]] = [
    {"acceptance": "autoregressive", "temperature": 0.7, "min_p": 0.1},
    *(
        {"acceptance": rule, "drafter": drafter, "temperature": temperature, "top_k": 20, "top_p": 0.9}
        for rule in ("speculative", "block", "threshold-accept", "fsd-reducible", "typical")
        for drafter in ("draft-model", "eagle")
        for temperature in (0.0, 0.7)
    ),
    {"acceptance": "speculative", "drafter": "prompt-lookup"},
    {"acceptance": "speculative", "drafter": "eagle", "topology": "dynamic-tree"},
]


def _vllm(arguments: list[str]) -> None:
    import vllm.platforms as platforms  # pyright: ignore[reportMissingImports]
    from vllm.platforms.cpu import CpuPlatform  # pyright: ignore[reportMissingImports]

    platforms._current_platform = CpuPlatform()  # its parser asks for the device that it would run on
    from pydantic import TypeAdapter
    from vllm.config import SpeculativeConfig  # pyright: ignore[reportMissingImports]
    from vllm.entrypoints.common.cli_args import make_arg_parser  # pyright: ignore[reportMissingImports]
    from vllm.utils.argparse_utils import FlexibleArgumentParser  # pyright: ignore[reportMissingImports]

    assert arguments[:2] == ["vllm", "serve"], arguments
    told = make_arg_parser(FlexibleArgumentParser()).parse_args(["--model", *arguments[2:]])
    kinds, names = get_type_hints(SpeculativeConfig), {field.name for field in dataclasses.fields(SpeculativeConfig)}
    for name, value in (told.speculative_config or {}).items():
        assert name in names, name
        TypeAdapter(kinds[name]).validate_python(value, strict=True)


def _sglang(arguments: list[str]) -> None:
    from sglang.srt.server_args import prepare_server_args  # pyright: ignore[reportMissingImports]

    assert arguments[:3] == ["python", "-m", "sglang.launch_server"]
    prepare_server_args(arguments[3:])


PARSERS = {"vllm": _vllm, "sglang": _sglang}


def main(engine: str) -> None:
    """Parses what ``engine`` gets of each method; the parser itself says what it does not take."""
    taken = 0
    for options in METHODS:
        try:
            told = deliver(SettingConfig(pair=MODELS, decoding=method(options)), engine)
        except NoEquivalent as reason:
            print(reason)
            continue
        command = "".join(line for line in told.splitlines(keepends=True) if not line.startswith("#"))
        words = shlex.split(command.replace("\\\n", " "))
        PARSERS[engine](words[1:] if "=" in words[0] else words)  # without a variable before the command
        taken += 1
        print(told)
    print(
        f"{engine} {version(engine)} takes the arguments of {taken} of {len(METHODS)} settings; the others have none."
    )


if __name__ == "__main__":
    main(sys.argv[1])
