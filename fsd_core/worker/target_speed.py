"""The speed of the target alone on a prompt, beside which a setting of the playground shows its own."""

from __future__ import annotations

import logging
import time
from itertools import islice

from fsd_core.config import DecodingConfig
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.decoding.session import DecodingSession
from fsd_core.errors import FsdError
from fsd_core.models.loading import LoadedPair
from fsd_core.rules import Autoregressive
from fsd_core.storage.messages import PlaygroundJob

logger = logging.getLogger(__name__)

_WARM_UP_ROUNDS = 2
_ROUNDS = 16
"""of one token each: enough for a rate, and little beside the texts"""


class TargetSpeed:
    """Writes a prompt's first tokens with the target alone, and estimates from them how long more of them would take.

    A target that cannot be measured leaves the settings without this figure, and does not end them.
    """

    def __init__(self, pair: LoadedPair) -> None:
        self._pair = pair
        self._session: DecodingSession | None = None
        self._seconds: list[float] = []  # of each round

    def begin(self, job: PlaygroundJob) -> None:
        """Open the session, for the prompt and the sampling of the job's first setting."""
        try:
            decoding = DecodingConfig(acceptance=Autoregressive(), **job.decoding(0).shared)
            decoder = PairDecoder(self._pair, decoding)
            ids = decoder.prompt_ids(job.prompt)
            list(islice(decoder.stream(ids, job.seed), _WARM_UP_ROUNDS))
            self._session = decoder.session(ids, job.seed)
        except (FsdError, RuntimeError) as error:
            self._fail(error)

    def run_round(self) -> None:
        """Write one more token, until there are enough."""
        if self._session is None:
            return
        started = time.perf_counter()
        try:
            self._session.run_round()
        except (FsdError, RuntimeError) as error:
            self._fail(error)
            return
        self._seconds.append(time.perf_counter() - started)
        if len(self._seconds) == _ROUNDS or self._session.stop_reason is not None:
            self.close()

    def tokens_per_second(self, tokens: int) -> float | None:
        """Return its rate for so many tokens; ``None`` if it has not written two yet.

        The first round reads the prompt, too. The others take what they took on average.
        """
        if tokens == 0 or len(self._seconds) < 2:
            return None
        first, *others = self._seconds
        return tokens / (first + (tokens - 1) * sum(others) / len(others))

    def close(self) -> None:
        """Return the buffers of the session for reuse."""
        if self._session is not None:
            self._session.close()
        self._session = None

    def _fail(self, error: Exception) -> None:
        self.close()
        logger.warning("The target alone could not be timed: %s", error)
