"""From the command line to the table."""

import json
import shutil
import signal
import sys
import time
from dataclasses import asdict

from . import installation, machine, options, rows, summary, table
from .places import RESULTS, Trouble
from .rounds import Run


class Progress:
    """Tells a person at a terminal what is being measured; elsewhere only what stays true."""

    def __init__(self, stream=sys.stderr):
        self.stream, self.terminal, self.start = stream, stream.isatty(), time.monotonic()

    def __call__(self, text, passing=False):
        if passing and not self.terminal:
            return
        stamp = f"[{time.monotonic() - self.start:4.0f} s] {text}"
        if self.terminal:
            width = shutil.get_terminal_size().columns - 1
            self.stream.write("\r\033[K" + (stamp[:width] if passing else stamp + "\n"))
        else:
            self.stream.write(stamp + "\n")
        self.stream.flush()

    def close(self):
        """Takes the passing line away."""
        if self.terminal:
            self.stream.write("\r\033[K")


def results(chosen, record, found, described):
    """Everything seen, for whoever doubts the table."""
    return {
        "machine": described,
        "options": vars(chosen),
        "floors": record.floors,
        "iterations": {"/".join(map(str, key)): value for key, value in record.iterations.items()},
        "rows": [
            {"name": one.row.name, "reached": one.reached, **{key: value for key, value in asdict(one).items() if key != "row"},
             "reach": one.row.reach}
            for one in found
        ],
        "lines": record.lines,
        "failures": record.failures,
        "stopped": record.stopped,
        "left_out": record.left_out,
    }


def write(chosen, record, found, described, report):
    """The results file and the table beside it."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    stem = f"{described['fingerprint']}-{described['date'][:16].replace(' ', 'T').replace(':', '')}"
    raw = RESULTS / f"{stem}.json"
    raw.write_text(json.dumps(results(chosen, record, found, described), indent=1) + "\n")
    (RESULTS / f"{stem}.md").write_text(report)
    return raw


def interrupt(*_):
    """A polite end is an interruption like any other: programs are ended, and what was measured is written."""
    raise KeyboardInterrupt


def main(arguments):
    """Runs everything; the exit status."""
    signal.signal(signal.SIGTERM, interrupt)
    chosen = options.read(arguments)
    say = Progress()
    try:
        wanted = rows.chosen(chosen.only)
        if chosen.list:
            print("\n".join(row.name for row in wanted))
            return 0
        installation.prepare(chosen, say)
        described = machine.describe(chosen.peers)
        say(f"measuring {len(wanted)} rows, {chosen.rounds} rounds")
        record = Run(chosen, wanted, machine.cores(), say).go()
    except Trouble as trouble:
        say.close()
        print(f"bench/peers: {trouble}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        say.close()
        return 130
    found = summary.outcomes(wanted, record)
    report = table.whole(found, record, described)
    raw = write(chosen, record, found, described, report)
    say.close()
    print(report)
    say(f"written to {raw.relative_to(RESULTS.parent.parent)} and {raw.with_suffix('.md').name}")
    return 0
