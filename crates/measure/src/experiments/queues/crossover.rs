//! From which size on one mechanism is faster than another.

use super::row::QueueRow;
use crate::rows::Mechanism;
use serde::Serialize;
use std::fmt;

/// Size at which one mechanism becomes faster than another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Crossover {
    /// The one for short messages.
    pub short: Mechanism,
    /// The one for long messages.
    pub long: Mechanism,
    /// Sending threads.
    pub threads: u32,
    /// The smallest measured size from which on the latency of `long` is never above that of
    /// `short`; `None` if there is none. Sizes at which the floor beneath one was one and a half
    /// times that beneath the other are left out.
    pub bytes: Option<u64>,
    /// Both latencies in nanoseconds there, or at the largest size that both have.
    pub latencies_ns: (f64, f64),
    /// The smallest and the largest size that both have.
    pub sizes: (u64, u64),
}

/// Pairs of which one takes over from the other.
const PAIRS: [(Mechanism, Mechanism); 5] = [
    (Mechanism::Express, Mechanism::Wide),
    (Mechanism::Express, Mechanism::TagOn),
    (Mechanism::Wide, Mechanism::TagOn),
    (Mechanism::Wide, Mechanism::Bulk),
    (Mechanism::Basic, Mechanism::Bulk),
];

/// Floors that differ by less count as equal.
const ALIKE: f64 = 1.5;

impl Crossover {
    /// Those of Express to wide Express and to Tag-On, of wide Express to Tag-On and to bulk
    /// transfers, and of Basic to bulk transfers, for all numbers of threads that were measured.
    pub fn all(rows: &[QueueRow]) -> Vec<Crossover> {
        let mut threads: Vec<u32> = rows.iter().map(|row| row.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        let of =
            |threads| PAIRS.into_iter().filter_map(move |pair| Crossover::of(rows, pair, threads));
        threads.into_iter().flat_map(of).collect()
    }

    fn of(
        rows: &[QueueRow],
        (short, long): (Mechanism, Mechanism),
        threads: u32,
    ) -> Option<Crossover> {
        let of = |mechanism| {
            rows.iter().filter(move |row| (row.mechanism, row.threads) == (mechanism, threads))
        };
        let both: Vec<_> = of(short)
            .filter_map(|row| Some((row.bytes, row, of(long).find(|one| one.bytes == row.bytes)?)))
            .collect();
        // Rows of which one was measured on a much slower machine are compared only if there are no
        // others.
        let met_the_same_machine = |(_, one, other): &&(u64, &QueueRow, &QueueRow)| {
            let floor = |row: &QueueRow| row.floor_ns.map_or(1.0, |floor| floor.median);
            let [one, other] = [one, other].map(|row| floor(row));
            one.max(other) < ALIKE * one.min(other)
        };
        let latencies = |(bytes, short, long): &(u64, &QueueRow, &QueueRow)| {
            Some((*bytes, (short.latency_ns?.median, long.latency_ns?.median)))
        };
        let mut common: Vec<_> =
            both.iter().filter(met_the_same_machine).filter_map(latencies).collect();
        if common.is_empty() {
            common = both.iter().filter_map(latencies).collect();
        }
        common.sort_by_key(|(bytes, _)| *bytes);
        let first = common.first()?;
        let last = common.last()?;
        let faster = common.iter().rev().take_while(|(_, (short, long))| long <= short).last();
        Some(Crossover {
            short,
            long,
            threads,
            bytes: faster.map(|(bytes, _)| *bytes),
            latencies_ns: faster.unwrap_or(last).1,
            sizes: (first.0, last.0),
        })
    }
}

impl fmt::Display for Crossover {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Crossover {
            short,
            long,
            threads,
            bytes,
            latencies_ns: (of_short, of_long),
            sizes: (first, last),
        } = self;
        let who = if *threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
        let [short, long] = [short, long].map(|mechanism| mechanism.title());
        let (place, what) = match bytes {
            Some(bytes) if bytes == first => {
                (format!("at {bytes} B"), format!("{long} is never slower up to {last} B"))
            }
            Some(bytes) => (format!("at {bytes} B"), format!("{long} is faster from there on")),
            None => ("nowhere".to_owned(), format!("{short} is still faster at {last} B")),
        };
        let (faster, slower) =
            if bytes.is_some() { (of_long, of_short) } else { (of_short, of_long) };
        write!(
            formatter,
            "{short} to {long} {place}: with {who}, {what} ({faster:.0} against {slower:.0} ns)."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::statistics::Deciles;

    fn over_rounds(time: f64) -> Option<Deciles> {
        Some(Deciles::of(&[time]))
    }

    fn row(mechanism: Mechanism, bytes: u64, latency: f64) -> QueueRow {
        QueueRow {
            mechanism,
            threads: 1,
            bytes,
            send_ns: None,
            receive_ns: None,
            latency_ns: over_rounds(latency),
            gap_ns: None,
            floor_ns: None,
            ratio: None,
            megabytes_per_second: None,
            processor_percent: None,
            rounds: 1,
            round_trips: 1,
        }
    }

    fn sentence(express: [f64; 3], wide: [f64; 3]) -> String {
        let sizes = [8, 16, 24];
        let mut rows: Vec<_> = sizes
            .iter()
            .zip(express)
            .map(|(bytes, ns)| row(Mechanism::Express, *bytes, ns))
            .collect();
        rows.extend(sizes.iter().zip(wide).map(|(bytes, ns)| row(Mechanism::Wide, *bytes, ns)));
        // What only one of the two carries does not count.
        rows.push(row(Mechanism::Wide, 1024, 1.0));
        let found = Crossover::all(&rows);
        assert_eq!(found.len(), 1, "bulk was not measured");
        found[0].to_string()
    }

    #[test]
    fn what_met_a_slower_machine_does_not_count() {
        let of = |mechanism, bytes, latency, floor| QueueRow {
            floor_ns: over_rounds(floor),
            ..row(mechanism, bytes, latency)
        };
        let rows = [
            of(Mechanism::Express, 8, 50.0, 60.0),
            of(Mechanism::Wide, 8, 90.0, 60.0),
            // Were it not for the machine, Express would still be faster.
            of(Mechanism::Express, 16, 400.0, 240.0),
            of(Mechanism::Wide, 16, 90.0, 60.0),
            of(Mechanism::Express, 24, 120.0, 61.0),
            of(Mechanism::Wide, 24, 90.0, 60.0),
        ];
        assert_eq!(Crossover::all(&rows)[0].bytes, Some(24));
        assert_eq!(Crossover::all(&rows[2..4])[0].bytes, Some(16), "better than nothing");
    }

    #[test]
    fn a_crossover_is_the_size_from_which_on_the_other_stays_faster() {
        let found = sentence([50.0, 200.0, 300.0], [100.0, 150.0, 100.0]);
        assert_eq!(
            found,
            "Express to Wide Express at 16 B: with 1 thread, Wide Express is faster from there on \
             (150 against 200 ns)."
        );
        let found = sentence([150.0, 90.0, 300.0], [100.0, 100.0, 100.0]);
        assert_eq!(
            found,
            "Express to Wide Express at 24 B: with 1 thread, Wide Express is faster from there on \
             (100 against 300 ns)."
        );
        let found = sentence([100.0; 3], [90.0; 3]);
        assert_eq!(
            found,
            "Express to Wide Express at 8 B: with 1 thread, Wide Express is never slower up to 24 \
             B (90 against 100 ns)."
        );
        let found = sentence([100.0; 3], [90.0, 90.0, 110.0]);
        assert_eq!(
            found,
            "Express to Wide Express nowhere: with 1 thread, Express is still faster at 24 B (100 \
             against 110 ns)."
        );
    }
}
