"""The agent over libfabric and over TCP, and programs that use either without tradewind, between two namespaces, in turns."""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from . import installation, machine
from .between import ENTER, nodes
from .main import Progress, interrupt
from .options import positive
from .places import BENCH, BUILD, LOOPS, RESULTS, ROOT, Trouble, release
from .processes import Failed, run

LIMIT_S = 60
# Nonblocking collectives over a computation, as bench/loops takes them.
OVERLAPPED = ["allreduce:8:100000", "bcast:65536:300000", "bcast:1048576:2000000"]
PATHS = ("raw TCP", "agent over TCP", "raw libfabric", "agent over libfabric")
GOAL = 1.15


def read(arguments):
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench/fabric", description=__doc__)
    parser.add_argument("--provider", default="tcp", help="of libfabric, perhaps with +read or another protocol of long messages (tcp)")
    parser.add_argument("--library", help="libfabric.so.1 (the system's)")
    parser.add_argument("--mtu", type=positive, default=1500, help="largest IP packet (1500)")
    parser.add_argument("--rounds", type=positive, default=7, help="rounds, in which every program has a turn (7)")
    parser.add_argument("--bind", action="store_true", help="each node on a core of its own; otherwise both on all cores")
    parser.add_argument("--overlap", action="store_true", help="nonblocking collectives over a computation, too")
    parser.add_argument("--skip-build", action="store_true", help="use what earlier runs built")
    return parser.parse_args(arguments)


def build(options, say):
    """The program without tradewind, and tradewind."""
    say("building")
    BUILD.mkdir(parents=True, exist_ok=True)
    command = ["cc", *installation.FLAGS, BENCH / "c" / "fabric.c", "-o", BUILD / "fabric", "-lfabric"]
    installation.checked(command, "compiling fabric.c", "It needs a C compiler and libfabric-dev.")
    cargo = ["cargo", "build", "--release", "--quiet"]
    networks = [*cargo, "-p", "tradewind-measure", "--example", "networks"]
    installation.checked(networks, "building the example networks", "See what cargo says.", cwd=ROOT)
    holder = [*cargo, "-p", "tradewind-virtual-nodes", "--example", "nodes"]
    installation.checked(holder, "building the nodes", "See what cargo says.", cwd=ROOT)
    if options.overlap:
        installation.install("mpich", say)
        installation.checked([*cargo, "-p", "tradewind-cli"], "building tradewind", "See what cargo says.", cwd=ROOT)
        installation.checked(cargo, "building bench/loops", "See what cargo says.", cwd=LOOPS)


def inside(place, command, core=None):
    """A command on a node, perhaps on one core."""
    bound = [] if core is None else ["taskset", "-c", str(core)]
    return ["nsenter", f"--net={place['namespace']}", *bound, *map(str, command)]


def variables(options):
    """What both programs find in their environment: the library, and its interface."""
    found = {}
    if options.library:
        folder = os.path.dirname(os.path.abspath(options.library))
        found = {"TRADEWIND_LIBFABRIC": options.library, "LD_LIBRARY_PATH": folder}
    return found


def pair(program, places, options):
    """The lines of a program that runs on both nodes, one round of it."""
    first, second = places
    # The protocol of long messages is tradewind's.
    provider = options.provider if program.name == "networks" else options.provider.partition("+")[0]
    waiting = [program, "1", first["address"], provider]
    environment = {**os.environ, **variables(options)}
    cores = (0, 1) if options.bind else (None, None)
    other = subprocess.Popen(inside(first, waiting, cores[0]), env=environment, stdin=subprocess.DEVNULL)
    try:
        connecting = [program, "1", second["address"], provider, first["address"]]
        return run(inside(second, connecting, cores[1]), variables(options), LIMIT_S)
    finally:
        try:
            other.wait(timeout=5)
        except subprocess.TimeoutExpired:
            other.kill()
            other.wait()


def overlapped(network, places, table, options, number):
    """The lines of nonblocking collectives by the agent over a network."""
    first = places[0]
    hosts = ",".join(place["address"] for place in places)
    settings = {
        "TRADEWIND_COMMAND": release(ROOT) / "tradewind", "TRADEWIND_INTERNODE": "agent", "TRADEWIND_DECISIONS": "",
        "TRADEWIND_NETWORK": network, **variables(options),
    }
    command = inside(first, [
        installation.environment("mpich") / "bin" / "mpiexec", "-launcher", "ssh", "-launcher-exec", ENTER, "-localhost",
        "no-host-has-this-name", "-iface", first["interface"], "-hosts", hosts, "-ppn", "1", "-n", "2",
        *(word for name, value in settings.items() for word in ("-genv", name, value)),
        release(LOOPS) / "loops", "overlap", "private", "40", number, "10", *OVERLAPPED,
    ])
    return run(command, {"TRADEWIND_BENCH_NODES": str(table)}, LIMIT_S)


def measure(options, folder, say):
    """All rounds: the values of each path by size, those of collectives, and what failed."""
    values, collectives, failures = {}, {}, {}
    with nodes(2, options.mtu, False) as places:
        table = folder / "namespaces"
        table.write_text("".join(f"{place['address']} {place['namespace']} 0-{machine.cores() - 1}\n" for place in places))
        for number in range(options.rounds):
            say(f"round {number + 1} of {options.rounds}")
            for program in (BUILD / "fabric", release(ROOT) / "examples" / "networks"):
                try:
                    for line in pair(program, places, options):
                        for field in ("us", "processor_us"):
                            values.setdefault((line["path"], line["bytes"], field), []).append(line[field])
                except Failed as failure:
                    failures[program.name] = str(failure)
            for network in ("tcp", f"fabric:{options.provider}") if options.overlap else ():
                try:
                    for line in overlapped(network, places, table, options, number):
                        for field in ("alone_us", "exposed_us"):
                            collectives.setdefault((network, f"{line['op']}, {line['bytes']} bytes", field), []).append(line[field][0])
                except Failed as failure:
                    failures[f"overlap, {network}"] = str(failure)
    return values, collectives, failures


def cell(found, places=1):
    """A median with the least and the most, for the table."""
    if not found:
        return "–"
    return f"{statistics.median(found):.{places}f} [{min(found):.{places}f}, {max(found):.{places}f}]"


def report(values, collectives, failures, options, described):
    """The tables, as text."""
    place = "a core for each" if options.bind else "both on all cores"
    lines = [
        f"# libfabric's provider {options.provider} between two namespaces, {place}, MTU {options.mtu}, {options.rounds} rounds in turns",
        "",
        f"{described['processor']}, {described['cores']} cores, Linux {described['kernel']}, {described['date']}. "
        f"Library: {options.library or 'the system'}. Medians over the rounds, least and most in brackets.",
    ]
    sizes = list(dict.fromkeys(size for _, size, _ in values))
    for field, title in (("us", "8 bytes: µs, half a round trip; others: MB/s"), ("processor_us", "processor µs of both nodes for a message")):
        lines += ["", f"| {title} | " + " | ".join(PATHS) + " | agent / raw, libfabric | agent: libfabric / TCP |", "|---|" + "---|" * 6]
        for size in sizes:
            found = {path: values.get((path, size, field), []) for path in PATHS}
            rate = field == "us" and size > 8
            shown = {path: [size / value for value in times] if rate else times for path, times in found.items()}
            cells = [cell(shown[path], 0 if rate else 1) for path in PATHS]
            ratios = []
            for ours, theirs in (("agent over libfabric", "raw libfabric"), ("agent over libfabric", "agent over TCP")):
                both = found[ours] and found[theirs]
                ratios.append(f"{statistics.median(found[ours]) / statistics.median(found[theirs]):.2f}" if both else "–")
            lines.append(f"| {size} | " + " | ".join([*cells, *ratios]) + " |")
    if collectives:
        networks = list(dict.fromkeys(network for network, _, _ in collectives))
        lines += ["", "| nonblocking, µs | " + " | ".join(networks) + " |", "|---|" + "---|" * len(networks)]
        for what, field in dict.fromkeys((what, field) for _, what, field in collectives):
            cells = [cell(collectives.get((network, what, field))) for network in networks]
            lines.append(f"| {what}, {field.removesuffix('_us')} | " + " | ".join(cells) + " |")
    lines += ["", f"Ratios are of times, so less is better; the goal beside the program without tradewind is {GOAL}."]
    lines += [f"\n{program} failed: {why}" for program, why in failures.items()]
    return "\n".join(lines) + "\n"


def main(arguments):
    """Runs everything; the exit status."""
    signal.signal(signal.SIGTERM, interrupt)
    options, say = read(arguments), Progress()
    try:
        if not options.skip_build:
            build(options, say)
        described = machine.describe(("mpich",) if options.overlap else ())
        with tempfile.TemporaryDirectory() as name:
            values, collectives, failures = measure(options, Path(name), say)
    except Trouble as trouble:
        print(f"bench/fabric: {trouble}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    text = report(values, collectives, failures, options, described)
    RESULTS.mkdir(parents=True, exist_ok=True)
    date = described["date"][:16].replace(" ", "T").replace(":", "")
    stem = f"{described['fingerprint']}-libfabric-{options.provider.replace(';', '-')}-{date}"
    everything = {"machine": described, "options": vars(options), "failures": failures}
    everything["values"] = {" ".join(map(str, key)): found for key, found in {**values, **collectives}.items()}
    (RESULTS / f"{stem}.json").write_text(json.dumps(everything, indent=1) + "\n")
    (RESULTS / f"{stem}.md").write_text(text)
    print(text)
    return 1 if failures else 0
