"""The command line of bench/peers."""

import argparse
from pathlib import Path

PEERS = ("mpich", "openmpi", "intel")


def peers(text):
    """Reads a comma-separated list of peers."""
    chosen = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in chosen if name not in PEERS]
    if unknown or not chosen:
        raise argparse.ArgumentTypeError(f"'{text}': choose from {','.join(PEERS)}")
    return chosen


def positive(text):
    """Reads a whole number above zero."""
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}': give a whole number above zero")
    return int(text)


def percent(text):
    """Reads a whole number from 0 to 100."""
    if not text.isdigit() or int(text) > 100:
        raise argparse.ArgumentTypeError(f"'{text}': give a whole number from 0 to 100")
    return int(text)


def read(arguments):
    """The options, with --quick resolved into rounds and budget."""
    parser = argparse.ArgumentParser(
        prog="bench/peers", description="Measure tradewind beside MPICH, Open MPI and Intel MPI on this machine."
    )
    parser.add_argument("--quick", action="store_true", help="3 short rounds: a first impression, not evidence")
    parser.add_argument("--rounds", type=positive, help="interleaved rounds (default 7, quick 3)")
    parser.add_argument("--budget", type=positive, metavar="MS", help="for each measurement of a row (default 60, quick 15)")
    parser.add_argument("--limit", type=positive, metavar="MINUTES", help="start nothing after this (default 120, quick 30)")
    parser.add_argument(
        "--only",
        action="append",
        metavar="ROW",
        default=[],
        help="rows with a name that contains this or matches it as a pattern, such as exposed/barrier or '*/65536/2'; repeatable",
    )
    parser.add_argument("--peers", type=peers, default=list(PEERS), help="comma-separated: " + ",".join(PEERS))
    parser.add_argument("--engine", default="peers", help="tradewind's engine (default peers)")
    parser.add_argument("--tuned", type=Path, metavar="FILE", help="measure with the decision table in FILE in turns with the run without one")
    parser.add_argument("--skew", type=percent, default=10, metavar="PERCENT", help="largest skew of the starts, of the computation")
    parser.add_argument("--seed", type=positive, default=1, help="of the skews and of the order in each round")
    parser.add_argument("--all-configurations", action="store_true", help="do not leave out the ones the first look shows to be slow")
    parser.add_argument(
        "--without", action="append", metavar="NAME", default=[], help="do not start the configuration with this name, such as mpich; repeatable"
    )
    parser.add_argument("--without-tradewind", action="store_true", help="the peers only")
    parser.add_argument("--skip-build", action="store_true", help="use what earlier runs installed and built")
    parser.add_argument("--redraw", type=Path, metavar="FILE", help="draw the table of a JSON file of bench/results again, and stop")
    parser.add_argument("--list", action="store_true", help="print the names of the rows and stop")
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (3 if options.quick else 7)
    options.budget = options.budget or (15 if options.quick else 60)
    options.limit = options.limit or (30 if options.quick else 120)
    return options
