"""The model pairs a user can pick, and where their weights are. No torch: the pages read this."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fsd_core.errors import ModelUnavailable, UnknownName

ASSETS = Path(__file__).resolve().parents[1] / "assets"


@dataclass(frozen=True, slots=True)
class PairSpec:
    """A target, a draft that shares its tokenizer, and the tasks the pair was made for."""

    name: str
    title: str
    description: str
    target: Path
    draft: Path
    tasks: tuple[str, ...] = ()


PAIRS: dict[str, PairSpec] = {
    spec.name: spec
    for spec in (
        PairSpec(
            name="bundled",
            title="Bundled arithmetic pair",
            description=(
                "Two small Llama models that ship with the program and know arithmetic word problems alone; "
                "prompts have the form 'Question: …', and 'Answer:' on a line of its own."
            ),
            target=ASSETS / "bundled" / "target",
            draft=ASSETS / "bundled" / "draft",
            tasks=("arithmetic",),
        ),
    )
}


def get_pair(name: str) -> PairSpec:
    """The pair called ``name``, or for ``path:FOLDER`` the one in ``FOLDER/target`` and ``FOLDER/draft``.

    Raises ``UnknownName`` for a name nobody knows and ``ModelUnavailable`` for a folder without the two models.
    """
    if name in PAIRS:
        return PAIRS[name]
    if name.startswith("path:"):
        folder = Path(name.removeprefix("path:")).expanduser()
        for role in ("target", "draft"):
            if not (folder / role / "config.json").is_file():
                raise ModelUnavailable(
                    f"The folder {folder} holds no model pair: {role}/config.json is missing. "
                    "Expected two Hugging Face model folders called target and draft."
                )
        return PairSpec(name, folder.name, f"Local pair in {folder}", folder / "target", folder / "draft")
    raise UnknownName(f"There is no model pair called '{name}'. Known pairs: {', '.join(PAIRS)}; or path:FOLDER.")
