"""Two to four settings on one prompt, side by side: their rounds take turns, each on its own clock.

Each turn begins with another setting than the last, since the first round behind a write to the database is slower.

What a job has written lies in its stream of chunks. A job that a lost worker left half-way is generated again from
the start, which gives the same tokens, and only what is not in the stream yet is added to it.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable

from fsd_core.models.loading import LoadedPair
from fsd_core.storage.messages import Chunk, PlaygroundJob
from fsd_core.worker.setting_stream import SettingStream

FLUSH_SECONDS = 0.1


def generate(
    job: PlaygroundJob,
    pair: LoadedPair,
    written: Iterable[Chunk],
    write: Callable[[list[Chunk]], None],
    check: Callable[[], None],
) -> None:
    """Does a playground job.

    ``written``: the chunks that its stream has already. ``write`` appends chunks; ``check`` is called about every
    100 ms and stops the work by raising. What is wrong with one setting is told in its chunk, and the others go on.
    """
    follow(stream(job, pair, written), write, check)


def follow(chunks: Iterable[list[Chunk]], write: Callable[[list[Chunk]], None], check: Callable[[], None]) -> None:
    """Stores what :func:`stream` gives, wherever it runs, and asks before each part whether to go on."""
    check()
    for some in chunks:
        if some:
            write(some)
        check()


def stream(job: PlaygroundJob, pair: LoadedPair, written: Iterable[Chunk]) -> Generator[list[Chunk]]:
    """The chunks that the job's stream lacks, every 100 ms those of meanwhile."""
    sent: Counter[int] = Counter()
    ended = set()
    for chunk in written:
        sent[chunk.setting] += len(chunk.tokens)
        if chunk.done:
            ended.add(chunk.setting)
    streams = [SettingStream(i, pair, sent[i]) for i in range(len(job.settings)) if i not in ended]
    try:
        for one in streams:
            one.begin(job)
        flushed = -math.inf  # the first tokens do not wait
        first = 0
        while any(not one.done for one in streams):
            for one in streams[first:] + streams[:first]:
                if not one.done:
                    one.run_round()
            first = (first + 1) % len(streams)
            if time.monotonic() - flushed >= FLUSH_SECONDS:
                yield _news(streams)
                flushed = time.monotonic()
        if news := _news(streams):
            yield news
    finally:
        for one in streams:
            one.close()


def _news(streams: list[SettingStream]) -> list[Chunk]:
    return [one.chunk() for one in streams if one.has_news]
