"""What a run has seen, kept in a file from which its table can be drawn again."""

import json
from dataclasses import asdict

from .places import Trouble
from .rounds import Record

# What all lines of one start of a program have in common.
SHARED = ("program", "ranks", "configuration", "library", "round", "at_s", "floor_ns")
# Digits of a figure: the fifth is noise.
DIGITS = 5


def rounded(value):
    """The value with figures cut to the digits that mean something."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return value


def starts(lines):
    """The lines of each start, with what they have in common said once."""
    found = {}
    for line in lines:
        shared = {name: rounded(line[name]) for name in SHARED}
        own = {name: rounded(value) for name, value in line.items() if name not in SHARED}
        found.setdefault(json.dumps(shared), (shared, []))[1].append(own)
    return [{**shared, "lines": own} for shared, own in found.values()]


def text(chosen, record, described):
    """The file's text: a line of its own for each start of a program."""
    parts = {name: value for name, value in asdict(record).items() if name != "lines"}
    parts["iterations"] = {"/".join(map(str, key)): value for key, value in record.iterations.items()}
    head = {"machine": described, "options": chosen, **parts}
    lines = [f"{json.dumps(name)}: {json.dumps(value, default=str)}" for name, value in head.items()]
    each = ",\n".join(json.dumps(start, separators=(",", ":")) for start in starts(record.lines))
    return "{\n" + ",\n".join([*lines, f'"starts": [\n{each}\n]']) + "\n}\n"


def read(path):
    """The options, the record and the machine that a file tells of."""
    try:
        kept = json.loads(path.read_text())
        lines = [{**{name: start[name] for name in SHARED}, **line} for start in kept["starts"] for line in start["lines"]]
        record = Record(floors=kept["floors"], lines=lines, left_out=kept["left_out"], stopped=kept["stopped"],
                        failures=kept["failures"])
        return kept["options"], record, kept["machine"]
    except OSError as error:
        raise Trouble(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise Trouble(f"{path} is no file of bench/peers ({error}): give a JSON file of bench/results.") from error
