//! `tradewind measure queues`: overhead, latency and gap of every mechanism.

mod table;

use super::planned::{Place, Planned, USUAL_RANKS, refuse};
use crate::format::Format;
use clap::error::ErrorKind;
use measure::experiments::queues::{Crossover, Plan, QueueRow};
use measure::rows::{Mechanism, Run};
use std::process::ExitCode;

/// Measures overhead, latency and gap of queues, channels, remote memory and bulk transfers.
///
/// All of it is 242 rows and takes about a minute; --row-ms sets the time of a row; --mechanisms,
/// --sizes and --threads leave rows out.
///
/// Starts two rank processes, each bound to a core of its own where there are two. Every row
/// consists of rounds in which the mechanism takes turns with the floor: half a round trip of a
/// bare word that one side stores and the other loads, in a cache line for each direction. Figures
/// are medians over the rounds; `ratio` is the latency over the floor of the same round.
///
/// `send` and `receive` are the processor overheads: of a batch of sends within the capacity, of
/// receives while messages wait. Where sender and receiver have to meet there are none. `latency`
/// is half a round trip, with several threads over all their messages together. `gap` is the time
/// of a message in a stream.
///
/// Express moves 5 bytes a word and wide Express, which is also the shared form of Basic, 48 a
/// line; a longer message is several of them. One-poll is Express behind the poll of 512 queues.
/// Tag-on sends a line that refers to data in a buffer, which are copied there for each message, or
/// with tag-on-resident once; tag-on-multicast sends them to both ranks, and a send receives the own
/// copy of the one before. Basic is the unshared ring, with messages of up to a quarter of it, and
/// basic-locked the same with a lock around each send and each receive. Append is a record in a
/// buffer of the receiver. Channel, write, iput, read, accumulate and fetch move 8 bytes, also where
/// other sizes are given; iput is a nonblocking write, and a flush ends its stream; fetch is a conditional
/// one, which waits for the sender's store. Bulk moves private buffers, on the path that the library
/// chooses or on one that is prescribed. Receivers look for a microsecond and then sleep; with write,
/// iput, read and accumulate they poll. Express, one-poll, wide, tag-on,
/// tag-on-resident, basic-locked and append are measured with several threads, too, which send through
/// one queue from the first rank's core and get their answers in a queue each.
///
/// With --nodes the two ranks are on two nodes, which are network namespaces made for it. All
/// mechanisms but bulk-staged, bulk-direct and idle are measured there, in the same columns without
/// the floor; a stream is timed from the first send to an answer to the last message.
///
/// Idle is the processor time of 8 sleeping receivers in percent of one core.
///
/// With --out the rows are kept in a directory too, as they come: when the command is interrupted,
/// it goes on behind them the next time. Without, they are printed at the end, or when it is
/// interrupted those that there are, and kept nowhere.
#[derive(Debug, clap::Args)]
#[command(after_help = JSON)]
pub(crate) struct Arguments {
    #[command(flatten)]
    plan: PlanArguments,

    #[command(flatten)]
    place: Place,
}

/// The rows to be measured.
#[derive(Debug, clap::Args)]
struct PlanArguments {
    /// Numbers of sending threads.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,2")]
    threads: Vec<u32>,

    /// Mechanisms: express, one-poll, wide, tag-on, tag-on-resident, tag-on-multicast, basic,
    /// basic-locked, append, channel, write, read, accumulate, fetch, bulk, bulk-staged, bulk-direct,
    /// idle [default: all].
    #[arg(long, value_name = "MECHANISM,...", value_delimiter = ',')]
    mechanisms: Vec<Mechanism>,

    /// Sizes in bytes, of which express and one-poll take those up to 128, wide those up to 49152,
    /// both of basic those up to 32760, append those up to 32758, all of tag-on those up to 1048576,
    /// bulk-staged and bulk-direct those from 1024 [default: 0 to 48 by 8, 64, 128, 256, then by
    /// factors of 4 to 1048576].
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',')]
    sizes: Vec<u64>,

    /// Rounds of each row.
    #[arg(long, value_name = "R", default_value_t = Plan::default().rounds)]
    rounds: u32,

    /// About how long each row takes, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = Plan::default().row_ms)]
    row_ms: u64,
}

const JSON: &str = "\
With --format json: {rows, crossovers}. rows is an array of {mechanism, threads, bytes, send_ns, receive_ns, latency_ns, gap_ns, floor_ns, ratio,
megabytes_per_second, processor_percent, rounds, round_trips}. send_ns, receive_ns, latency_ns, gap_ns, floor_ns (in
nanoseconds) and ratio are null or {median, p10, p90} over the rounds. megabytes_per_second is bytes over gap, in 10^6 bytes.
processor_percent is null except for idle, where threads is the number of receivers. round_trips is for each round.
crossovers is an array of {short, long, threads, bytes, latencies_ns, sizes}: from bytes on, long is never slower than short;
bytes is null where there is no such size. latencies_ns are those of short and long there (or at the largest size of both),
sizes the smallest and the largest that both have.";

/// JSON output.
#[derive(serde::Serialize)]
struct QueuesReport<'a> {
    rows: &'a [QueueRow],
    crossovers: &'a [Crossover],
}

impl PlanArguments {
    /// The plan of these arguments. Between nodes those mechanisms are usual that cross them.
    fn into_plan(self, is_between_nodes: bool) -> Plan {
        let mut usual = Plan::default();
        if is_between_nodes {
            usual.mechanisms.retain(|mechanism| mechanism.crosses_nodes());
        }
        let or = |given: Vec<u64>, usual| if given.is_empty() { usual } else { given };
        Plan {
            mechanisms: if self.mechanisms.is_empty() {
                usual.mechanisms
            } else {
                distinct(self.mechanisms)
            },
            threads: distinct(self.threads),
            sizes: distinct(or(self.sizes, usual.sizes)),
            rounds: self.rounds,
            row_ms: self.row_ms,
        }
    }
}

/// Removes duplicates.
fn distinct<T: PartialEq>(values: Vec<T>) -> Vec<T> {
    values.into_iter().fold(Vec::new(), |mut kept, value| {
        if !kept.contains(&value) {
            kept.push(value);
        }
        kept
    })
}

pub(crate) fn execute(arguments: Arguments, format: Format) -> anyhow::Result<ExitCode> {
    let Arguments { plan, place } = arguments;
    let is_between_nodes = place.is_between_nodes();
    let plan = plan.into_plan(is_between_nodes);
    refuse(plan.check());
    let stays = |mechanism: &&Mechanism| is_between_nodes && !mechanism.crosses_nodes();
    if let Some(mechanism) = plan.mechanisms.iter().find(stays) {
        let error = format!("{mechanism} is measured on one node: leave --nodes out\n");
        clap::Error::raw(ErrorKind::ValueValidation, error).exit();
    }
    let name = "queues";
    let options = plan.options();
    let planned = Planned { name, command: name, options, ranks: USUAL_RANKS, print: &print };
    planned.execute(place, format)
}

fn print(ranks: &str, run: &Run, format: Format) -> anyhow::Result<()> {
    let rows = &QueueRow::all(run)[..];
    let crossovers = Crossover::all(rows);
    format.print(
        || table::of(ranks, rows, &crossovers, &run.notes()),
        &QueuesReport { rows, crossovers: &crossovers },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_twice_is_measured_once() {
        let arguments = PlanArguments {
            threads: vec![2, 1, 2],
            mechanisms: vec![Mechanism::Wide, Mechanism::Wide],
            sizes: vec![48, 8, 48],
            rounds: 7,
            row_ms: 1,
        };
        let plan = arguments.into_plan(false);
        assert_eq!(
            (plan.threads, plan.mechanisms, plan.sizes),
            (vec![2, 1], vec![Mechanism::Wide], vec![48, 8])
        );
    }
}
