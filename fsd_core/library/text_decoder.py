"""The decoder: a pair and a decoding method that continue a text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsd_core.config import DecodingConfig, RunConfig
from fsd_core.config.building import checked, in_python, method
from fsd_core.decoding import decoder as internal
from fsd_core.decoding.session import DecodingSession
from fsd_core.decoding.trace import RoundRecord
from fsd_core.errors import Contradiction, Malformed
from fsd_core.evaluation.harness import written
from fsd_core.library.extras import lacks
from fsd_core.library.pairs import loaded
from fsd_core.models import threads
from fsd_core.models.loading import LoadedPair
from fsd_core.storage.playground_chunks import EmittedToken, StreamFigures
from fsd_core.worker.token_builder import TokenBuilder


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
