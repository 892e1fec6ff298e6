"""Everything that was tried against the program: ``python -m tools.attack``, or ``make attack``.

Every trial runs in a process and a folder of its own, two at a time, on loopback alone, and is ended when it takes too
long. Each prints one line; the command fails if one trial fails. ``--table FILE`` writes how many held into
FILE, and the lines of those that fell, between the marks that docs/reliability.md has for them. Needs Linux, root for
the trials with small disks, chromium.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.tools.documents import ROOT, commit
from tools.attack.as_people import disabled_at_work, programs_as_people
from tools.attack.growth import grown
from tools.attack.kills import deadly_prompt, random_moments
from tools.attack.leaving import leaves_in_time
from tools.attack.lengths import (
    endless_template,
    expression_bombs,
    forged_models,
    long_jobs,
    long_prompts,
    template_bomb,
)
from tools.attack.storage import (
    clock_set_back,
    damaged_bytes,
    full_home,
    full_temporary_folder,
    full_while_fetching,
    locked_database,
    odd_homes,
)

AT_ONCE = 2
LONGEST = 420
"""seconds after which a trial is ended"""
BEGIN, END = "<!-- trials: written by make attack -->", "<!-- end of trials -->"


def tests(*paths: str) -> Callable[[Path], str]:
    """A trial that is tests of the test suite: all of them must pass, and none be left out."""

    def run(folder: Path) -> str:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={folder}/tests", *paths]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        last = done.stdout.strip().splitlines()[-1]
        assert done.returncode == 0, done.stdout[-3000:]
        passed = re.fullmatch(r"(\d+) passed in .*", last)
        assert passed is not None, last
        return f"{passed[1]} tests passed"

    return run


@dataclass(frozen=True)
class Trial:
    """One line of the table: what is promised, and what was done to break it."""

    title: str
    promise: str
    run: Callable[[Path], str]


KILLS = "Kills of the worker at random moments"
# The longest first, so that none is alone at the end.
TRIALS = {
    "kills": Trial(KILLS, "What is written is not lost nor doubled", partial(random_moments, kills=15, seed=0)),
    "more-kills": Trial(f"{KILLS}, others", "As above", partial(random_moments, kills=15, seed=1)),
    "growth": Trial("Visits of pages, one after the other", "The web process grows by 50 MB at most", grown),
    "programs": Trial(
        "Programs that attack their judge",
        "A program sees nothing of the host and cannot judge itself",
        tests(*(f"tests/unit/{path.name}" for path in sorted((ROOT / "tests/unit").glob("test_sandbox*.py")))),
    ),
    "doors": Trial(
        "Requests of foreign pages, closed routes, large bodies",
        "Pages answer their own origin, and what they do not need is closed",
        tests("tests/ui/test_doors.py", "tests/integration/test_front_door.py"),
    ),
    "as-people": Trial(
        "An admin's token at every button, call and form that is a person's",
        "A program answers for nobody",
        programs_as_people,
    ),
    "damage": Trial("Bytes of the database changed at random", "A sentence, whatever is read", damaged_bytes),
    "prompt": Trial("A prompt that kills whatever writes it", "It is set aside; the run goes on", deadly_prompt),
    "mlflow": Trial(
        "Writes, odd locations and GraphQL that changes something on MLflow's pages",
        "MLflow's pages read our store and write nothing outside of it",
        tests("tests/integration/test_mlflow_server.py"),
    ),
    "archives": Trial(
        "Archives with links, bombs, names that lead elsewhere and values that no page shows",
        "An import takes all of a file or nothing of it",
        tests("tests/unit/test_workspace_import.py"),
    ),
    "parsers": Trial(
        "JSON nested without end, forged headers, pickles and files that unpack without end",
        "Every reader has a bound in time and memory",
        tests(*(f"tests/unit/test_{name}.py" for name in (
            "parser_bounds", "template_child", "custom_reading", "custom_task", "livecodebench",
        ))),
    ),
    "requests": Trial(
        "Unknown functions, other people's sessions, forged headers of proxies, void tokens",
        "Who asks is known, and what is asked exists",
        tests("tests/unit/test_requests.py", "tests/unit/test_accounts.py", "tests/integration/test_front_door.py"),
    ),
    "bomb": Trial("A chat template that fills the memory", "As above; the next run is done", template_bomb),
    "expressions": Trial("Regular expressions that take gigabytes or years", "A sentence each", expression_bombs),
    "template": Trial("A chat template that loops for years", "It is ended, with a sentence", endless_template),
    "full-home": Trial("The database's disk fills up", "What is written stays; the run goes on later", full_home),
    "fetching": Trial("The disk fills up while a model arrives", "As above", full_while_fetching),
    "disabled": Trial(
        "Somebody is disabled while their experiment runs",
        "Who may not act any more does not; nothing is lost",
        disabled_at_work,
    ),
    "locked": Trial("A database locked for longer than a lease", "It costs time alone", locked_database),
    "homes": Trial("Folders of odd names as FSD_HOME", "The folder that was named, and no other", odd_homes),
    "clock": Trial("A kill, and the clock goes back by an hour", "The job does not wait for the clock", clock_set_back),
    "full-tmp": Trial("A full temporary folder", "The run is kept; MLflow hears of it later", full_temporary_folder),
    "prompts": Trial("Prompts of megabytes on the command line", "Refused before they are tokenised", long_prompts),
    "jobs": Trial("A prompt of 10 MB in the queue", "Refused; the next job is done", long_jobs),
    "messages": Trial(
        "Messages to private addresses, names that turn, redirects; headers in mail; kills of the sender",
        "Nothing is posted where the operator did not allow it, or twice",
        tests("tests/unit/test_notices.py"),
    ),
    "blind": Trial(
        "Answers of a blind vote, asked for at every door",
        "Who may vote reads no answer with its name before",
        tests("tests/unit/test_blinding.py"),
    ),
    "leaving": Trial(
        "SIGTERM with pages open and an experiment running", "The application ends within 8 s", leaves_in_time
    ),
    "texts": Trial(
        "Paths, NUL, halves of characters and texts without end in every call", "A sentence each, and no file",
        tests("tests/unit/test_api.py"),
    ),
    "engines": Trial(
        "Engines that send without end, nested, of impossible numbers, or the key they were given",
        "A sentence at once; the worker keeps its memory, and no key is stored",
        tests("tests/integration/test_engine_faults.py", "tests/unit/test_texts.py"),
    ),
    "hub": Trial(
        "A hub that names commits, hashes, sizes and files as it likes", "Nothing arises outside of the home",
        tests("tests/integration/test_hub_files.py"),
    ),
    "pooler": Trial(
        "PostgreSQL behind a pooler, in other encodings, with a shut door", "It works, or says what is wrong",
        tests("tests/integration/test_postgres.py"),
    ),
    "forged": Trial("Forged headers and configurations of models", "A sentence each", forged_models),
}  # fmt: skip


def tried(name: str) -> tuple[bool, float, str]:
    """Runs a trial in a process of its own: whether it held, its seconds, and what it came to."""
    begun = time.monotonic()
    command = [sys.executable, "-m", "tools.attack", "--one", name]
    process = subprocess.Popen(
        command, cwd=ROOT, env=os.environ | {"FSD_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return False, time.monotonic() - begun, f"not done after {LONGEST} s"
    seconds = time.monotonic() - begun
    if process.returncode:
        print(err[-6000:], file=sys.stderr, flush=True)
        return False, seconds, (err.strip().splitlines() or ["no word"])[-1]
    return True, seconds, out.strip().splitlines()[-1]


def row(name: str) -> tuple[bool, str]:
    """Runs a trial and prints its line; the line for the table."""
    held, seconds, result = tried(name)
    trial = TRIALS[name]
    print(f"{'held' if held else 'FELL'}  {seconds:4.0f} s  {trial.title}: {result}", flush=True)
    return held, f"| {trial.promise} | {trial.title} | {result if held else f'**fell**: {result}'} | {seconds:.0f} s |"


def write_table(file: Path, rows: list[tuple[bool, str]], seconds: float) -> None:
    """Puts a line on the trials between the marks of ``file``, and the rows of those that fell."""
    told = (
        f"{len(rows)} trials in {seconds:.0f} s, {AT_ONCE} at a time, on {os.cpu_count()} processors "
        f"({platform.machine()}, Python {platform.python_version()}), commit {commit()}."
    )
    fell = [line for held, line in rows if not held]
    table = ["| Promised | Tried | What came of it | Took |", "|---|---|---|---|", *fell, ""] if fell else []
    before, _, rest = file.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    file.write_text("\n".join([before + BEGIN, "", *table, told, "", END + after]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*TRIALS, []], help="some trials alone; all by default")
    parser.add_argument("--table", type=Path, help="a file with the marks of the table")
    parser.add_argument("--one", choices=TRIALS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        with tempfile.TemporaryDirectory(prefix="fsd-attack-") as folder:
            print(TRIALS[options.one].run(Path(folder)))
        return 0
    begun, names = time.monotonic(), options.names or list(TRIALS)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        rows = list(pool.map(row, names))
    seconds, fell = time.monotonic() - begun, sum(not held for held, _ in rows)
    print(f"{len(rows)} trials in {seconds:.0f} s, {fell} fell")
    if options.table:
        write_table(options.table, rows, seconds)
    return 1 if fell else 0


if __name__ == "__main__":
    sys.exit(main())
