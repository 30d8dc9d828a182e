//! The chain (Bokhari 1995, section 7, figure 5): rank i exchanges with rank n - 1 - i, so that all
//! messages cross the middle.

use super::curves::{Scaled, crowd, drawn, point};
use super::entry::SuiteEntry;
use super::pairs::ExchangeCase;
use crate::harness::{Experiment, JobShape, Setting};
use crate::results::{Figure, Part, Table, values};
use crate::rows::{Pairs, Pattern, Run};
use std::collections::BTreeSet;

/// Two pairs, the fewest that can contend, need a core for each of their ranks.
const FEWEST_CORES: usize = 4;

/// The experiment.
pub const ENTRY: SuiteEntry = SuiteEntry {
    name: "contention",
    title: "Contention",
    about: "In a chain of n ranks, rank i exchanges messages with rank n - 1 - i, all at the same time, \
            so that n / 2 pairs contend for what lies between the two halves: a link of the report's \
            mesh, the caches and the memory of a node, the network of several nodes. Ranks of one node \
            are bound to cores in turn; a point is the time of an exchange, for each batch that of the \
            slowest rank. Where ranks take turns on cores, turns of the scheduler are seen more than \
            contention.",
    source: "Bokhari 1995, section 7 and figure 5",
    steps,
    view,
};

/// On fewer cores than two pairs need it only says so: a curve would show turns of the scheduler.
fn steps(setting: &Setting) -> Experiment {
    let cores = setting.map.as_ref().unwrap_or(&setting.cores);
    let different = match &setting.nodes {
        Some(nodes) => nodes.all_cores() as usize,
        None => cores.iter().collect::<BTreeSet<_>>().len(),
    };
    if different < FEWEST_CORES {
        let why = format!(
            "The chain says nothing here: two pairs contend only where each of their \
             {FEWEST_CORES} ranks has a core, and there {} {different}. Nothing was measured.",
            if different == 1 { "is" } else { "are" }
        );
        return Experiment::not_here(ENTRY.name, setting, &why);
    }
    // As in the report up to 32 ranks, but no more than four a core.
    let most = match &setting.nodes {
        Some(nodes) => nodes.size().clamp(2, 32).ilog2(),
        None => (4 * setting.cores.len() as u32).clamp(2, 32).ilog2(),
    };
    let case = ExchangeCase::new(Pairs::Chain, Pattern::Exchange);
    let steps = (1..=setting.choose(2.min(most), most)).flat_map(|power| {
        let ranks = 1 << power;
        let shape = match setting.nodes {
            Some(_) => JobShape::bound(setting, ranks),
            None => JobShape::on(ranks, cores),
        };
        case.sweep(setting, &shape, &format!("chain of {ranks} ranks"), 8_000)
    });
    Experiment::new(ENTRY.name, setting, steps).noting_crowds()
}

fn view(run: &Run, part: &mut Part) {
    let figure = Figure::by_length("chain", "Exchange in a chain", "time of an exchange");
    part.figures.push(drawn(figure, run.rows(), |row| {
        let pairs = row.ranks / 2;
        let curve = format!("{pairs} pair{}{}", if pairs == 1 { "" } else { "s" }, crowd(row));
        Some((curve, point(row, row.bytes as f64, 1.0)))
    }));
    let listed = |one: &Scaled<'_>| values![one.row.ranks / 2, one.row.bytes, one.time, one.ratio];
    part.tables.push(Table::new(
        ["factors", "Against one pair"],
        "pairs | bytes | time (µs) | over one pair",
        "Medians; the report's mesh loses a factor of almost 3 at a contention of 16.",
        factors(run).iter().map(listed).collect(),
    ));
}

/// Times of the shortest and the longest messages, by the number of pairs.
pub(super) fn factors(run: &Run) -> Vec<Scaled<'_>> {
    let mut all = Scaled::all(run.rows(), |_| 1.0);
    let ends = [all.first(), all.last()].map(|end| end.map(|one| one.row.bytes));
    all.retain(|one| ends.contains(&Some(one.row.bytes)));
    all.sort_by_key(|one| (one.row.ranks, one.row.bytes));
    all
}
