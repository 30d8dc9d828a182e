"""Folders of the comparison, and the one error that is reported to the user."""

import os
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
ROOT = BENCH.parent
PEERS = BENCH / ".peers"
BUILD = PEERS / "build"
PROGRAMS = BENCH / "c"
LOOPS = BENCH / "loops"
RESULTS = BENCH / "results"


def release(package_root):
    """The folder cargo puts this package's release binaries in."""
    target = os.environ.get("CARGO_TARGET_DIR")
    return (Path(target) if target else Path(package_root) / "target") / "release"


class Trouble(Exception):
    """Something is missing or broken; the message says what, where, and the way out."""
