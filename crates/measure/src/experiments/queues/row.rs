//! Figures of one mechanism, from its rows.

use crate::rows::{Mechanism, Quantity, Row, Run, What};
use models::statistics::{Deciles, median};
use serde::{Deserialize, Serialize};

/// Results of one mechanism with one size and number of threads; the [module](super) explains the
/// figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueRow {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// Sending threads that share it; for [`Mechanism::Idle`], receivers that sleep.
    pub threads: u32,
    /// Size of a message.
    pub bytes: u64,
    /// Nanoseconds to send a message within the capacity. `None` where sender and receiver have to
    /// meet, or one message does not fit.
    pub send_ns: Option<Deciles>,
    /// Nanoseconds to receive a message that waits.
    pub receive_ns: Option<Deciles>,
    /// Half a round trip in nanoseconds.
    pub latency_ns: Option<Deciles>,
    /// Nanoseconds a message in a stream.
    pub gap_ns: Option<Deciles>,
    /// Half a round trip of a bare word in a line of its own, in the same rounds.
    pub floor_ns: Option<Deciles>,
    /// Latency over floor, round by round.
    pub ratio: Option<Deciles>,
    /// Megabytes (10⁶ bytes) a second in the stream.
    pub megabytes_per_second: Option<f64>,
    /// Processor time of sleeping receivers, in percent of one core; `None` for everything else.
    pub processor_percent: Option<f64>,
    /// Rounds, each with all figures.
    pub rounds: u32,
    /// Round trips in each round.
    pub round_trips: u64,
}

impl QueueRow {
    /// The figures of a run: those of each step, which measures one mechanism with one size.
    pub fn all(run: &Run) -> Vec<QueueRow> {
        run.found.values().filter_map(|step| QueueRow::of(&step.rows)).collect()
    }

    /// The figures of the rows of a step.
    pub(super) fn of(rows: &[Row]) -> Option<QueueRow> {
        let first = rows.first()?;
        let What::Messages(mechanism) = first.what else { return None };
        let of = |what: &What, quantity| {
            rows.iter().find(|row| (&row.what, row.quantity) == (what, quantity))
        };
        let own = |quantity| of(&first.what, quantity);
        let latency = own(Quantity::Latency);
        let floor = of(&What::Word, Quantity::Latency);
        let over = |latency: &Row, floor: &Row| {
            let rounds = latency.times.iter().zip(&floor.times);
            Deciles::of(&rounds.map(|(latency, floor)| latency / floor).collect::<Vec<_>>())
        };
        let gap_ns = own(Quantity::Gap).map(nanoseconds);
        Some(QueueRow {
            mechanism,
            threads: first.threads?,
            bytes: first.bytes,
            send_ns: own(Quantity::SendOverhead).map(nanoseconds),
            receive_ns: own(Quantity::ReceiveOverhead).map(nanoseconds),
            latency_ns: latency.map(nanoseconds),
            gap_ns,
            floor_ns: floor.map(nanoseconds),
            ratio: latency.zip(floor).map(|(latency, floor)| over(latency, floor)),
            megabytes_per_second: gap_ns
                .filter(|gap| gap.median > 0.0)
                .map(|gap| first.bytes as f64 * 1e3 / gap.median),
            processor_percent: first.processor.map(|used| used / median(&first.times) * 100.0),
            rounds: first.times.len() as u32,
            round_trips: latency.map_or(0, |row| u64::from(row.calls)),
        })
    }
}

fn nanoseconds(row: &Row) -> Deciles {
    Deciles::of(&row.times.iter().map(|microseconds| microseconds * 1e3).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row as it stands in the file.
    fn row(what: &str, quantity: &str, times: &str, rest: &str) -> Row {
        let line = format!(
            r#"{{"experiment":"queues","what":{what},"quantity":"{quantity}","ranks":2,"nodes":1,"ranks_per_node":2,
            "bytes":8,"threads":2,"machine":"a machine","times":{times}{rest}}}"#
        );
        serde_json::from_str(&line).expect("a row")
    }

    #[test]
    fn figures_follow_from_the_rows_of_a_step() {
        let wide = r#"{"messages":"wide"}"#;
        let rows = [
            row(wide, "latency", "[0.25,0.75,0.5]", r#","calls":64"#),
            row(wide, "gap", "[0.125]", ""),
            row(wide, "send-overhead", "[0.0625]", ""),
            row(r#""word""#, "latency", "[0.125,0.25,0.5]", r#","calls":100"#),
        ];
        let found = QueueRow::of(&rows).expect("its rows are there");
        let median = |of: Option<Deciles>| of.map(|of| of.median);
        assert_eq!((found.mechanism, found.threads, found.bytes), (Mechanism::Wide, 2, 8));
        assert_eq!((found.rounds, found.round_trips), (3, 64));
        assert_eq!([found.latency_ns, found.floor_ns].map(median), [500.0, 250.0].map(Some));
        assert_eq!(median(found.ratio), Some(2.0), "round by round: 2, 3 and 1");
        assert_eq!([found.gap_ns, found.send_ns].map(median), [125.0, 62.5].map(Some));
        assert_eq!((found.receive_ns, found.processor_percent), (None, None));
        assert_eq!(found.megabytes_per_second, Some(64.0));
        assert_eq!(QueueRow::of(&[]), None, "a step that has only a note");
        let idle = [row(r#"{"messages":"idle"}"#, "sleep", "[1e6]", r#","processor":250.0"#)];
        let idle = QueueRow::of(&idle).expect("one row");
        assert_eq!((idle.processor_percent, idle.latency_ns), (Some(0.025), None));
    }

    #[test]
    fn the_names_of_the_fields_are_those_that_were_promised() {
        let figure = Some(Deciles::of(&[2.0]));
        let row = QueueRow {
            mechanism: Mechanism::OnePoll,
            threads: 2,
            bytes: 8,
            send_ns: figure,
            receive_ns: None,
            latency_ns: figure,
            gap_ns: None,
            floor_ns: None,
            ratio: None,
            megabytes_per_second: Some(1.5),
            processor_percent: None,
            rounds: 7,
            round_trips: 100,
        };
        let one = r#"{"median":2.0,"p10":2.0,"p90":2.0}"#;
        let json = format!(
            r#"{{"mechanism":"one-poll","threads":2,"bytes":8,"send_ns":{one},"receive_ns":null,"latency_ns":{one},"gap_ns":null,"floor_ns":null,"ratio":null,"megabytes_per_second":1.5,"processor_percent":null,"rounds":7,"round_trips":100}}"#
        );
        assert_eq!(serde_json::to_string(&row).expect("numbers and names"), json);
        assert_eq!(serde_json::from_str::<QueueRow>(&json).expect("a row"), row);
    }
}
