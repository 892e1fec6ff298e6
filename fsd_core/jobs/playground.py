"""Two to four settings on one prompt, side by side: their rounds take turns, each on its own clock.

Each turn begins with another setting than the last, since the first round behind a write to the database is slower.

What a job has written lies in its stream of chunks. A job that a lost worker left half-way is generated again from
the start, which gives the same tokens, and only what is not in the stream yet is added to it.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable

from fsd_core.jobs.setting_stream import SettingStream
from fsd_core.models.loading import LoadedPair
from fsd_core.tracking.messages import Chunk, PlaygroundJob

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
    sent: Counter[int] = Counter()
    ended = set()
    for chunk in written:
        sent[chunk.setting] += len(chunk.tokens)
        if chunk.done:
            ended.add(chunk.setting)
    streams = [SettingStream(i, pair, sent[i]) for i in range(len(job.settings)) if i not in ended]
    check()
    for stream in streams:
        stream.begin(job)
    flushed = -math.inf  # the first tokens do not wait
    first = 0
    while any(not stream.done for stream in streams):
        for stream in streams[first:] + streams[:first]:
            if not stream.done:
                stream.run_round()
        first = (first + 1) % len(streams)
        if time.monotonic() - flushed >= FLUSH_SECONDS:
            _flush(streams, write)
            check()
            flushed = time.monotonic()
    _flush(streams, write)
    for stream in streams:
        stream.close()


def _flush(streams: list[SettingStream], write: Callable[[list[Chunk]], None]) -> None:
    chunks = [stream.chunk() for stream in streams if stream.has_news]
    if chunks:
        write(chunks)
