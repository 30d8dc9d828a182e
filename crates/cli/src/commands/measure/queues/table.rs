//! The text form of the rows of `tradewind measure queues`.

use crate::commands::figures::{figure, table_with, trusted};
use comfy_table::{Cell, Table};
use measure::experiments::queues::{Crossover, QueueRow};
use measure::rows::Mechanism;
use models::statistics::Deciles;

/// The table, what is to be seen in it, and how to read it.
pub(super) fn of(
    ranks: &str,
    rows: &[QueueRow],
    crossovers: &[Crossover],
    left_out: &[String],
) -> String {
    let (idle, measured): (Vec<&QueueRow>, Vec<&QueueRow>) =
        rows.iter().partition(|row| row.mechanism == Mechanism::Idle);
    let mut parts = vec![ranks.to_owned()];
    let has_floor = measured.iter().any(|row| row.floor_ns.is_some());
    if !measured.is_empty() {
        parts.push(table(&measured, has_floor).to_string());
        parts.push([LEGEND, if has_floor { FLOOR_LEGEND } else { NODES_LEGEND }].join("\n"));
    }
    let mut sentences: Vec<String> = crossovers.iter().map(ToString::to_string).collect();
    sentences.extend(idle.into_iter().filter_map(waiting));
    sentences.extend(left_out.iter().cloned());
    if !sentences.is_empty() {
        parts.push(format!("\n{}", sentences.join("\n")));
    }
    parts.join("\n")
}

fn table(rows: &[&QueueRow], has_floor: bool) -> Table {
    let columns = [
        "mechanism",
        "threads",
        "bytes",
        "send\nns",
        "receive\nns",
        "latency\nns",
        "10 % .. 90 %\nns",
        "gap\nns",
        "10 % .. 90 %\nns",
        "MB/s",
        "10^6\nmessages/s",
        "floor\nns",
        "10 % .. 90 %\nns",
        "latency\n/ floor",
    ];
    let shown = if has_floor { columns.len() } else { columns.len() - FLOOR_COLUMNS };
    let mut table = table_with(&columns[..shown]);
    for row in rows {
        let cells = [
            Cell::new(row.mechanism.name()),
            figure(row.threads),
            figure(row.bytes),
            median(row.send_ns),
            median(row.receive_ns),
            row.latency_ns
                .map_or_else(|| figure("–"), |latency| trusted(nanoseconds(latency.median))),
            spread(row.latency_ns),
            median(row.gap_ns),
            spread(row.gap_ns),
            figure(
                row.megabytes_per_second
                    .filter(|rate| *rate > 0.0)
                    .map_or_else(|| "–".to_owned(), nanoseconds),
            ),
            figure(row.gap_ns.map_or_else(|| "–".to_owned(), |gap| rate(gap.median))),
            median(row.floor_ns),
            spread(row.floor_ns),
            row.ratio.map_or_else(|| figure("–"), |ratio| trusted(format!("{:.2}", ratio.median))),
        ];
        table.add_row(cells.into_iter().take(shown));
    }
    table
}

fn median(of: Option<Deciles>) -> Cell {
    figure(of.map_or_else(|| "–".to_owned(), |of| nanoseconds(of.median)))
}

fn spread(of: Option<Deciles>) -> Cell {
    let both = |of: Deciles| format!("{} .. {}", nanoseconds(of.p10), nanoseconds(of.p90));
    figure(of.map_or_else(|| "–".to_owned(), both))
}

/// Three digits where there are fewer before the point.
fn nanoseconds(time: f64) -> String {
    if time.abs() < 99.95 { format!("{time:.1}") } else { format!("{time:.0}") }
}

/// Millions of messages a second, by the nanoseconds of one.
fn rate(gap: f64) -> String {
    format!("{:.2}", 1e3 / gap.max(f64::MIN_POSITIVE))
}

fn waiting(row: &QueueRow) -> Option<String> {
    let percent = row.processor_percent?;
    Some(format!("Waiting: {} sleeping receivers took {percent:.3} % of one core.", row.threads))
}

/// Columns at the end that are about the floor.
const FLOOR_COLUMNS: usize = 3;

const LEGEND: &str = "\
Medians over the rounds. send and receive: overheads of a batch with space, of a batch that waits; – where the two sides have to
meet. latency: half a round trip, with several threads over all their messages. gap: a message in a stream; MB/s and messages by
that.";
const NODES_LEGEND: &str = "\
Between nodes a stream ends with an answer to its last message.";
const FLOOR_LEGEND: &str = "\
floor: half a round trip of a bare word in a line for each direction, measured in turn with the mechanism.";
