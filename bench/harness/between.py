"""tradewind and MPI libraries over TCP between nodes that are network namespaces, in turns."""

import argparse
import contextlib
import json
import math
import re
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from . import installation, machine
from .main import Progress, interrupt
from .options import positive
from .places import BENCH, BUILD, LOOPS, RESULTS, ROOT, Trouble, release
from .processes import Failed, run
from .rows import SOLVE_ROWS

PEERS = ("mpich", "openmpi")
# Nonblocking collectives in one step over plain connections, which MPICH starts: c/sockets.c, without neighbour exchanges.
SOCKETS = "sockets"
LIMIT_S = 60
# What an interruption leaves, among the failures.
REST = "The rest of the run"
OPERATIONS = ("allreduce", "alltoall", "bcast", "neighbor")
# Blocking collectives, as the programs of bench/c and bench/loops take them: operation, bytes, no computation.
COLLECTIVES = ["barrier:0:0"] + [f"{operation}:{size}:0" for operation in OPERATIONS for size in (8, 1024, 65536, 1 << 20)]
# Nonblocking ones, alone and over a computation of so many iterations.
OVERLAPPED = ["barrier:0:100000"] + [
    f"{operation}:{size}:{iterations}" for operation in OPERATIONS for size, iterations in ((8, 100_000), (65536, 300_000), (1 << 20, 2_000_000))
]
# Bytes that the busiest rank sends for a message of one byte, by number of nodes, with the usual algorithm.
SENT = {
    "barrier": lambda nodes: 0,
    "allreduce": lambda nodes: 2 * (nodes - 1) / nodes,
    "alltoall": lambda nodes: nodes - 1,
    "bcast": lambda nodes: math.ceil(math.log2(nodes)),
    "neighbor": lambda nodes: 4 if any(nodes % side == 0 for side in range(2, math.isqrt(nodes) + 1)) else 2,
}
BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
# Rows in which a rank sends more than this are left out where ranks sleep.
MOST_BYTES = 4 << 20
# A row of sleeping ranks takes so many of its sleeps: 20 repetitions of two, and the rest.
SLEEPS = 60
# Messages: half a round trip, a stream in windows of 64, and an exchange that is posted before a computation.
MESSAGES = ["pingpong:8:0", "pingpong:4096:0", "pingpong:65536:0", f"pingpong:{1 << 20}:0", "stream:8:0", "latency:8:0", "rate:8:0", "posted:8:100000", f"posted:{1 << 20}:2000000"]
# Milliseconds of each of them in a round.
BUDGET_MS = 40
# What is measured with them: the program, its rows, the values of a row and their names in the table, and tradewind's contenders
# with their values of TRADEWIND_INTERNODE. The first of these is compared with the peers.
PROGRAMS = {
    "blocking": (COLLECTIVES, {"blocking_us": ""}, {"direct": "direct", "agent": "agent"}),
    "overlap": (OVERLAPPED, {"alone_us": ", alone", "exposed_us": ", exposed", "processor_us": ", processor"}, {"direct": "direct", "ranks": "ranks", "agent": "agent"}),
    "messages": (MESSAGES, {"message_us": ""}, {"tradewind": "direct"}),
    # The pipelined solve, with the best way of sending that each program has: microseconds of communication an iteration.
    "solve": ([f"solve:{SOLVE_ROWS}:0"], {"communication_us": ""}, {"tradewind": "direct"}),
}
# The contenders of sleeping ranks. `None` leaves the choice to tradewind, without the rights of the kernel engine.
IDLE = {"default": None, "direct": "direct", "agent": "agent"}
WITHOUT_RIGHTS = ["setpriv", "--bounding-set", "-bpf,-perfmon,-net_admin,-sys_admin"]
# Files of bench/c that have other names than their programs here.
SOURCES = {"solve": "banded_solve"}


def read(arguments):
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench/nodes", description=__doc__)
    parser.add_argument("--nodes", type=positive, action="append", metavar="N", help="how many nodes (2); repeatable, one number after the other")
    parser.add_argument("--link", metavar="RATE", help="speed of each node's link, such as 1gbit or 100mbit (as fast as memory is copied)")
    parser.add_argument("--mtu", type=positive, default=1500, help="largest IP packet (1500)")
    parser.add_argument("--rounds", type=positive, default=7, help="rounds, in which every contender has a turn (7)")
    parser.add_argument("--receiver-core", action="store_true", help="packets are received on the receiver's core (RPS)")
    parser.add_argument("--program", action="append", choices=PROGRAMS, help="measure this part only; repeatable")
    parser.add_argument("--only", action="append", metavar="ROW", help="measure collectives whose row contains ROW, such as barrier; repeatable")
    parser.add_argument("--contender", action="append", metavar="NAME", help="measure contenders whose name contains NAME only; repeatable")
    parser.add_argument("--idle", action="store_true", help="ranks sleep between start and wait, as if accelerators computed: a millisecond, and twice the time that the busiest rank's bytes take on the link")
    parser.add_argument("--beside", type=Path, metavar="ROOT", help="measure another checkout's builds in turns with this one's, as `before`")
    parser.add_argument("--tuned", type=Path, metavar="FILE", help="measure this build with the decision table in FILE in turns with the one without, as `tuned`")
    parser.add_argument("--skip-build", action="store_true", help="use what earlier runs installed and built")
    options = parser.parse_args(arguments)
    options.nodes = options.nodes or [2]
    if options.idle:
        if not options.link:
            parser.error("--idle derives the length of the sleep from the link: give --link, such as --link 1gbit")
        if options.program not in (None, ["overlap"]):
            parser.error("--idle is for the program overlap only")
        options.program = ["overlap"]
    if options.link and not re.fullmatch(rf"[1-9][0-9]*({'|'.join(BITS)})", options.link):
        parser.error(f"--link {options.link} is no rate: give a whole number with one of {', '.join(BITS)}, such as 1gbit")
    return options


def rows_of(program, options):
    """The rows of a program that these options select."""
    rows = [row for row in PROGRAMS[program][0] if is_wanted(row, options.only)]
    return [idle_row(row, options) for row in rows if row_bytes(row, options) <= MOST_BYTES] if options.idle else rows


def own_contenders(program, options):
    """tradewind's contenders, with their values of TRADEWIND_INTERNODE."""
    return IDLE if options.idle else PROGRAMS[program][2]


def row_bytes(row, options):
    """The bytes that the busiest rank sends."""
    operation, size, _ = row.split(":")
    return SENT[operation](options.nodes) * int(size)


def idle_row(row, options):
    """The row with a sleep in place of its computation."""
    number, unit = re.fullmatch(r"([0-9]+)([a-z]+)", options.link).groups()
    length_ns = 1e6 + 2 * 8e9 * row_bytes(row, options) / (float(number) * BITS[unit])
    operation, size, _ = row.split(":")
    return f"{operation}:{size}:{int(length_ns)}ns"


def is_wanted(name, wanted):
    """Returns true if an option that selects by parts of names, or is absent, selects this name."""
    return not wanted or any(part in name for part in wanted)


def build(say):
    """The peers, their program, and tradewind."""
    for peer in PEERS:
        installation.install(peer, say)
    say("building")
    for peer in PEERS:
        compiler = installation.environment(peer) / "bin" / "mpicc"
        BUILD.mkdir(parents=True, exist_ok=True)
        for program in (SOURCES.get(program, program) for program in PROGRAMS):
            command = [compiler, *installation.FLAGS, BENCH / "c" / f"{program}.c", "-o", BUILD / f"{program}.{peer}"]
            installation.checked(command, f"compiling {program}.c with {peer}'s mpicc", "This is a fault of bench/c.")
    command = [installation.environment("mpich") / "bin" / "mpicc", *installation.FLAGS, BENCH / "c" / "sockets.c", "-o", program_of(SOCKETS, "overlap")]
    installation.checked(command, "compiling sockets.c with mpich's mpicc", "This is a fault of bench/c.")
    cargo = ["cargo", "build", "--release", "--quiet"]
    installation.checked([*cargo, "-p", "tradewind-cli"], "building tradewind", "See what cargo says.", cwd=ROOT)
    installation.checked(cargo, "building bench/loops", "See what cargo says.", cwd=LOOPS)
    for package, example in (("virtual-nodes", "nodes"), ("measure", "banded_solve")):
        command = [*cargo, "-p", f"tradewind-{package}", "--example", example]
        installation.checked(command, f"building the example {example}", "See what cargo says.", cwd=ROOT)


@contextlib.contextmanager
def nodes(options, enter):
    """Namespaces for the peers, for as long as the block runs: a line of JSON each. `enter` becomes the program that enters them."""
    command = [release(ROOT) / "examples" / "nodes", str(options.nodes), str(options.mtu), f"enter={enter}"]
    holder = subprocess.Popen(
        [str(part) for part in command] + (["receiver-core"] if options.receiver_core else []) + ([f"link={options.link}"] if options.link else []),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )
    try:
        lines = [holder.stdout.readline() for _ in range(options.nodes)]
        if not all(lines):
            raise Trouble("the nodes could not be made: it needs root, and ip and tc of iproute2; see above")
        yield [json.loads(line) for line in lines]
    finally:
        holder.stdin.close()
        holder.wait(timeout=10)


def cores(place, options):
    """Where a library's rank on a node may run, as `taskset` wants it: where the node receives, or anywhere."""
    return str(place["core"]) if options.receiver_core else f"0-{machine.cores() - 1}"


def launchers(places, folder, options):
    """The command line in front of a program, for each way to start a peer's, by name."""
    nodes_file, count = folder / "nodes", len(places)
    nodes_file.write_text("".join(f"{place['address']}\n" for place in places))
    device, first = places[0]["interface"], places[0]
    # Open MPI starts the ranks of its own node without `enter`.
    inside = ["taskset", "--cpu-list", cores(first, options), "nsenter", f"--net={first['namespace']}"]
    mpich = [
        *inside, str(installation.environment("mpich") / "bin" / "mpiexec"), "-launcher", "ssh", "-launcher-exec", str(folder / "enter"),
        "-localhost", "no-host-has-this-name", "-iface", device, "-f", str(nodes_file), "-ppn", "1", "-n", str(count),
    ]
    openmpi_nodes = folder / "openmpi-nodes"
    openmpi_nodes.write_text("".join(f"{place['address']} slots=1\n" for place in places))
    crowded = count > machine.cores()
    openmpi = [
        *inside, str(installation.environment("openmpi") / "bin" / "mpiexec"), "--allow-run-as-root", "--hostfile",
        str(openmpi_nodes), "--prtemca", "plm", "ssh", "--prtemca", "plm_ssh_agent", str(folder / "enter"), "-n", str(count), "--map-by", "node",
        "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", device,
        *(["--mca", "mpi_yield_when_idle", "1"] if crowded else []),
    ]
    ucx = ["-genv", "UCX_TLS", "tcp,self", "-genv", "UCX_NET_DEVICES", device]
    ofi = ["-genv", "MPIR_CVAR_CH4_NETMOD", "ofi", "-genv", "FI_PROVIDER", "tcp", "-genv", "FI_TCP_IFACE", device]
    return {"mpich": mpich, "mpich, ucx": [*mpich, *ucx], "mpich, ofi": [*mpich, *ofi], "openmpi": openmpi}


def program_of(contender, program):
    """The program of a peer."""
    return str(BUILD / f"{SOURCES.get(program, program)}.{contender.partition(',')[0]}")


def own_program(program, root):
    """tradewind's program, as words in front of its arguments."""
    if program == "solve":
        return [str(release(root) / "examples" / "banded_solve"), "--version", "channel", "--format", "json"]
    return [str(release(root / LOOPS.relative_to(ROOT)) / "loops"), program, "private"]


def solve_arguments(is_own):
    """One round of so many solves: the example has options, bench/c/banded_solve.c has ROWS ROUNDS SOLVES."""
    figures = [str(SOLVE_ROWS), "1", str(BUDGET_MS // 2)]
    return [part for pair in zip(("--rows", "--rounds", "--solves"), figures) for part in pair] if is_own else figures


def collective_commands(places, folder, options, number, program):
    """The command line of each contender's collectives in a round, by name."""
    started = launchers(places, folder, options)
    rows, ours = rows_of(program, options), own_contenders(program, options)

    def arguments(is_own):
        return solve_arguments(is_own) if program == "solve" else [str(BUDGET_MS), str(number), "10", *rows]

    found = {name: [*launcher, program_of(name, program), *arguments(False)] for name, launcher in started.items() if name != "mpich"}
    in_one_step = [row for row in rows if not row.startswith("neighbor")]
    if program == "overlap" and in_one_step:
        found[SOCKETS] = [*started["mpich, ucx"], program_of(SOCKETS, program), str(BUDGET_MS), str(number), "10", *in_one_step]
    builds = {"": (ROOT, "")}
    if options.beside:
        builds["before, "] = (options.beside, "")
    if options.tuned:
        builds["tuned, "] = (ROOT, options.tuned.resolve())
    for prefix, (root, decisions) in builds.items():
        for contender, backend in ours.items():
            variables = {"TRADEWIND_COMMAND": release(root) / "tradewind", "TRADEWIND_INTERNODE": backend or "", "TRADEWIND_DECISIONS": decisions}
            settings = [word for name, value in variables.items() for word in ("-genv", name, str(value))]
            start = [] if backend else WITHOUT_RIGHTS
            found[prefix + contender] = [*started["mpich"], *settings, *start, *own_program(program, root), *arguments(True)]
    return {name: command for name, command in found.items() if rows and is_wanted(name, options.contender)}


def measure_collectives(places, folder, options, say, program, values, failures):
    """All rounds of a program's collectives: adds values by contender, then by collective; and what failed."""
    for number in range(options.rounds):
        say(f"{program} collectives, round {number + 1} of {options.rounds}")
        for contender, command in collective_commands(places, folder, options, number, program).items():
            try:
                found = run(command, {}, limit_s(program, options))
            except Failed as failure:
                failures[f"{contender}, {program} collectives"] = str(failure)
                continue
            if program == "solve":
                best = min(found, key=lambda line: line["communication_us"][0])
                found = [{**best, "op": program, "bytes": SOLVE_ROWS}]
            for line in found:
                for field in PROGRAMS[program][1]:
                    values.setdefault(contender, {}).setdefault((line["op"], line["bytes"], field), []).append(line[field][0])


def limit_s(program, options):
    """Seconds that a contender's rows may take in a round."""
    sleeps = (row.split(":")[2] for row in rows_of(program, options))
    return LIMIT_S + SLEEPS * 1e-9 * sum(int(sleep[:-2]) for sleep in sleeps if sleep.endswith("ns"))


def in_words(program, values):
    """A program's values with a text in place of each operation, size and field."""

    def text(operation, size, field):
        unit = "rows" if program == "solve" else "bytes"
        return operation + (f", {size} {unit}" if size else "") + PROGRAMS[program][1][field]

    return {contender: {text(*key): times for key, times in rows.items()} for contender, rows in values.items()}


def measure(options, say):
    """All rounds of all programs, or those before an interruption: values of the programs, and what failed."""
    collectives, failures = {}, {}
    with tempfile.TemporaryDirectory() as name, nodes(options, Path(name) / "enter") as places:
        here = (places, Path(name), options, say)
        try:
            for program in (program for program in PROGRAMS if is_wanted(program, options.program)):
                measure_collectives(*here, program, collectives.setdefault(program, {}), failures)
        except KeyboardInterrupt:
            if not any(collectives.values()):
                raise
            failures[REST] = "it was interrupted"
    return collectives, failures


def middle(values, engine, what):
    """Median over the rounds, if there are any."""
    found = values.get(engine, {}).get(what)
    return statistics.median(found) if found else None


def figure(value):
    """A time in the table, with more digits where it is short."""
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def collective_table(program, values, options):
    """A program's collectives beside the best peer of each, as lines."""
    own = list(own_contenders(program, options))
    names = [*(name for name in values if name not in own), *(name for name in own if name in values)]
    lines = ["", f"| {program}, µs a call | " + " | ".join(names) + f" | {own[0]} / best MPI |", "|---|" + "---|" * (len(names) + 1)]
    for what in dict.fromkeys(what for contender in values.values() for what in contender):
        cells = []
        for name in names:
            found = values[name].get(what)
            cells.append(f"{figure(statistics.median(found))} [{figure(min(found))}, {figure(max(found))}]" if found else "–")
        theirs = [middle(values, name, what) for name in names if name.startswith(PEERS)]
        theirs = [value for value in theirs if value]
        ours = middle(values, own[0], what)
        ratio = ours / min(theirs) if ours and theirs and min(theirs) > 0 else None
        cells.append("–" if ratio is None else f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}")
        lines.append(f"| {what} | " + " | ".join(cells) + " |")
    return lines


def sleeps_in_words(options):
    """The lengths of the sleeps, in milliseconds."""
    rows = (row.split(":") for row in rows_of("overlap", options))
    return ", ".join(f"{name} of {size} bytes {int(sleep[:-2]) / 1e6:.1f} ms" for name, size, sleep in rows)


def report(collectives, failures, options, described):
    """The tables, as text."""
    lines = [
        f"# {options.nodes} nodes (network namespaces, MTU {options.mtu}, links {options.link or 'unlimited'}), {options.rounds} rounds in turns",
        "",
        f"{described['processor']}, {described['cores']} cores, Linux {described['kernel']}, {described['date']}. Packets are "
        + ("received on the receiver's core (RPS)." if options.receiver_core else "received inside the sender's call (veth without RPS)."),
        "Medians over the rounds, least and most in brackets; µs unless the row says otherwise."
        + (" Ranks sleep between start and wait: " + sleeps_in_words(options) + "." if options.idle else ""),
    ]
    for program, found in collectives.items():
        lines += collective_table(program, found, options)
    lines += [f"\n{contender} failed: {why}" for contender, why in failures.items()]
    return "\n".join(lines) + "\n"


def main(arguments):
    """Runs everything; the exit status."""
    signal.signal(signal.SIGTERM, interrupt)
    options, say = read(arguments), Progress()
    try:
        if not options.skip_build:
            build(say)
        failures = []
        for count in options.nodes:
            failures += measure_nodes(argparse.Namespace(**{**vars(options), "nodes": count}), say)
            if REST in failures:
                break
    except Trouble as trouble:
        print(f"bench/nodes: {trouble}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 1 if failures else 0


def measure_nodes(options, say):
    """Runs everything with one number of nodes, and writes what was found; what failed."""
    described = machine.describe(PEERS)
    collectives, failures = measure(options, say)
    collectives = {program: in_words(program, found) for program, found in collectives.items()}
    text = report(collectives, failures, options, described)
    RESULTS.mkdir(parents=True, exist_ok=True)
    way = "receiver-core" if options.receiver_core else "sender-call"
    stem = f"{described['fingerprint']}-{options.nodes}-nodes-{way}-{described['date'][:16].replace(' ', 'T').replace(':', '')}"
    everything = {"machine": described, "options": {name: str(value) for name, value in vars(options).items()}, "collectives": collectives, "failures": failures}
    (RESULTS / f"{stem}.json").write_text(json.dumps(everything, indent=1) + "\n")
    (RESULTS / f"{stem}.md").write_text(text)
    print(text)
    return failures
