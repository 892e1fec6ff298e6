"""Two to four settings on one prompt, side by side. Their rounds alternate, each on its own clock.

The target alone takes part for its first tokens, so that each setting can show its speed beside it.

Each turn starts with the next setting, since the first round after a write to the database is slower.

The output of a job is in its stream of chunks. A job that a lost worker left half-way is generated again from the
start, which gives the same tokens, and only tokens missing from the stream are added.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable

from fsd_core.models.loading import LoadedPair
from fsd_core.storage.messages import PlaygroundJob
from fsd_core.storage.playground_chunks import Chunk
from fsd_core.worker.setting_stream import SettingStream
from fsd_core.worker.target_speed import TargetSpeed

FLUSH_SECONDS = 0.1


def generate(
    job: PlaygroundJob,
    pair: LoadedPair,
    written: Iterable[Chunk],
    write: Callable[[list[Chunk]], None],
    check: Callable[[], None],
) -> None:
    """Execute a playground job.

    ``written``: the chunks that its stream already has. ``write`` appends chunks; ``check`` is called about every 100
    ms and stops the work by raising. An error of one setting is reported in its chunk, and the others continue.
    """
    follow(stream(job, pair, written), write, check)


def follow(chunks: Iterable[list[Chunk]], write: Callable[[list[Chunk]], None], check: Callable[[], None]) -> None:
    """Store the chunks of :func:`stream`, wherever it runs, and call ``check`` before each batch."""
    check()
    for batch in chunks:
        if batch:
            write(batch)
        check()


def stream(job: PlaygroundJob, pair: LoadedPair, written: Iterable[Chunk]) -> Generator[list[Chunk]]:
    """Yield the chunks that the job's stream lacks, batched every 100 ms."""
    sent: Counter[int] = Counter()
    ended = set()
    for chunk in written:
        sent[chunk.setting] += len(chunk.tokens)
        if chunk.done:
            ended.add(chunk.setting)
    target = TargetSpeed(pair)
    streams = [SettingStream(i, pair, target, sent[i]) for i in range(len(job.settings)) if i not in ended]
    try:
        for setting in streams:
            setting.begin(job)
        target.begin(job)
        flushed = -math.inf  # the first tokens do not wait
        first = 0
        while any(not setting.done for setting in streams):
            for setting in streams[first:] + streams[:first]:
                if not setting.done:
                    setting.run_round()
            target.run_round()
            first = (first + 1) % len(streams)
            if time.monotonic() - flushed >= FLUSH_SECONDS:
                yield _news(streams)
                flushed = time.monotonic()
        if news := _news(streams):
            yield news
    finally:
        for setting in streams:
            setting.close()
        target.close()


def _news(streams: list[SettingStream]) -> list[Chunk]:
    return [setting.chunk() for setting in streams if setting.has_news]
