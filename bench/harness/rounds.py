"""The run itself: one look at every configuration, then interleaved rounds in shuffled order, never two programs at once."""

import math
import random
import time
from collections import defaultdict
from dataclasses import dataclass, field

from . import configurations
from .places import BUILD, Trouble
from .processes import Failed, run
from .rows import SOLVE_ROWS
from .summary import same_floor

# The computation is this many times the best peer's time alone in the first look: twice the five that the table asks for,
# because alone takes twice as long when the processors happen to lie far apart.
COMPUTATION_FACTOR = 10
# Long enough that a hundred tests end before the others join.
TEST_COMPUTATION_US = 200
# A configuration goes on when in one row at least it comes this close to the best.
CLOSE_ENOUGH = 2.0
LOOK_BUDGET_MS = 8
LOOK_LIMIT_S = 30
ROUND_LIMIT_S = 60
# Collectives of short budgets share a start of their program until they take about so long: starting it takes as long again.
START_MS = 400


@dataclass
class Group:
    """The rows that one program measures in one start, those of one operation or of a few: they run close together in time, between
    two looks at the floor."""

    program: str
    ranks: int
    rows: list
    configurations: list = field(default_factory=list)
    failures: dict = field(default_factory=lambda: defaultdict(int))

    @property
    def ops(self):
        """The operations, once each."""
        return list(dict.fromkeys(row.op for row in self.rows))

    @property
    def op(self):
        """The operations as text."""
        return ", ".join(self.ops)

    @property
    def what(self):
        """What a person is told that is measured."""
        return f"{self.program} {self.op}, {self.ranks} ranks"


@dataclass
class Record:
    """All that a run has seen."""

    floors: list = field(default_factory=list)
    lines: list = field(default_factory=list)
    iterations: dict = field(default_factory=dict)
    left_out: list = field(default_factory=list)
    stopped: str = None
    failures: list = field(default_factory=list)


def groups_of(rows, budget):
    """Groups of a program and a number of ranks, each with as many operations as a start has time for."""
    operations = {}
    for row in rows:
        operations.setdefault((row.program, row.ranks, row.op), Group(row.program, row.ranks, [])).rows.append(row)
    found = {}
    for (program, ranks, _), group in operations.items():
        groups = found.setdefault((program, ranks), [])
        if groups and len(collectives(groups[-1])) * budget < START_MS:
            groups[-1].rows += group.rows
        else:
            groups.append(group)
    return [group for groups in found.values() for group in groups]


def collectives(group):
    """The operations and sizes a group measures, once each."""
    return list(dict.fromkeys((row.op, row.bytes) for row in group.rows))


def times_the_best(name, seen, floors):
    """How close a configuration comes, in the row where it comes closest, to the best that saw the same floor; none if it did not run."""
    best = {}
    for other, values in seen.items():
        if values and (other == name or seen[name] and same_floor(floors[name], floors[other])):
            for key, value in values.items():
                best[key] = min(best.get(key, math.inf), value)
    return min((value / best[key] for key, value in seen[name].items()), default=None)


class Run:
    """Measures `rows` as `options` say; `say` takes what a person wants to know meanwhile."""

    def __init__(self, options, rows, cores, say):
        self.options, self.rows, self.cores, self.say = options, rows, cores, say
        self.record, self.start = Record(), time.monotonic()
        self.random = random.Random(options.seed)
        self.groups = groups_of(rows, options.budget)

    def floor(self):
        """What the machine does without any library, now."""
        try:
            return run([str(BUILD / "floor")], {}, LOOK_LIMIT_S)[0]
        except Failed as error:
            raise Trouble(f"the floor calibration ({BUILD / 'floor'}) {error}") from error

    def line_ns(self):
        """The line from core to core alone: quick enough to stand beside every single program."""
        return run([str(BUILD / "floor"), "line"], {}, LOOK_LIMIT_S)[0]["line_ns"]

    def arguments(self, group, budget, alone):
        """BUDGET-MS SEED SKEW-PERCENT OPERATION:BYTES:COMPUTATION..."""
        specifications = [
            f"{op}:{size}:{0 if alone else self.record.iterations.get((group.program, op, size), 0)}"
            for op, size in collectives(group)
        ]
        return [str(budget), str(self.random.randrange(1 << 32)), str(self.options.skew), *specifications]

    def solve_arguments(self, configuration, budget):
        """One round of so many solves: the example has options, bench/c/banded_solve.c has ROWS ROUNDS SOLVES."""
        figures = [str(SOLVE_ROWS), "1", str(max(5, budget // 2))]
        if configuration.library != configurations.TRADEWIND:
            return figures
        return [part for pair in zip(("--rows", "--rounds", "--solves"), figures) for part in pair]

    def measure(self, group, configuration, number, budget, limit_s, alone=False):
        """One start of one program; its lines, or none when it failed, which is noted."""
        solve = group.program == "banded_solve"
        arguments = self.solve_arguments(configuration, budget) if solve else self.arguments(group, budget, alone)
        command = configuration.command(group.ranks, group.program, arguments)
        try:
            before, at = self.line_ns(), time.monotonic() - self.start
            lines = run(command, configuration.variables, limit_s)
            floor = [before, self.line_ns()]
        except Failed as error:
            group.failures[configuration.name] += 1
            self.record.failures.append(
                {"round": number, "configuration": configuration.name, "program": group.program, "op": group.op,
                 "ranks": group.ranks, "error": str(error)}
            )
            self.say(f"{configuration.name}, {group.what}: {error}")
            return []
        if solve:
            # The best of the ways of sending and receiving that the program knows.
            lines = [min(lines, key=lambda line: line["communication_us"][0])]
            lines[0].update(op="solve", bytes=SOLVE_ROWS)
        for line in lines:
            line.update(round=number, configuration=configuration.name, library=configuration.library, at_s=at, floor_ns=floor)
        return lines

    def look(self, group):
        """Every configuration of every peer, by itself: the computations follow from the best, and the slow ones stay behind."""
        figure = {"blocking": "blocking_us", "overlap": "alone_us", "test_cost": "test_us", "banded_solve": "communication_us"}.get(
            group.program, "message_us"
        )
        found = configurations.of_peers(self.options.peers, group.ranks, self.cores)
        candidates = [configuration for configuration in found if configuration.name not in self.options.without]
        best, seen, floors = {}, {}, {}
        for configuration in candidates:
            self.say(f"a first look: {group.what}, {configuration.name}", passing=True)
            lines = self.measure(group, configuration, "look", LOOK_BUDGET_MS, LOOK_LIMIT_S, alone=group.program != "test_cost")
            seen[configuration.name] = {(line["op"], line["bytes"]): line[figure][0] for line in lines}
            floors[configuration.name] = lines[0]["floor_ns"] if lines else None
            for key, value in seen[configuration.name].items():
                best[key] = min(best.get(key, math.inf), value)
        if not best:
            raise Trouble(
                f"no peer could run {group.what}; the last one: "
                f"{self.record.failures[-1]['configuration']}: {self.record.failures[-1]['error']}"
            )
        for configuration in candidates:
            nearest = times_the_best(configuration.name, seen, floors)
            if nearest is not None and (nearest <= CLOSE_ENOUGH or self.options.all_configurations):
                group.configurations.append(configuration)
            else:
                self.record.left_out.append(
                    {"configuration": configuration.name, "program": group.program, "op": group.op, "ranks": group.ranks,
                     "times_the_best_at_least": nearest}
                )
        group.failures.clear()
        self.record.left_out += [
            {"configuration": name, "program": group.program, "op": group.op, "ranks": group.ranks, "times_the_best_at_least": None}
            for name in self.options.without
        ]
        return best

    def prepare(self):
        """First looks, computations, and tradewind's own configurations."""
        iteration_ns = self.floor()["iteration_ns"]
        for group in self.groups:
            if group.program == "test_cost":
                for op, size in collectives(group):
                    self.record.iterations[group.program, op, size] = math.ceil(TEST_COMPUTATION_US * 1e3 / iteration_ns)
            best = self.look(group)
            group.configurations += configurations.of_floor(group.program, group.ops, group.ranks, self.cores)
            for (op, size), value in best.items():
                if group.program == "overlap" or op == "posted":
                    iterations = math.ceil(COMPUTATION_FACTOR * value * 1e3 / iteration_ns)
                    self.record.iterations[group.program, op, size] = iterations
            if not self.options.without_tradewind:
                kinds = {row.buffers for row in group.rows}
                ours = configurations.of_tradewind(self.options.engine, group.program, self.options.tuned)
                group.configurations += [one for one in ours if one.buffers in kinds]

    def round(self, number):
        """The floor, then every group, and in it every configuration, in an order of its own."""
        self.record.floors.append(self.floor())
        for group in self.random.sample(self.groups, len(self.groups)):
            if time.monotonic() - self.start > self.options.limit * 60:
                self.record.stopped = f"stopped in round {number + 1} of {self.options.rounds}: --limit {self.options.limit} minutes"
                return
            for configuration in self.random.sample(group.configurations, len(group.configurations)):
                if group.failures[configuration.name] >= 2:
                    continue
                self.say(
                    f"round {number + 1} of {self.options.rounds}: {group.what}, {configuration.name}",
                    passing=True,
                )
                self.record.lines += self.measure(group, configuration, number, self.options.budget, ROUND_LIMIT_S)

    def go(self):
        """All of it, or the part measured before the time limit or an interruption."""
        self.prepare()
        try:
            for number in range(self.options.rounds):
                self.round(number)
                if self.record.stopped:
                    break
        except KeyboardInterrupt:
            if not self.record.lines:
                raise
            self.record.stopped = f"interrupted in round {number + 1} of {self.options.rounds}"
        return self.record
