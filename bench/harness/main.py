"""From the command line to the table."""

import shutil
import signal
import sys
import time

from . import installation, machine, options, results, rows, summary, table
from .places import RESULTS, Trouble
from .rounds import Run


class Progress:
    """Tells a person at a terminal what is being measured; elsewhere only what stays true."""

    def __init__(self, stream=sys.stderr):
        self.stream, self.terminal, self.start = stream, stream.isatty(), time.monotonic()

    def __call__(self, text, passing=False):
        if passing and not self.terminal:
            return
        line = f"[{time.monotonic() - self.start:4.0f} s] {text}"
        if self.terminal:
            width = shutil.get_terminal_size().columns - 1
            self.stream.write("\r\033[K" + (line[:width] if passing else line + "\n"))
        else:
            self.stream.write(line + "\n")
        self.stream.flush()

    def close(self):
        """Takes the passing line away."""
        if self.terminal:
            self.stream.write("\r\033[K")


def write(chosen, record, described, report):
    """The file with all that was seen, and the table beside it."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    stem = f"{described['fingerprint']}-{described['date'][:16].replace(' ', 'T').replace(':', '')}"
    raw = RESULTS / f"{stem}.json"
    raw.write_text(results.text(vars(chosen), record, described))
    (RESULTS / f"{stem}.md").write_text(report)
    return raw


def redraw(path):
    """The table of a run that was kept."""
    options_then, record, described = results.read(path)
    found = summary.outcomes(rows.chosen(options_then["only"]), record)
    # Rows that there are by now need not have been there then.
    return table.whole([one for one in found if one.ours or one.best], record, described)


def interrupt(*_):
    """A polite end is an interruption like any other: programs are ended, and what was measured is written."""
    raise KeyboardInterrupt


def main(arguments):
    """Runs everything; the exit status."""
    signal.signal(signal.SIGTERM, interrupt)
    chosen = options.read(arguments)
    say = Progress()
    try:
        if chosen.redraw:
            print(redraw(chosen.redraw), end="")
            return 0
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
    raw = write(chosen, record, described, report)
    say.close()
    print(report)
    say(f"written to {raw.relative_to(RESULTS.parent.parent)} and {raw.with_suffix('.md').name}")
    return 0
