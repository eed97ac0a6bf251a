"""How fast the pages over a large trove come, with many clients at once, and what memory it takes.

A trove of 100,000 cases, ten million calls and 300,000 attempts is served by a process of its own.
Clients ask over connections that stay open, one page after another without a pause: every kind of
page, filtered and paged in many ways, so that most answers are not the ones that were just given.
Time is from the request to the first byte of the answer. Use ``--store`` for an existing trove, and
``--alone`` to ask for each address once, one after another, for the time that the server computes
for each kind of page.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

from journals import make_journal

from optrove.journal.reader import JournalReader
from optrove.model.records import (
    Attempt,
    DeviceKind,
    Environment,
    Measurement,
    Outcome,
    Query,
    Run,
    RunKind,
    Sweep,
)
from optrove.model.trove import PlannedCase
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from optrove.trove.trove import Trove, open_trove

RUNS: Final = 10
SWEEPS: Final = (("5eeb0", "n150"), ("5eeb1", "n150"), ("5eeb2", "n300"))
PER_KIND: Final = 40
LIMITS_MS: Final = {"median": 100, "p99": 300}
LIMIT_MB: Final = 250
SERVE: Final = "import sys; from optrove.cli.ask import serve; serve(sys.argv[1:])"


def main() -> None:
    """Serve a trove, ask for its pages, and print how long each kind took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", help="a trove that is there; it is only read")
    parser.add_argument("--calls", type=int, default=10_000_000)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--alone", action="store_true", help="every address once, by one client")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        store = asked.store or _filled(Path(name), asked.calls // RUNS, asked.cases)
        command = [sys.executable, "-c", SERVE, "--store", store, "--port", "0"]
        started = time.perf_counter()
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:  # noqa: S603 - our own
            try:
                assert server.stderr is not None
                found = re.search(r"http\S+", server.stderr.readline())
                assert found is not None
                _wait(found.group(), server.pid, started)
                if asked.alone:
                    _measure_alone(found.group(), server.pid)
                else:
                    _measure(found.group(), server.pid, asked.clients, asked.seconds)
            finally:
                server.terminate()


def _wait(url: str, pid: int, started: float) -> None:
    """Print when the first page came."""
    _json(url, "/")
    after = time.perf_counter() - started
    print(f"first page after {after:.1f} s, for which the server worked {_worked(pid):.1f} s")


def _filled(directory: Path, calls: int, cases: int) -> str:
    """Make a trove of several runs; the first has all cases, the others a tenth of them."""
    store = str(directory / "trove.db")
    with open_trove(place_of(store), create=True) as trove:
        for number in range(RUNS):
            some = cases // (10 if number else 1)
            lines = make_journal(directory / str(number), calls, some, f"run-{number}")
            trove.add_journal(JournalReader(lines))
        _try_cases(trove, store)
    return store


def _try_cases(trove: Trove, store: str) -> None:
    """Add sweeps over all cases: two on one board, between which some change, one on another."""
    with open_reader(place_of(store)) as reader:
        case_ids = [row.case_id for row in reader.cases(Query(data_movement=True))]
    for sweep, (name, board) in enumerate(SWEEPS):
        environment = Environment(
            *("0.1", "3.12", "linux"), device_kind=DeviceKind.SHADOW, board=board
        )
        began = f"2026-02-{1 + sweep:02}T08:00:00.000000Z"
        run = Run(f"{name:0<32}", RunKind.SWEEP, "sweep", environment, began, began)
        plan = (PlannedCase(each, DeviceKind.SHADOW, board) for each in case_ids)
        trove.add_sweep(run, Sweep(), plan)
        attempts = (_attempt(run, sweep, *each) for each in enumerate(case_ids))
        while some := list(itertools.islice(attempts, 10_000)):
            trove.add_attempts(run, some)


def _attempt(run: Run, sweep: int, number: int, case_id: str) -> Attempt:
    rejected = (number + sweep) % 50 == 0
    pcc = Measurement("pcc", 1 - ((7 * number + sweep) % 90) / 1e4, 0.99, passed=True, output=0)
    return Attempt(
        run_id=run.id,
        case_id=case_id,
        outcome=Outcome.REJECTED if rejected else Outcome.PASSED,
        device_kind=DeviceKind.SHADOW,
        board=run.environment.board,
        detail=f"TT_FATAL: shape {number % 40} is not supported" if rejected else None,
        measurements=() if rejected else (pcc,),
        started_at=run.started_at,
        duration_ns=1_000_000 * (1 + (number + sweep) % 30),
    )


def _measure(url: str, pid: int, clients: int, seconds: float) -> None:
    pages = _pages(url)
    before, worked = _memory(pid, "VmHWM"), _worked(pid)
    times, failures = asyncio.run(_clients(url, pages, clients, seconds))
    every = [each for own in times.values() for each in own]
    rate = len(every) / seconds
    print(f"{clients} clients, {seconds:.0f} s, {len(pages):,} addresses, {rate:.0f} pages/s")
    print(f"{'page':<12}{'asked for':>10}{'median':>12}{'p99':>12}{'most':>12}")
    for kind, own in [*sorted(times.items()), ("all", every)]:
        numbers = [f"{number:>9.1f} ms" for number in (median(own), _p99(own), max(own))]
        print(f"{kind:<12}{len(own):>10,}{''.join(numbers)}")
    worked = _worked(pid) - worked
    print(f"the server worked {worked:.1f} s, {1000 * worked / len(every):.1f} ms for a page")
    peak = _memory(pid, "VmHWM")
    print(f"memory of the server: {before:.0f} MB before, {peak:.0f} MB at most")
    print(f"failed: {len(failures)} {failures[:3] if failures else ''}")
    good = _keeps(every) and not failures and peak < LIMIT_MB
    print(f"all pages together: {'within' if good else 'NOT within'} the limits")
    above = [kind for kind, own in sorted(times.items()) if not _keeps(own)]
    print(f"kinds of pages above them: {', '.join(above) or 'none'}")


def _measure_alone(url: str, pid: int) -> None:
    """Print how long the server computes for pages that nobody has asked for before."""
    computed: dict[str, list[float]] = {}
    pages = _pages(url)
    random.Random(0).shuffle(pages)  # noqa: S311 - no secret
    for number, (kind, address) in enumerate(pages):
        # Another address for the same page, so that it is not the one of finding out addresses.
        if "format=" in address:
            continue
        again = f"{url.rstrip('/')}{address}{'&' if '?' in address else '?'}format=html"
        before = _computed_ms(pid)
        with urllib.request.urlopen(again) as answer:  # noqa: S310 - our own server
            answer.read()
        if number:
            computed.setdefault(kind, []).append(_computed_ms(pid) - before)
    print(f"{'computed for':<12}{'addresses':>10}{'median':>12}{'most':>12}")
    for kind, own in sorted(computed.items()):
        print(f"{kind:<12}{len(own):>10,}{median(own):>9.1f} ms{max(own):>9.1f} ms")


def _computed_ms(pid: int) -> float:
    """Return how long the threads of a process have computed."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e6


def _keeps(own: list[float]) -> bool:
    return median(own) < LIMITS_MS["median"] and _p99(own) < LIMITS_MS["p99"]


def _p99(values: list[float]) -> float:
    return quantiles(values, n=100, method="inclusive")[-1] if len(values) > 1 else values[0]


def _memory(pid: int, name: str) -> float:
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found.group(1)) / 1024 if found else 0.0


def _worked(pid: int) -> float:
    """Return how many seconds a process has computed, which other work does not change."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _pages(url: str) -> list[tuple[str, str]]:
    """Return kinds of pages and their addresses, as somebody who clicks around comes by."""
    chance = random.Random(0)  # noqa: S311 - no secret
    ops = _json(url, "/ops")
    names = [row["op"] for row in ops["ops"]][:PER_KIND]
    pages = [("overview", "/"), ("ops", "/ops"), ("runs", "/runs"), ("boards", "/boards")]
    facets = [
        (name, each["value"]) for name, own in ops["facets"].items() for each in own if own[1:]
    ]
    pages += [("ops", _address("/ops", **dict([facet]))) for facet in facets]
    pages += [("ops", _address("/ops", search=name[-5:])) for name in names]
    cases: list[str] = []
    for name in names:
        after, depth = None, 0
        while depth < max(PER_KIND // len(names), 1):
            data = _json(url, "/op", name=name, **({"after": after} if after else {}))
            cases += [row["case_id"] for row in data["rows"]]
            pages.append(("op", _address("/op", name=name, **({"after": after} if after else {}))))
            after, depth = data["next"], depth + 1
            if after is None:
                break
        some = chance.sample(facets, min(len(facets), 4))
        pages += [("op", _address("/op", name=name, **dict([facet]))) for facet in some]
        pages.append(("families", _address("/op", name=name, view="families")))
        pages.append(("boards", _address("/boards", op=name)))
        pages.append(("boards", _address("/boards", op=name, outcome="rejected")))
        pages.append(("op", _address("/op", name=name, outcome="rejected")))
    pages += [
        ("case", _address("/case", id=each)) for each in chance.sample(cases, min(len(cases), 400))
    ]
    runs = [row["run_id"] for row in _json(url, "/runs")["runs"]]
    for run in runs:
        pages.append(("run", _address("/run", id=run)))
        pages += [("run", _address("/run", id=run, first=n)) for n in (10_000, 200_000)]
        pages.append(("progress", _address("/progress", run=run)))
    for later, earlier in itertools.pairwise(runs):
        pages.append(("compare", _address("/compare", a=earlier, b=later)))
        pages.append(("compare", _address("/compare", a=earlier, b=later, kind="same")))
    twins = [(kind, _address(each, format="json")) for kind, each in chance.sample(pages, 100)]
    return pages + twins


def _address(path: str, **parameters: Any) -> str:
    sign = "&" if "?" in path else "?"
    return f"{path}{sign}{urllib.parse.urlencode(parameters)}"


def _json(url: str, path: str, **parameters: Any) -> Any:
    address = url.rstrip("/") + _address(path, **parameters, format="json")
    with urllib.request.urlopen(address) as answer:  # noqa: S310 - our own server
        return json.load(answer)


async def _clients(
    url: str, pages: list[tuple[str, str]], clients: int, seconds: float
) -> tuple[dict[str, list[float]], list[str]]:
    host, port = urllib.parse.urlsplit(url).netloc.rsplit(":", 1)
    times: dict[str, list[float]] = {}
    failures: list[str] = []
    end = time.perf_counter() + seconds

    async def client(number: int) -> None:
        chance = random.Random(number)  # noqa: S311 - no secret
        reader, writer = await asyncio.open_connection(host, int(port))
        while time.perf_counter() < end:
            kind, address = chance.choice(pages)
            request = f"GET {address} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"
            began = time.perf_counter()
            writer.write(request.encode())
            status = await reader.readline()
            times.setdefault(kind, []).append(1000 * (time.perf_counter() - began))
            length = await _skip_headers(reader)
            await reader.readexactly(length)
            if b" 200 " not in status:
                failures.append(f"{address}: {status!r}")
        writer.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    return times, failures


async def _skip_headers(reader: asyncio.StreamReader) -> int:
    """Return the length of the body that follows."""
    length = 0
    while (line := await reader.readline()).strip():
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return length


if __name__ == "__main__":
    main()
