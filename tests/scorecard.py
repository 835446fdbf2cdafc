"""
Makes the scorecard in docs/reliability.md from what the tests measured.

Usage: python -m tests.scorecard FIGURES DOCUMENT: FIGURES holds one JSON object a line (row, name, value), as
the fixture `figure` writes them. A new row is a test with `@pytest.mark.scorecard(row)` and an entry here.
"""

import json
import os
import platform
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from mam.broker.nats import process as nats_server

BEGIN, END = "<!-- scorecard: made by `make reliability` -->", "<!-- end of the scorecard -->"


class Row(NamedTuple):
    """Texts with figures in them: `{name}` is a sum, `{name:max.1}` the largest with one decimal."""

    fault: str
    promise: str
    measured: str


class Values(list[float]):
    """All values of one figure."""

    def __format__(self, spec: str) -> str:
        how, _, decimals = (spec or "sum").partition(".")
        ways: dict[str, Callable[[list[float]], float]] = {"sum": sum, "max": max, "min": min}
        value = ways[how](self)
        return f"{value:,.{int(decimals or 0)}f}".replace(",", " ")


ROWS = {
    1: Row(
        "the broker killed −9, {kills} times among {events} events",
        "0 lost, 0 doubled",
        "{lost} lost, {doubled} doubled; {seconds:max} s in all",
    ),
    2: Row(
        "monitor, carrier, producers and broker killed −9, {kills} times among {events} events",
        "0 lost, 0 doubled",
        "{lost} lost, {doubled} doubled; each run at most {seconds:max} s",
    ),
    3: Row(
        "{events:max} events said while broker and monitor are away, and with or without them the carrier",
        "all recorded ≤ 5 s after the return",
        "{lost} lost; all recorded after {seconds:max.1} s",
    ),
    4: Row("{messages} tampered messages", "0 accepted, 0 exceptions", "{accepted} accepted; {kinds} typed refusals"),
    5: Row(
        "every member of envelope and body, spoilt in every way",
        "each cell has its own typed refusal",
        "{cases} cases and {cells} cells in them: all as expected",
    ),
    6: Row(
        "{events} events replayed ten times in any order, {replays} deliveries",
        "the same state, 0 extra effects",
        "the same rows; {extra} extra effects",
    ),
    7: Row(
        "{stale} events of an attempt that come after the next dispatch, {duplicate} that come again",
        "100 % `stale_attempt`; `duplicate` where it is on record",
        "{stale} and {duplicate}, no effect",
    ),
    8: Row("keys used for another job, session or topic, {messages} messages", "0 accepted", "{accepted} accepted"),
    9: Row(
        "{secrets} secrets, {tokens} of them job tokens, looked for in {processes} processes, {messages} messages "
        "and {mb} MB of files, tables, panes and output",
        "0 shown",
        "{shown} shown",
    ),
    10: Row(
        "{garbage} garbage, deep and oversize messages, then a good one",
        "recorded ≤ 1 s, monitor + ≤ 20 MB",
        "recorded after {accepted_s:max.2} s; + {grown_mb:max.1} MB, + {peak_mb:max.1} MB at most",
    ),
    11: Row(
        "{writers} processes, {updates} updates of the registry at once",
        "0 lost, ≤ 10 s, p99 ≤ 250 ms",
        "{lost} lost, {seconds:max.1} s, p99 {p99_ms:max} ms, at most {most_ms:max} ms",
    ),
    12: Row(
        "−9 at each durable step of verbs, monitor and runner, and of writers at random",
        "nothing torn, nothing acknowledged lost, the next run goes on",
        "{cases} of {cases} cases",
    ),
    13: Row(
        "a full or broken disk at each durable step",
        "a typed error, the old or the new state, a second try succeeds",
        "{cases} of {cases} cases",
    ),
    14: Row(
        "the audit log torn at {torn} bytes, or changed by one bit in {flips} places",
        "made whole; named by its line",
        "{torn} made whole, {located} named",
    ),
    15: Row(
        "a loop stopped until another one has its reviewer, then woken",
        "fenced, 0 effects, nothing asked twice",
        "{cases} of {cases} cases",
    ),
    16: Row(
        "the loop that holds the reviewers killed −9",
        "granted again after the lease's time, in the queue's order",
        "{cases} of {cases} cases",
    ),
    17: Row(
        "a reviewer stopped until it is asked anew, then woken: its old verdict",
        "fenced, 0 effects",
        "{cases} of {cases} cases",
    ),
    18: Row(
        "4 loops of 20 rounds share 3 reviewers",
        "0 given twice, no standstill, waits ≤ 2 × a fair share",
        "{cases} of {cases} cases",
    ),
    19: Row(
        "a loop killed −9 at each pass of each of its steps, {deaths} times, and resumed",
        "the same verdict, 0 jobs repeated, ≤ 2 s",
        "the same verdict, 0 jobs repeated, nothing left; a resume takes {overhead_s:max.1} s beside its reviewers",
    ),
    20: Row(
        "a creator commits or edits at {moments} moments of a review, and between verdict and promotion",
        "0 promotions of what was not reviewed",
        "{unreviewed} unreviewed; {superseded} rounds superseded and reviewed anew",
    ),
    21: Row(
        "work hidden from git in {ways} ways (settings, index flags, submodules, a merge begun) before a removal",
        "0 lost, each refused with its path",
        "{refused} refused with the path, 0 lost",
    ),
    22: Row(
        "{prepares} `worktree prepare` at once, 10 of them on one branch, beside a loop of `git worktree prune`",
        "one winner a branch, 0 leftovers",
        "one winner, {leftovers} leftovers, {seconds:max.1} s",
    ),
    23: Row(
        "`worktree prepare` and `remove` killed −9 at each step and at random moments, {strikes} times",
        "the next run goes on, 0 orphans, other worktrees untouched",
        "{strikes} of {strikes}",
    ),
    24: Row(
        "200 events, 5 dead panes and 3 removed worktrees while no monitor runs; then two are started",
        "all seen ≤ 3 s after the start, 0 false differences, one of the two runs",
        "all seen after {seconds:max.1} s (the start included), 0 false, one runs",
    ),
    25: Row(
        "20 agents stuck among 20 busy ones",
        "20 noticed within their time + 1 s, 0 false, 0 jobs ended",
        "{cases} of {cases} cases",
    ),
}


def figures(path: Path) -> dict[int, dict[str, Values]]:
    """What was measured, by row and name."""
    found: dict[int, dict[str, Values]] = defaultdict(lambda: defaultdict(Values))
    for line in path.read_text("utf-8").splitlines():
        entry = json.loads(line)
        found[entry["row"]][entry["name"]].append(entry["value"])
    return found


def table(measured: dict[int, dict[str, Values]]) -> str:
    """The rows as Markdown. Raises KeyError for a row, or a figure of one, that nothing measured."""
    lines = ["| # | fault | promise | measured |", "|---|---|---|---|"]
    for number, row in sorted(ROWS.items()):
        cells = [text.format_map(dict(measured[number])) for text in row]
        lines.append(f"| {number} | {' | '.join(cells)} |")
    return "\n".join(lines)


def machine() -> str:
    """Where it was measured, without a date: the shape is what counts."""
    server_version = _first_line(str(nats_server.find_binary(None)), "--version").rpartition("v")[2]
    versions = [
        f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}",
        f"SQLite {sqlite3.sqlite_version}, nats-server {server_version}, {_first_line('tmux', '-V')}",
    ]
    load = os.getloadavg()[2]  # of the last quarter of an hour: other work on the machine makes every time longer
    return f"Measured on {', '.join(versions)}; load average {load:.0f}."


def _first_line(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()[0]


def main(figures_file: str, document: str) -> int:
    path = Path(document)
    before, _, rest = path.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        print(f"{path} has no scorecard between its marks", file=sys.stderr)
        return 1
    try:
        made = table(figures(Path(figures_file)))
    except KeyError as error:
        print(f"not measured: {error}", file=sys.stderr)
        return 1
    path.write_text(f"{before}{BEGIN}\n{machine()}\n\n{made}\n{END}{after}", "utf-8")
    print(made)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
