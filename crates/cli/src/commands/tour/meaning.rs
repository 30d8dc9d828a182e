//! The conclusion of a tour, in one sentence built from its figures.

use crate::commands::figures::{microseconds, name_and_size, percent_of};
use measure::experiments::overlap::OverlapRow;
use models::machine_file::Engine;

/// Exposed times below this many microseconds differ by noise only.
const RESOLUTION_US: f64 = 0.05;
/// One engine beats the other only by a tenth or more.
const MARGIN: f64 = 1.1;

/// The two rows of one collective.
#[derive(Clone, Copy)]
struct Pair<'a> {
    caller: &'a OverlapRow,
    peers: &'a OverlapRow,
}

/// Effect of the peers engine on a collective.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Effect {
    Less,
    More,
    /// It may be chance, or is less than a tenth.
    Same,
}

impl Pair<'_> {
    fn effect(&self) -> Effect {
        let caller = self.caller;
        let peers = self.peers;
        let difference = (caller.exposed_us - peers.exposed_us).abs();
        let (less, more) =
            if caller.exposed_us < peers.exposed_us { (caller, peers) } else { (peers, caller) };
        let error = error_of_median(less.p90_us - less.exposed_us, less.repetitions)
            .hypot(error_of_median(more.exposed_us - more.p10_us, more.repetitions));
        match self.ratio() {
            _ if difference < 2.0 * error => Effect::Same,
            ratio if ratio >= MARGIN => Effect::Less,
            ratio if ratio <= 1.0 / MARGIN => Effect::More,
            _ => Effect::Same,
        }
    }

    /// Exposed time of the caller engine over that of the peers engine.
    fn ratio(&self) -> f64 {
        exposed(self.caller) / exposed(self.peers)
    }

    fn name(&self) -> String {
        name_and_size(self.caller.op, self.caller.bytes)
    }
}

fn exposed(row: &OverlapRow) -> f64 {
    row.exposed_us.max(RESOLUTION_US)
}

/// Returns the standard error of a median towards one side, on which a tenth of the times lies
/// further away than `tenth`: that of a normal distribution, 1.253 σ / √n, where a tenth lies beyond
/// 1.282 σ. The other side may have a long tail, which moves the median little.
fn error_of_median(tenth: f64, repetitions: u32) -> f64 {
    1.253 * tenth / 1.282 / f64::from(repetitions.max(1)).sqrt()
}

/// The sentence.
pub(super) fn of(rows: &[OverlapRow]) -> String {
    let pairs = pairs(rows);
    let (better, other): (Vec<Pair<'_>>, Vec<Pair<'_>>) =
        pairs.iter().partition(|pair| pair.effect() == Effect::Less);
    let (caller, peers): (Vec<&OverlapRow>, Vec<&OverlapRow>) =
        pairs.iter().map(|pair| (pair.caller, pair.peers)).unzip();
    let unattended = format!(
        "when the computation was over, {} % were finished without another call of their rank with peers, {} % with \
         caller",
        percent_of(mean_unattended(&peers)),
        percent_of(mean_unattended(&caller)),
    );
    match (better.as_slice(), other.as_slice()) {
        ([], []) => "Nothing was measured.".to_owned(),
        ([], _) => format!(
            "Peers did not beat caller here: the collectives added {} to the computation with peers and {} with caller, \
             and {unattended}.",
            range(&peers),
            range(&caller),
        ),
        (better, []) => format!(
            "With peers the collectives completed during the computation and added {} to it, with caller {}, {}; \
             {unattended}.",
            range(&peers),
            range(&caller),
            times_less(better),
        ),
        (better, other) => format!(
            "With peers {} added less to the computation than with caller, {}, but {}; {unattended}.",
            list(&better.iter().map(Pair::name).collect::<Vec<_>>()),
            times_less(better),
            list(&other.iter().map(exception).collect::<Vec<_>>()),
        ),
    }
}

fn pairs(rows: &[OverlapRow]) -> Vec<Pair<'_>> {
    let of = |engine| rows.iter().filter(move |row| row.engine == engine);
    let partner = |caller: &OverlapRow| {
        of(Engine::Peers).find(|row| (row.op, row.bytes) == (caller.op, caller.bytes))
    };
    of(Engine::Caller).filter_map(|caller| Some(Pair { caller, peers: partner(caller)? })).collect()
}

fn mean_unattended(rows: &[&OverlapRow]) -> f64 {
    rows.iter().map(|row| row.unattended).sum::<f64>() / rows.len() as f64
}

/// The exposed times of these rows.
fn range(rows: &[&OverlapRow]) -> String {
    let (least, most) = bounds(rows.iter().map(|row| row.exposed_us));
    let least = microseconds(least);
    let most = microseconds(most);
    if least == most { format!("{least} µs") } else { format!("{least} to {most} µs") }
}

fn times_less(pairs: &[Pair<'_>]) -> String {
    let (least, most) = bounds(pairs.iter().map(Pair::ratio));
    let least = format!("{least:.1}");
    let most = format!("{most:.1}");
    if least == most {
        format!("{least} times less")
    } else {
        format!("{least} to {most} times less")
    }
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
        (least.min(value), most.max(value))
    })
}

fn exception(pair: &Pair<'_>) -> String {
    let effect = if pair.effect() == Effect::More {
        "added more"
    } else {
        "showed no significant difference"
    };
    let (peers, caller) =
        (microseconds(pair.peers.exposed_us), microseconds(pair.caller.exposed_us));
    format!("{} {effect} ({peers} µs against {caller} µs)", pair.name())
}

/// "a, b and c".
fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
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
    fn where_peers_win_everywhere_it_says_by_how_much() {
        let sentence = of(&rows([1.0, 0.25, 2.0, 0.2], [0.0, 1.0]));
        assert!(sentence.starts_with("With peers the collectives completed during"), "{sentence}");
        assert!(
            sentence.contains("added 0.20 to 0.25 µs to it, with caller 1.00 to 2.00 µs"),
            "{sentence}"
        );
        assert!(sentence.contains("4.0 to 10.0 times less"), "{sentence}");
        assert!(
            sentence.contains("100 % were finished") && sentence.ends_with("0 % with caller."),
            "{sentence}"
        );
    }

    #[test]
    fn where_peers_win_nowhere_it_says_so() {
        let sentence = of(&rows([1.0, 1.0, 2.0, 3.0], [0.5, 0.25]));
        assert!(sentence.starts_with("Peers did not beat caller here"), "{sentence}");
        assert!(sentence.contains("1.00 to 3.00 µs") && sentence.contains("25 %"), "{sentence}");
    }

    #[test]
    fn where_peers_win_somewhere_it_names_where_they_do_not() {
        let sentence = of(&rows([1.0, 0.5, 2.0, 4.0], [0.5, 1.0]));
        assert!(
            sentence.contains("barrier added less") && sentence.contains("2.0 times less"),
            "{sentence}"
        );
        assert!(
            sentence.contains("but allreduce 8 B added more (4.00 µs against 2.00 µs)"),
            "{sentence}"
        );
        let sentence = of(&rows([1.0, 0.5, 2.0, 2.0], [0.5, 1.0]));
        assert!(sentence.contains("allreduce 8 B showed no significant difference"), "{sentence}");
    }

    #[test]
    fn what_chance_may_have_done_is_no_victory() {
        let mut rows = rows([2.0, 1.0, 2.0, 1.0], [0.0, 1.0]);
        assert!(of(&rows).starts_with("With peers the collectives"));
        for row in &mut rows {
            (row.p10_us, row.p90_us) = (-10.0, 10.0);
        }
        assert!(of(&rows).starts_with("Peers did not beat caller"), "{}", of(&rows));
    }

    #[test]
    fn a_long_tail_on_the_far_side_hides_no_difference() {
        let mut rows = rows([2.0, 1.0, 2.0, 1.0], [0.0, 1.0]);
        for row in rows.iter_mut().filter(|row| row.engine == Engine::Caller) {
            row.p90_us = 200.0;
        }
        assert!(of(&rows).starts_with("With peers the collectives"), "{}", of(&rows));
    }

    #[test]
    fn noise_is_no_victory() {
        // Both lost in the noise: neither beats the other, though the one is below zero.
        let sentence = of(&rows([0.03, -0.02, 0.04, 0.01], [1.0, 1.0]));
        assert!(sentence.starts_with("Peers did not beat caller"), "{sentence}");
    }

    #[test]
    fn nothing_means_nothing() {
        assert!(of(&[]).starts_with("Nothing was measured"));
    }

    #[test]
    fn it_is_one_sentence() {
        for exposed in [[1.0, 0.25, 2.0, 0.2], [1.0, 1.0, 2.0, 3.0], [1.0, 0.5, 2.0, 4.0]] {
            let sentence = of(&rows(exposed, [0.0, 1.0]));
            assert!(sentence.ends_with('.') && !sentence.contains(". "), "{sentence}");
        }
    }
}
