//! One line of the result.

use super::mechanism::Mechanism;
use models::statistics::Deciles;
use serde::{Deserialize, Serialize};

/// Deciles over these rounds; `None` if there are none.
pub(super) fn over_rounds(rounds: &[f64]) -> Option<Deciles> {
    (!rounds.is_empty()).then(|| Deciles::of(rounds))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_the_fields_are_those_that_were_promised() {
        let figure = over_rounds(&[2.0]);
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
