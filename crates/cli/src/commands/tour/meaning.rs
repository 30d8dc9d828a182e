//! The conclusion of a tour, in one sentence built from its figures.

use crate::commands::figures::{RESOLUTION_US, error_of_median, percent_of};
use measure::experiments::overlap::OverlapRow;
use models::machine_file::Engine;

/// One engine beats the other only by a tenth or more.
const MARGIN: f64 = 1.1;

/// The two rows of one collective.
#[derive(Clone, Copy)]
struct Pair<'a> {
    caller: &'a OverlapRow,
    peers: &'a OverlapRow,
}

impl Pair<'_> {
    /// Returns true if the collective adds less with peers, and neither by chance nor by less than a
    /// tenth.
    fn is_less(&self) -> bool {
        let Pair { caller, peers } = self;
        let error = error_of_median(peers.p90_us - peers.exposed_us, peers.repetitions)
            .hypot(error_of_median(caller.exposed_us - caller.p10_us, caller.repetitions));
        caller.exposed_us - peers.exposed_us >= 2.0 * error && self.ratio() >= MARGIN
    }

    /// Exposed time of the caller engine over that of the peers engine.
    fn ratio(&self) -> f64 {
        self.caller.exposed_us.max(RESOLUTION_US) / self.peers.exposed_us.max(RESOLUTION_US)
    }
}

/// The sentence.
pub(super) fn of(rows: &[OverlapRow]) -> String {
    let pairs = pairs(rows);
    let ratios: Vec<f64> = pairs.iter().filter(|pair| pair.is_less()).map(Pair::ratio).collect();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    let [least, most] = [least, most].map(|ratio| format!("{ratio:.1}"));
    let times = if least == most { least } else { format!("{least} to {most}") };
    let less = match ratios.len() {
        0 => "With peers no collective added less to the computation than with caller".to_owned(),
        count => format!(
            "With peers {count} of {} collectives added less to the computation than with caller, {times} times \
             less",
            pairs.len()
        ),
    };
    let unattended = |of: fn(&Pair<'_>) -> f64| {
        percent_of(pairs.iter().map(of).sum::<f64>() / pairs.len().max(1) as f64)
    };
    format!(
        "{less}; when the computation was over, {} % were finished without another call of their rank with peers, {} % \
         with caller.",
        unattended(|pair| pair.peers.unattended),
        unattended(|pair| pair.caller.unattended),
    )
}

fn pairs(rows: &[OverlapRow]) -> Vec<Pair<'_>> {
    let of = |engine| rows.iter().filter(move |row| row.engine == engine);
    let partner = |caller: &OverlapRow| {
        of(Engine::Peers).find(|row| (row.op, row.bytes) == (caller.op, caller.bytes))
    };
    of(Engine::Caller).filter_map(|caller| Some(Pair { caller, peers: partner(caller)? })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::experiments::overlap::Collective;

    fn row(
        op: Collective,
        bytes: u64,
        engine: Engine,
        exposed_us: f64,
        unattended: f64,
    ) -> OverlapRow {
        OverlapRow {
            op,
            algorithm: "any".into(),
            ranks: 2,
            bytes,
            engine,
            alone_us: 1.0,
            compute_us: 20.0,
            total_us: 20.0 + exposed_us,
            exposed_us,
            overlap: 0.0,
            unattended,
            stolen_us: 0.0,
            repetitions: 10,
            p10_us: exposed_us,
            p90_us: exposed_us,
        }
    }

    /// A barrier and an allreduce with these exposed times: caller, peers, caller, peers.
    fn rows(exposed: [f64; 4], unattended: [f64; 2]) -> Vec<OverlapRow> {
        let [caller, peers] = unattended;
        vec![
            row(Collective::Barrier, 0, Engine::Caller, exposed[0], caller),
            row(Collective::Barrier, 0, Engine::Peers, exposed[1], peers),
            row(Collective::Allreduce, 8, Engine::Caller, exposed[2], caller),
            row(Collective::Allreduce, 8, Engine::Peers, exposed[3], peers),
        ]
    }

    #[test]
    fn it_counts_the_collectives_that_add_less() {
        let sentence = of(&rows([1.0, 0.25, 2.0, 0.2], [0.0, 1.0]));
        let all = "With peers 2 of 2 collectives added less to the computation than with caller, 4.0 to 10.0 times less";
        assert!(sentence.starts_with(all), "{sentence}");
        assert!(sentence.contains("100 % were finished") && sentence.ends_with("0 % with caller."));
        assert!(of(&rows([1.0, 0.5, 2.0, 4.0], [0.5, 1.0])).starts_with("With peers 1 of 2"));
    }

    #[test]
    fn chance_and_noise_are_no_victory() {
        let none = "With peers no collective added less";
        assert!(of(&rows([1.0, 1.0, 2.0, 3.0], [0.5, 0.25])).starts_with(none));
        // All lost in the noise, though one is below zero.
        assert!(of(&rows([0.03, -0.02, 0.04, 0.01], [1.0, 1.0])).starts_with(none));
        let mut rows = rows([2.0, 1.0, 2.0, 1.0], [0.0, 1.0]);
        assert!(of(&rows).starts_with("With peers 2 of 2"));
        for row in &mut rows {
            (row.p10_us, row.p90_us) = (-10.0, 10.0);
        }
        assert!(of(&rows).starts_with(none), "{}", of(&rows));
    }

    #[test]
    fn a_long_tail_on_the_far_side_hides_no_difference() {
        let mut rows = rows([2.0, 1.0, 2.0, 1.0], [0.0, 1.0]);
        for row in rows.iter_mut().filter(|row| row.engine == Engine::Caller) {
            row.p90_us = 200.0;
        }
        assert!(of(&rows).starts_with("With peers 2 of 2"), "{}", of(&rows));
    }
}
