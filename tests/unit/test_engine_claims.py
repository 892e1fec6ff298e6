"""What is said of engines: every refused export says whether the engine lacks it, or has it and is not given it yet."""

from __future__ import annotations

import pytest

from fsd_core.config import SettingConfig
from fsd_core.config.options import method
from fsd_core.errors import NoEquivalent
from fsd_core.review.delivery import deliver
from tools.engine_enumerations import PAGE, named, unnamed, values

MODULE = """
from typing import Literal
Kinds = Literal["ngram", "newest", Others]
One = Literal["fly"]
class SpeculativeAlgorithm(Enum):
    EAGLE = auto()
    NONE = auto()
    FRESH = auto()
    def is_eagle(self): return self in (SpeculativeAlgorithm.EAGLE,)
"""


def test_a_method_that_the_page_does_not_name_is_found() -> None:
    assert list(values(MODULE)) == ["ngram", "newest", "fly", "EAGLE", "FRESH"]
    assert unnamed(MODULE, PAGE.read_text(encoding="utf-8")) == ["newest", "FRESH"]
    assert {"suffix", "fly", "synthetic", "STANDALONE", "DSPARK"} <= named(PAGE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("engine", "options", "has_it"),
    [
        ("vllm", {"acceptance": "lookahead"}, True),
        ("vllm", {"acceptance": "speculative", "drafter": "suffix"}, True),
        ("vllm", {"acceptance": "cascade"}, False),
        ("sglang", {"acceptance": "lookahead"}, False),
        ("sglang", {"acceptance": "speculative", "drafter": "suffix"}, False),
        ("sglang", {"acceptance": "speculative", "topology": "dynamic-tree"}, True),
    ],
)
def test_a_refusal_says_whether_the_engine_has_it(engine: str, options: dict[str, str], has_it: bool) -> None:
    setting = SettingConfig(decoding=method(options), pair="hub:a/target@v1+a/draft@v2")
    with pytest.raises(NoEquivalent) as refused:
        deliver(setting, engine, {})
    assert ("is not exported yet" in str(refused.value)) is has_it
    assert ("no equivalent" in str(refused.value)) is not has_it
