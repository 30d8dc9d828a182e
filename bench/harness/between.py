"""tradewind and MPI libraries over TCP between nodes that are network namespaces, in turns."""

import argparse
import contextlib
import json
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from . import installation, machine
from .main import Progress, interrupt
from .options import positive
from .places import BENCH, BUILD, RESULTS, ROOT, Trouble, release
from .processes import Failed, output, run

ENTER = BENCH / "harness" / "enter"
PEERS = ("mpich", "openmpi")
# What is compared with the peers: the claim's name, what it must reach beside the best of them.
AGAINST_PEERS = {"barrier": 0.6, "exchange under computation, exposed": 0.2}
LIMIT_S = 60


def read(arguments):
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench/nodes", description=__doc__)
    parser.add_argument("--nodes", type=positive, default=2, help="how many nodes (2)")
    parser.add_argument("--mtu", type=positive, default=1500, help="largest IP packet (1500)")
    parser.add_argument("--rounds", type=positive, default=7, help="rounds, in which every contender has a turn (7)")
    parser.add_argument("--calls", type=positive, default=500, help="calls of a round (500)")
    parser.add_argument("--computation", type=positive, default=250, metavar="US", help="over the exchange (250)")
    parser.add_argument("--receiver-core", action="store_true", help="packets are received on the receiver's core (RPS)")
    parser.add_argument("--skip-build", action="store_true", help="use what earlier runs installed and built")
    return parser.parse_args(arguments)


def build(say):
    """The peers, their program, and tradewind."""
    for peer in PEERS:
        installation.install(peer, say)
    say("building")
    for peer in PEERS:
        compiler = installation.environment(peer) / "bin" / "mpicc"
        command = [compiler, *installation.FLAGS, BENCH / "c" / "nodes.c", "-o", BUILD / f"nodes.{peer}"]
        BUILD.mkdir(parents=True, exist_ok=True)
        installation.checked(command, f"compiling nodes.c with {peer}'s mpicc", "This is a fault of bench/c.")
    cargo = ["cargo", "build", "--release", "--quiet"]
    installation.checked([*cargo, "-p", "tradewind-cli"], "building tradewind", "See what cargo says.", cwd=ROOT)
    nodes = [*cargo, "-p", "tradewind-virtual-nodes", "--example", "nodes"]
    installation.checked(nodes, "building the nodes", "See what cargo says.", cwd=ROOT)


@contextlib.contextmanager
def nodes(count, mtu, receiver_core):
    """Namespaces for the peers, for as long as the block runs: a line of JSON each."""
    command = [release(ROOT) / "examples" / "nodes", str(count), str(mtu)]
    holder = subprocess.Popen(
        [str(part) for part in command] + (["receiver-core"] if receiver_core else []),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )
    try:
        lines = [holder.stdout.readline() for _ in range(count)]
        if not all(lines):
            raise Trouble("the nodes could not be made: it needs root, and ip of iproute2; see above")
        yield [json.loads(line) for line in lines]
    finally:
        holder.stdin.close()
        holder.wait(timeout=10)


def cores(place, options):
    """Where a library's rank on a node may run, as `taskset` wants it: where the node receives, or anywhere."""
    return str(place["core"]) if options.receiver_core else f"0-{machine.cores() - 1}"


def commands(places, folder, options):
    """The command line of each way to run a peer, by name."""
    nodes_file, count = folder / "nodes", len(places)
    nodes_file.write_text("".join(f"{place['address']}\n" for place in places))
    device, first = places[0]["interface"], places[0]
    # Open MPI starts the ranks of its own node without `enter`.
    inside = ["taskset", "--cpu-list", cores(first, options), "nsenter", f"--net={first['namespace']}"]
    arguments = [str(options.calls), str(options.computation)]
    mpich = [
        *inside, str(installation.environment("mpich") / "bin" / "mpiexec"), "-launcher", "ssh", "-launcher-exec", str(ENTER),
        "-localhost", "no-host-has-this-name", "-iface", device, "-f", str(nodes_file), "-ppn", "1", "-n", str(count),
    ]
    openmpi_nodes = folder / "openmpi-nodes"
    openmpi_nodes.write_text("".join(f"{place['address']} slots=1\n" for place in places))
    crowded = count > machine.cores()
    openmpi = [
        *inside, str(installation.environment("openmpi") / "bin" / "mpiexec"), "--allow-run-as-root", "--hostfile",
        str(openmpi_nodes), "--prtemca", "plm", "ssh", "--prtemca", "plm_ssh_agent", str(ENTER), "-n", str(count), "--map-by", "node",
        "--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", device,
        *(["--mca", "mpi_yield_when_idle", "1"] if crowded else []),
    ]
    ucx = ["-genv", "UCX_TLS", "tcp,self", "-genv", "UCX_NET_DEVICES", device]
    ofi = ["-genv", "MPIR_CVAR_CH4_NETMOD", "ofi", "-genv", "FI_PROVIDER", "tcp", "-genv", "FI_TCP_IFACE", device]
    program = {peer: [str(BUILD / f"nodes.{peer}"), *arguments] for peer in PEERS}
    return {
        "mpich, ucx": [*mpich, *ucx, *program["mpich"]],
        "mpich, ofi": [*mpich, *ofi, *program["mpich"]],
        "openmpi": [*openmpi, *program["openmpi"]],
    }


def own_command(options):
    """tradewind's own measurement: one round, all engines."""
    command = [str(release(ROOT) / "tradewind"), "--format", "json", "overlap", "--nodes", str(options.nodes), "--rounds", "1"]
    command += ["--calls", str(options.calls), "--compute-us", str(options.computation), "--mtu", str(options.mtu)]
    return command + (["--receiver-core"] if options.receiver_core else [])


def figures(contender, command, variables):
    """What a command found: tradewind prints one array, the peers' program a line for each value."""
    if contender != "tradewind":
        return run(command, variables, LIMIT_S)
    try:
        return json.loads(output(command, variables, LIMIT_S))
    except json.JSONDecodeError as error:
        raise Failed(f"did not print JSON: {error}") from error


def measure(options, say):
    """All rounds: values by engine or configuration, then by what was measured; and what failed."""
    values, failures = {}, {}
    with tempfile.TemporaryDirectory() as name, nodes(options.nodes, options.mtu, options.receiver_core) as places:
        table = Path(name) / "namespaces"
        table.write_text("".join(f"{place['address']} {place['namespace']} {cores(place, options)}\n" for place in places))
        peers = commands(places, Path(name), options)
        for number in range(options.rounds):
            say(f"round {number + 1} of {options.rounds}")
            for contender, command in [("tradewind", own_command(options)), *peers.items()]:
                try:
                    found = figures(contender, command, {"TRADEWIND_BENCH_NODES": str(table)})
                except Failed as failure:
                    failures[contender] = str(failure)
                    continue
                for line in found:
                    engine = line.get("engine", contender)
                    value = line["value"] if "value" in line else line["median"]
                    key = line["what"] if not line.get("bytes", 0) or line["bytes"] == 8 else f"{line['what']}, {line['bytes']} bytes"
                    values.setdefault(engine, {}).setdefault(key, []).append(value)
    return values, failures


def middle(values, engine, what):
    """Median over the rounds, if there are any."""
    found = values.get(engine, {}).get(what)
    return statistics.median(found) if found else None


def report(values, failures, options, described):
    """The tables, as text."""
    names = list(values)
    whats = list(dict.fromkeys(what for engine in values.values() for what in engine))
    lines = [
        f"# {options.nodes} nodes (network namespaces, MTU {options.mtu}), {options.rounds} rounds in turns",
        "",
        f"{described['processor']}, {described['cores']} cores, Linux {described['kernel']}, {described['date']}. Packets are "
        + ("received on the receiver's core (RPS)." if options.receiver_core else "received inside the sender's call (veth without RPS)."),
        "Medians over the rounds, least and most in brackets; µs unless the row says otherwise.",
        "",
        "| | " + " | ".join(names) + " |",
        "|---|" + "---|" * len(names),
    ]
    for what in whats:
        cells = []
        for engine in names:
            found = values[engine].get(what)
            cells.append(f"{statistics.median(found):.2f} [{min(found):.2f}, {max(found):.2f}]" if found else "–")
        lines.append(f"| {what} | " + " | ".join(cells) + " |")
    lines += ["", "| kernel against | reach | found | |", "|---|---|---|---|"]
    for what, reach in AGAINST_PEERS.items():
        ours = middle(values, "kernel", what)
        theirs = [middle(values, name, what) for name in names if name.startswith(PEERS)]
        theirs = [value for value in theirs if value]
        if ours is not None and theirs:
            ratio = ours / min(theirs)
            lines.append(f"| best MPI over TCP: {what} | ≤ {reach} | {ratio:.3f} | {'yes' if ratio <= reach else 'no'} |")
    for what, reach in {"barrier": 0.7, "exchange under computation, exposed": 0.35, "processor time of an exchange, all nodes": 0.5}.items():
        ours, theirs = middle(values, "kernel", what), middle(values, "agent", what)
        if ours is not None and theirs:
            lines.append(f"| agent: {what} | ≤ {reach} | {ours / theirs:.3f} | {'yes' if ours / theirs <= reach else 'no'} |")
    lines += [f"\n{contender} failed: {why}" for contender, why in failures.items()]
    return "\n".join(lines) + "\n"


def main(arguments):
    """Runs everything; the exit status."""
    signal.signal(signal.SIGTERM, interrupt)
    options, say = read(arguments), Progress()
    try:
        if not options.skip_build:
            build(say)
        described = machine.describe(PEERS)
        values, failures = measure(options, say)
    except Trouble as trouble:
        print(f"bench/nodes: {trouble}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    text = report(values, failures, options, described)
    RESULTS.mkdir(parents=True, exist_ok=True)
    way = "receiver-core" if options.receiver_core else "sender-call"
    stem = f"{described['fingerprint']}-{options.nodes}-nodes-{way}-{described['date'][:16].replace(' ', 'T').replace(':', '')}"
    everything = {"machine": described, "options": vars(options), "values": values, "failures": failures}
    (RESULTS / f"{stem}.json").write_text(json.dumps(everything, indent=1) + "\n")
    (RESULTS / f"{stem}.md").write_text(text)
    print(text)
    return 1 if failures else 0
