"""Runs the `tradewind` command: `python -m tradewind`."""

import os
import sys

from tradewind._command import command

if __name__ == "__main__":
    path = command()
    os.execv(path, [path, *sys.argv[1:]])
