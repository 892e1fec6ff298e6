"""The decoder of a notebook: a pair and a decoding method that continue a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fsd_core.config import DecodingConfig, RunConfig
from fsd_core.config.model_names import name_of_models
from fsd_core.config.options import checked, in_python, method
from fsd_core.decoding import decoder as internal
from fsd_core.decoding.decoder import DecodingSession
from fsd_core.decoding.trace import RoundRecord
from fsd_core.errors import Contradiction, Malformed, ModelUnavailable, PackageMissing
from fsd_core.evaluation.harness import written
from fsd_core.models import loading, threads
from fsd_core.models.hub import OnProgress
from fsd_core.models.loading import LoadedPair
from fsd_core.models.model_pairs import get_pair
from fsd_core.models.sources import PairSpec
from fsd_core.settings import get_settings
from fsd_core.storage.messages import EmittedToken, StreamFigures
from fsd_core.storage.records import fingerprint_of, same_model
from fsd_core.tasks.custom.custom_task import CustomTask, checked_name, suggested_name
from fsd_core.tasks.custom.reading import check, read_file
from fsd_core.tasks.custom.rows import FieldNames
from fsd_core.worker.token_builder import TokenBuilder


def need(package: str, what: str) -> None:
    """Raise ``PackageMissing`` if ``package``, which ``what`` needs, is not installed."""
    try:
        import_module(package)
    except ImportError:
        raise PackageMissing(
            f"{what} needs {package}, which is not installed: install it, or the library with its group 'figures', "
            "pip install 'fsd-lab[figures]'."
        ) from None


def lacks(*packages: str) -> bool:
    """Return whether any of these packages is not installed."""
    return any(find_spec(package) is None for package in packages)


def load_pair(
    name_or_path: str | Path | Mapping[str, str] = "bundled",
    device: str = "auto",
    dtype: str = "auto",
    on_progress: OnProgress = lambda what, done, total: None,
    weights: Mapping[str, str] | None = None,
) -> LoadedPair:
    """Load a target and its draft, with the EAGLE head if the pair has one.

    Args:
        name_or_path: A name that ``fsd-lab pairs`` lists; ``hub:OWNER/TARGET+OWNER/DRAFT``; or a folder that contains
            the folders ``target`` and ``draft`` (and ``head``), as a ``Path`` or as ``path:FOLDER``; or the models,
            each a folder or an id of the hub, by role: ``target``, and of ``draft``, ``head``, ``adapter`` and
            ``draft-adapter`` those that there are.
        device: ``cpu``, ``cuda``, ``cuda:N``, or ``auto``: ``FSD_DEVICE`` if it is set, else CUDA if available.
        dtype: ``float32``, ``bfloat16``, ``float16``, or ``auto``: the checkpoint's, if the device computes in
            it.
        on_progress: Called during a download with the fetched item, the bytes so far and the total bytes.
        weights: Fingerprints that the models must have, by role (``target``, ``draft``, ``head``, ``adapter``, and
            ``configuration`` for the files beside the weights), as an approved setting lists them.

    On a CPU this also sets torch's number of threads for the whole process: ``FSD_THREADS``, or the number that makes
    the pair's rounds fastest. Measuring that takes about a second.

    Raises:
        UnknownName: No pair has this name.
        ModelUnavailable: The weights are missing, broken or not the requested ones, cannot be fetched, or do not fit
            into memory.
        IncompatibleModels: The two models have different tokenizers.
        InvalidSetting: The device or the dtype is unknown, or this machine lacks the device.

    >>> import fsd_core
    >>> pair = fsd_core.load_pair("bundled", device="cpu")
    >>> pair.device, pair.dtype, pair.head is not None
    ('cpu', 'float32', True)
    """
    settings = get_settings()
    config = checked(RunConfig, in_python, dtype=dtype, device=settings.device if device == "auto" else device)
    threads.fix(settings.threads)
    pair = loading.load_pair(_name(name_or_path), config.device, config.dtype, on_progress)
    _check_weights(pair, weights or {})
    threads.adopt(pair)
    return pair


def _check_weights(pair: LoadedPair, wanted: Mapping[str, str]) -> None:
    for role, fingerprint in wanted.items():
        got = fingerprint_of((pair.weights or {}).get(role, "none"))
        if not same_model(got, fingerprint):
            raise ModelUnavailable(
                f"The {role} of '{pair.spec.name}' is {got} here, and {fingerprint} was asked for: get the models that "
                "were measured."
            )


def spec_of(pair: LoadedPair | str | Path) -> PairSpec:
    """Return a pair's spec without loading the pair. Raises as ``get_pair`` does."""
    return pair.spec if isinstance(pair, LoadedPair) else get_pair(_name(pair))


def _name(name_or_path: str | Path | Mapping[str, str]) -> str:
    if isinstance(name_or_path, Mapping):
        return name_of_models(name_or_path)
    if not isinstance(name_or_path, str | Path):
        raise Malformed(
            f"A pair is asked for by its name, its folder or its models by role, and {name_or_path!r} is none of "
            "these: write such as 'bundled'."
        )
    return f"path:{name_or_path}" if isinstance(name_or_path, Path) else name_or_path


def loaded(pair: LoadedPair | str | Path) -> LoadedPair:
    """Return the pair itself, or load the one of that name or folder. Raises as :func:`load_pair` does."""
    return pair if isinstance(pair, LoadedPair) else load_pair(pair)


def load_task(
    path: str | Path,
    scorer: str | None = None,
    name: str | None = None,
    title: str = "",
    *,
    prompt_field: str = "",
    reference_field: str = "",
    id_field: str = "",
    context_field: str = "",
    choices_field: str = "",
    category_field: str = "",
    all_turns: bool = False,
    group_similar: bool = False,
) -> CustomTask:
    """Return the task of a file (CSV, XLSX, Parquet, JSON and more) for ``compare`` and ``sweep``. Nothing is stored.

    Args:
        path: The file; docs/benchmarks.md has its format.
        scorer: ``number``, ``choice``, ``exact``, ``contains``, ``regex`` or ``none``. ``None`` takes the one in
            the file's first line, or the one that fits its references.
        name: ``None`` derives it from the file's name.
        title: Displayed title. Empty takes the one in the file's first line.
        prompt_field: Field that holds the prompt or the conversation. Empty takes one by its name.
        reference_field: Field that holds what is right. Empty takes one by its name.
        id_field: Field that holds the name of a line. Empty takes ``id``.
        context_field: Field that belongs to the prompt, behind it. Empty takes one by its name.
        choices_field: Field of what is asked as lettered options. Empty takes one by its name.
        category_field: Field of the kind of prompt. Empty takes one by its name.
        all_turns: Whether the user turns of conversations are asked one after another, behind what the setting wrote.
        group_similar: Whether near-duplicates are made groups. Prompts of a group depend on each other, so the group
            counts once in intervals and promises.

    Raises:
        InvalidSetting: The file has a problem, with its line (``fsd-lab task check`` lists all), or the name cannot be
            used.

    >>> import fsd_core, pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "sums.jsonl"
    >>> _ = file.write_text('{"prompt": "What is 2 + 3?", "reference": 5}')
    >>> fsd_core.load_task(file, scorer="number").name
    'sums@98192fd31a8ecfc5'
    """
    path = Path(path)
    names = FieldNames(prompt_field, reference_field, id_field, context_field, choices_field, category_field)
    checked = check(read_file(path), scorer, names, all_turns=all_turns, group_similar=group_similar)
    checked.require(str(path))
    return CustomTask.of(checked_name(suggested_name(path.name) if name is None else name), checked, title)


@dataclass(frozen=True)
class Completion:
    """The continuation of one prompt, with the rounds that produced it.

    >>> from fsd_core import Decoder
    >>> decoder = Decoder("bundled", acceptance="speculative", max_new_tokens=12)
    >>> completion = decoder.generate("Question: Eva has 3 apples. Eva eats 2. How many are left?\\nAnswer:")
    >>> len(completion.tokens) == sum(len(record.emitted) for record in completion.rounds) == 12
    True
    >>> completion.stop_reason, completion.mean_acceptance_length > 1
    ('length', True)
    """

    text: str
    """the continuation, without the prompt and without special tokens"""
    tokens: tuple[int, ...] = field(repr=False)
    """ids of the tokens written, [tokens]"""
    rounds: tuple[RoundRecord, ...] = field(repr=False)
    """for each round what was drafted and accepted, why, and with which probabilities, [rounds]"""
    label: str
    """the method's name, such as ``FSD reducible · js ≤ 0.2 · γ 5``"""
    seconds: float
    """wall time, including the prompt's forward"""
    time_to_first_token: float
    """seconds"""
    stop_reason: str
    """``eos``; ``length``: as many tokens as requested; ``context``: the model's context is full"""
    _tokenizer: Any = field(default=None, repr=False, compare=False)

    @property
    def tokens_per_second(self) -> float:
        """Tokens written, per second of wall time."""
        return self._figures.tokens_per_second

    @property
    def acceptance_rate(self) -> float | None:
        """Share of the drafted tokens that were accepted, 0 to 1; ``None`` if nothing was drafted."""
        return self._figures.acceptance_rate

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens written per round: τ of Leviathan et al. (2023), the recovered or bonus token included."""
        return self._figures.mean_acceptance_length

    @property
    def _figures(self) -> StreamFigures:
        return StreamFigures.of_text(self.rounds, self.seconds)

    def _repr_html_(self) -> str | None:
        """Return the text for a notebook, each token with the mark of its kind; ``None`` without Jinja."""
        if lacks("jinja2"):
            return None
        from fsd_core.library.notebook_view import completion_view

        builder, last = TokenBuilder(self._tokenizer), len(self.rounds) - 1
        return completion_view(
            self, [token for i, record in enumerate(self.rounds) for token in builder.add(record, last=i == last)]
        )


@dataclass(frozen=True)
class Piece:
    """The output of one round. The texts of all pieces, joined, are the text of the :class:`Completion`."""

    text: str
    """empty if the round's tokens end inside a character"""
    tokens: tuple[EmittedToken, ...] = field(repr=False)
    """each with its ``id``, its ``text`` and its ``kind`` (``strict``, ``lenient``, ``correction``, ``bonus`` or
    ``plain``: see docs/terms.md), and the divergence and probabilities by which it was judged"""


class Decoder:
    """Writes continuations with one pair and one decoding method.

    Args:
        pair: A loaded pair, or what :func:`fsd_core.load_pair` takes.
        config: The method as a :class:`fsd_core.DecodingConfig`, instead of options.
        options: The method by the names that ``fsd-lab generate --help`` lists, with underscores: ``acceptance``,
            ``threshold``, ``divergence``, ``drafter``, ``draft_length``, ``topology``, ``temperature``,
            ``max_new_tokens`` and so on. The default is fuzzy speculative decoding (Holsman et al. 2025), as in the
            command line and on the pages.

    Raises:
        InvalidSetting: An option is unknown, out of range or not read by the chosen method, both options and a
            ``config`` are given, or the pair lacks what the method needs, such as an EAGLE head.
        FsdError: As :func:`fsd_core.load_pair` does, if ``pair`` is a name or a folder.

    >>> from fsd_core import Decoder
    >>> Decoder("bundled", acceptance="fsd-reducible", divergence="js", threshold=0.2).label
    'FSD reducible · js ≤ 0.2 · γ 5'
    """

    def __init__(
        self, pair: LoadedPair | str | Path = "bundled", config: DecodingConfig | None = None, **options: Any
    ) -> None:
        if config is not None and options:
            raise Contradiction("A config and options were given: choose one of the two.")
        self.config = method(options) if config is None else config
        self.pair = loaded(pair)
        self._decoder = internal.PairDecoder(self.pair, self.config)

    @property
    def label(self) -> str:
        """A short name of the method, as pages and tables show it."""
        return self.config.label

    def __repr__(self) -> str:
        return f"Decoder({self.pair.spec.name!r}: {self.label})"

    def generate(self, prompt: str, seed: int = 0) -> Completion:
        """Return the whole continuation of a prompt, at batch size 1.

        Args:
            prompt: The text; a user's message if the pair's tokenizer has a chat template.
            seed: Seed of all randomness, 0 to 2³¹ - 1. The same seed gives the same tokens on the same machine.

        Raises:
            InvalidSetting: The prompt is empty or the seed out of range.
            PromptTooLong: The prompt fills the model's context.

        >>> from fsd_core import Decoder
        >>> question = "Question: Eva has 3 apples. Eva eats 2. How many are left?\\nAnswer:"
        >>> exact = Decoder("bundled", acceptance="speculative", max_new_tokens=16)
        >>> target = Decoder(exact.pair, acceptance="autoregressive", max_new_tokens=16)
        >>> exact.generate(question).text == target.generate(question).text  # greedy: token for token
        True
        """
        ids, seed = self._read(prompt, seed)
        threads.fit()
        generation = self._decoder.generate(ids, seed)
        return Completion(
            text=written(self.pair, generation.tokens),
            tokens=tuple(generation.tokens),
            rounds=tuple(generation.records),
            label=self.label,
            seconds=generation.seconds,
            time_to_first_token=generation.time_to_first_token,
            stop_reason=generation.stop_reason,
            _tokenizer=self._backend,
        )

    def stream(self, prompt: str, seed: int = 0) -> Iterator[Piece]:
        """Return an iterator over the same continuation, with a :class:`Piece` as each round ends.

        Arguments and exceptions are those of :meth:`generate`, raised before the first piece is requested.

        >>> from fsd_core import Decoder
        >>> decoder = Decoder("bundled", threshold=0.2, max_new_tokens=16)
        >>> question = "Question: Eva has 3 apples. Eva eats 2. How many are left?\\nAnswer:"
        >>> "".join(piece.text for piece in decoder.stream(question)) == decoder.generate(question).text
        True
        """
        ids, seed = self._read(prompt, seed)
        threads.fit()
        return self._pieces(self._decoder.session(ids, seed))

    @property
    def _backend(self) -> Any:
        tokenizer: Any = self.pair.tokenizer
        return tokenizer.backend_tokenizer

    def _pieces(self, session: DecodingSession) -> Iterator[Piece]:
        builder = TokenBuilder(self._backend)
        with session:
            while session.stop_reason is None:
                record = session.run_round()
                tokens = builder.add(record, last=session.stop_reason is not None)
                yield Piece("".join(token.text for token in tokens), tuple(tokens))

    def _read(self, prompt: str, seed: int) -> tuple[list[int], int]:
        if not isinstance(prompt, str):
            raise Malformed(f"A prompt is a text, and {type(prompt).__name__} is none: write it in quotes.")
        return self._decoder.prompt_ids(prompt), checked(RunConfig, in_python, seed=seed).seed
