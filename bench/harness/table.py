"""The table a person reads, in Markdown that also reads well in a terminal."""

from statistics import median

SECTIONS = {
    "blocking": "Blocking, back to back (µs a call)",
    "alone": "Nonblocking, alone: start and wait (µs)",
    "exposed": "Nonblocking, exposed: what it adds to the computation (µs)",
    "alone-alloc": "Alone, tradewind's buffers from comm.alloc (µs; the peers as above)",
    "exposed-alloc": "Exposed, tradewind's buffers from comm.alloc (µs; the peers as above)",
    "test": "One test of a running collective (µs)",
    "message": "Messages between two ranks (µs: one way, half a round trip; rate: from message to message)",
    "threads": "Messages between one thread and two that share a queue (µs: half a round trip)",
    "solve": "A pipelined solve with a message for every value (µs of communication an iteration)",
}
MESSAGES = {
    "latency": "wide queue, latency",
    "rate": "Express, a stream, windows of 64",
    "large": "link, private buffers written and read",
    "threads": "Express, one thread and two",
    "solve": "open channel, banded solve",
    "pingpong": "send and recv, latency",
    "written": "send and recv, written anew and read",
    "stream": "isend and irecv, a stream, windows of 64",
    "posted": "isend and irecv before a computation, what they add",
    "pairs": "send and recv, two threads of each rank",
}
HEADINGS = ("row", "tradewind [p10..p90]", "best peer [p10..p90]", "which", "ratio [least..most]", "reach", "reached", "floor")
BLOCKING_HEADINGS = ("collective's floor", "which way", "over it")
TUNED_HEADINGS = ("tuned [p10..p90]", "tuned ratio [least..most]")
EXPOSED_HEADINGS = ("processor µs, tradewind / peer", "computation")


def number(value):
    """Three significant figures, no exponent."""
    if value is None:
        return "–"
    size = abs(value)
    return f"{value:.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 1 else f"{value:.3f}"


def size_name(size):
    """8 B, 64 KiB, 1 MiB."""
    if size >= 1 << 20:
        return f"{size >> 20} MiB"
    return f"{size >> 10} KiB" if size >= 1024 else f"{size} B"


def spread(figure):
    """A figure with its percentiles."""
    return "–" if figure is None else f"{number(figure.median)} [{number(figure.p10)}..{number(figure.p90)}]"


# Their bytes are those of the whole message, not of one block.
WHOLE = ("bcast", "reduce", "allreduce", "scan", "exscan")


def title(row):
    """What the row is called in the table."""
    if row.op in MESSAGES:
        return f"{MESSAGES[row.op]}, {f'{row.bytes} rows' if row.op == 'solve' else size_name(row.bytes)}"
    nonblocking = row.kind != "blocking"
    names = {"neighbor": "neighbor_alltoall", "neighborgather": "neighbor_allgather", "reducescatter": "reduce_scatter_block"}
    name = names.get(row.op, row.op)
    per = " a neighbour" if "neighbor" in row.op else "" if row.op in WHOLE else " a pair"
    size = "" if row.op == "barrier" else f" {size_name(row.bytes)}{per}"
    return f"{'i' if nonblocking else ''}{name}{size}, {row.ranks} ranks"


def ratio(outcome):
    """The ratio to the best peer with its least and most."""
    return "–" if outcome is None or outcome.ratio is None else f"{outcome.ratio:.2f} [{outcome.least:.2f}..{outcome.most:.2f}]"


def cells(outcome, has_tuned):
    """One line of the table."""
    row = outcome.row
    reach = "–" if row.reach is None else f"≤ {row.reach * 1e3:.0f} ns" if row.absolute else f"≤ {row.reach:g}"
    line = [
        title(row), spread(outcome.ours), spread(outcome.best), outcome.best.configuration if outcome.best else "–", ratio(outcome), reach,
        {True: "yes", False: "no", None: "–"}[outcome.reached], number(outcome.floor_us),
    ]
    if has_tuned:
        line += [spread(outcome.tuned and outcome.tuned.ours), ratio(outcome.tuned)]
    if row.kind == "blocking":
        floor = outcome.floor
        line += [spread(floor), floor.configuration if floor else "–", number(outcome.over_floor)]
    if row.kind.startswith("exposed"):
        processor = [number(one.processor) if one else "–" for one in (outcome.ours, outcome.best)]
        line += [" / ".join(processor), number(outcome.best.computation if outcome.best else None)]
    return line


def aligned(lines):
    """Markdown with its columns padded."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in lines]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)


def warnings(outcomes, record):
    """What a careful reader has to know before believing the rows."""
    found = [f"The run was {record.stopped}."] if record.stopped else []
    for outcome in outcomes:
        best, row = outcome.best, outcome.row
        if row.kind == "exposed" and best and best.computation:
            alone = next((other.best for other in outcomes if other.row.kind == "alone" and other.row.op == row.op
                          and other.row.bytes == row.bytes), None)
            if alone and best.computation < 5 * alone.median:
                found.append(f"{row.name}: the computation was only {best.computation / alone.median:.1f} × the best peer's alone.")
        if row.kind.startswith("exposed") and best and best.computation:
            if outcome.ours and not 0.9 < outcome.ours.computation / best.computation < 1.1:
                found.append(f"{row.name}: the computation took tradewind {number(outcome.ours.computation)} µs and the peer "
                             f"{number(best.computation)} µs; it should be the same.")
        if not outcome.matched:
            found.append(f"{row.name}: tradewind and the peer seldom saw the same floor; the ratio compares neighbours in time.")
    for failure in record.failures:
        found.append(f"{failure['configuration']}, {failure['program']}, {failure['ranks']} ranks, "
                     f"{'first look' if failure['round'] == 'look' else 'round %d' % (failure['round'] + 1)}: {failure['error']}")
    return found


def left_out(record):
    """Which configurations the first look left behind, and how far behind they were."""
    found = {}
    for one in record.left_out:
        nearest = one["times_the_best_at_least"]
        how = "did not run" if nearest is None else f"{nearest:.1f} ×"
        found.setdefault(one["configuration"], []).append(f"{one.get('op', one['program'])} on {one['ranks']} ranks {how}")
    return [f"- {name}, never nearer to the best than: {', '.join(ways)}" for name, ways in found.items()]


def whole(outcomes, record, machine):
    """The report."""
    beside = [value for line in record.lines for value in line["floor_ns"]] or [one["line_ns"] for one in record.floors]
    text = [
        "# tradewind beside the best of the peers",
        f"{machine['processor']}, {machine['cores']} cores, Linux {machine['kernel']}; {machine['date']}. "
        + ", ".join(f"{name} {version}" for name, version in machine["versions"].items()) + f". {len(record.floors)} rounds.",
        f"The floor while this ran: half a round trip of one line {median(beside):.0f} ns "
        f"[{min(beside):.0f}..{max(beside):.0f}], copies of "
        f"64 KiB / 1 MiB / 32 MiB " + " / ".join(f"{median(one[key] for one in record.floors):.0f}" for key in
                                                  ("copy_64KiB", "copy_1MiB", "copy_32MiB")) + " GB/s.",
        "Bytes as MPI counts them: allreduce and bcast the whole message, alltoall a pair, neighbor_alltoall a neighbour. "
        "README.md beside bench/peers says what each column means.",
    ]
    for kind, heading in SECTIONS.items():
        of_kind = [outcome for outcome in outcomes if outcome.row.kind == kind]
        if of_kind:
            more = BLOCKING_HEADINGS if kind == "blocking" else EXPOSED_HEADINGS if kind.startswith("exposed") else ()
            has_tuned = any(outcome.tuned for outcome in of_kind)
            headings = [*HEADINGS, *(TUNED_HEADINGS if has_tuned else ()), *more]
            text.append(f"## {heading}\n\n" + aligned([headings] + [cells(outcome, has_tuned) for outcome in of_kind]))
    claimed = [outcome for outcome in outcomes if outcome.row.reach is not None]
    text.append(f"Reached {sum(outcome.reached is True for outcome in claimed)} of {len(claimed)} claims"
                f" ({sum(outcome.reached is None for outcome in claimed)} not measured).")
    doubts = warnings(outcomes, record)
    if doubts:
        text.append("## Doubts\n\n" + "\n".join(f"- {doubt}" for doubt in doubts))
    if record.left_out:
        text.append("## Left out after the first look\n\n" + "\n".join(left_out(record)))
    return "\n\n".join(text) + "\n"
