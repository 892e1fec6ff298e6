"""The process that reads Parquet: rows from standard input, as JSON Lines on standard output.

Its time and memory have limits that the kernel enforces, for what a file says of its own size may be wrong.
"""

from __future__ import annotations

import io
import json
import math
import os
import resource
import sys
from contextlib import suppress
from typing import Any, NoReturn

MOST_PARQUET_MEMORY = 1 << 30
"""bytes of address space; loading the reader takes a quarter"""
_CPU_SECONDS = 30
_ROWS_AT_ONCE = 100
REFUSED = 3
"""exit status, with a sentence on standard error"""


def main(largest: int, most_rows: int) -> None:
    """Write the rows. Exits with a sentence if there are too many, or if they take more than ``largest`` bytes."""
    for limit, value in ((resource.RLIMIT_AS, MOST_PARQUET_MEMORY), (resource.RLIMIT_CPU, _CPU_SECONDS)):
        with suppress(ValueError, OSError):  # systems without a limit on memory, or with a lower one
            resource.setrlimit(limit, (value, value))
    import pyarrow.parquet as parquet

    file = parquet.ParquetFile(io.BytesIO(sys.stdin.buffer.read()))
    about, names = file.metadata, file.schema_arrow.names
    if len(set(names)) < len(names):
        _refuse("The file has two columns of one name: rename one of them.")
    if about.num_rows > most_rows:
        _refuse(f"The file has {about.num_rows:,} rows: expected at most {most_rows:,} prompts.")
    if sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups)) > largest:
        _refuse(unpacks_to_more(largest))
    written = 0
    for batch in file.iter_batches(_ROWS_AT_ONCE, use_threads=False):
        for row in batch.to_pylist():
            line = json.dumps({name: _plain(value) for name, value in row.items()}, ensure_ascii=False).encode() + b"\n"
            written += len(line)
            if written > largest:
                _refuse(unpacks_to_more(largest))
            sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
    os._exit(0)  # all is written: how the reader's threads end is nobody's concern


def _plain(value: Any) -> Any:
    """Return a value as JSON has it. Dates and decimal numbers become text, and objects lose fields of nothing."""
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):  # some programs write text as bytes
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def unpacks_to_more(largest: int) -> str:
    """Return the sentence on a file that unpacks to more bytes."""
    return f"The file unpacks to more than {largest:,} bytes: split it into several tasks."


def _refuse(sentence: str) -> NoReturn:
    print(sentence, end="", file=sys.stderr)
    sys.exit(REFUSED)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
