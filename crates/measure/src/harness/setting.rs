//! Settings of an experiment, and the job that a step needs.

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tradewind::EngineKind;

/// Settings of the user, and the machine's cores. Every process of an experiment has
/// the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// Few sizes and short repetitions, to see whether all is well.
    pub quick: bool,
    /// The cores that may be used, in ascending order; never empty.
    pub cores: Vec<usize>,
    /// The core of each rank, taken in turn; none: a core for each rank, as far as they go.
    pub map: Option<Vec<usize>>,
    /// Seed of random choices.
    pub seed: u64,
    /// Options of single experiments, by name.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

impl Default for Setting {
    /// Everything, on all cores that this process may use.
    fn default() -> Self {
        let cores = shm::process::allowed_cores();
        Setting { quick: false, cores, map: None, seed: 1995, options: BTreeMap::new() }
    }
}

impl Setting {
    /// Properties that comparable measurements share: parts keep them, and a part is only
    /// gone on with under the same.
    pub fn words(&self) -> BTreeMap<String, String> {
        let list =
            |cores: &[usize]| cores.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let mut words = self.options.clone();
        let mut put = |name: &str, value: String| words.insert(name.to_owned(), value);
        put("version", env!("CARGO_PKG_VERSION").to_owned());
        put("effort", if self.quick { "quick" } else { "full" }.to_owned());
        put("cores", list(&self.cores));
        let machine = models::machine::Topology::here().fingerprint().clone();
        put("machine", format!("{}, {} cores", machine.processor, machine.cores));
        put("seed", self.seed.to_string());
        if let Some(map) = &self.map {
            put("map", list(map));
        }
        words
    }

    /// Shuffles items, in the same order on all processes. Whatever disturbs a machine for a
    /// while then disturbs points here and there, which fits leave out, and not a stretch of a
    /// curve, which would look like a property of the machine.
    pub fn shuffled<T>(&self, items: impl IntoIterator<Item = T>) -> Vec<T> {
        let mut items: Vec<T> = items.into_iter().collect();
        items.shuffle(&mut StdRng::seed_from_u64(self.seed));
        items
    }

    /// `quick` if little is to be done, else `full`.
    pub fn choose<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// The job that a step needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobShape {
    /// Number of ranks.
    pub ranks: u32,
    /// Engine that runs operations.
    pub engine: EngineKind,
    /// The core of each rank; none: wherever the system puts them.
    pub cores: Vec<usize>,
    /// Number of cores that they share. Waiting spins only if that is no fewer than ranks.
    pub shared_cores: u32,
}

impl JobShape {
    /// Ranks on the cores that the setting maps them to: unless it says otherwise, each on a core
    /// of its own if there are enough, and else wherever the system puts them.
    pub fn bound(setting: &Setting, ranks: u32) -> Self {
        match &setting.map {
            Some(map) => Self::on(ranks, map),
            None if ranks as usize <= setting.cores.len() => Self::on(ranks, &setting.cores),
            None => Self::unbound(setting, ranks),
        }
    }

    /// Ranks on these cores, in turn.
    pub fn on(ranks: u32, cores: &[usize]) -> Self {
        let cores: Vec<usize> = cores.iter().copied().cycle().take(ranks as usize).collect();
        let mut different = cores.clone();
        different.sort_unstable();
        different.dedup();
        JobShape { ranks, engine: EngineKind::Peers, shared_cores: different.len() as u32, cores }
    }

    /// Ranks wherever the system puts them.
    pub fn unbound(setting: &Setting, ranks: u32) -> Self {
        let shared_cores = setting.cores.len() as u32;
        JobShape { ranks, engine: EngineKind::Peers, cores: Vec::new(), shared_cores }
    }

    /// The same with this engine.
    #[must_use]
    pub fn with_engine(self, engine: EngineKind) -> Self {
        JobShape { engine, ..self }
    }

    /// Returns true if ranks have to share cores.
    pub fn is_crowded(&self) -> bool {
        self.ranks > self.shared_cores
    }

    /// "8 ranks on 2 cores".
    pub fn describe(&self) -> String {
        let count = |number: u32, what: &str| {
            if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
        };
        let cores = count(self.shared_cores, "core");
        format!(
            "{} on {cores}{}",
            count(self.ranks, "rank"),
            if self.cores.is_empty() { ", unbound" } else { "" }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_two_cores() -> Setting {
        Setting { cores: vec![3, 5], ..Setting::default() }
    }

    #[test]
    fn ranks_have_a_core_each_as_far_as_they_go() {
        let setting = on_two_cores();
        assert_eq!(JobShape::bound(&setting, 2).cores, [3, 5]);
        let crowded = JobShape::bound(&setting, 4);
        assert!(crowded.cores.is_empty() && crowded.is_crowded() && crowded.shared_cores == 2);
        assert_eq!(crowded.describe(), "4 ranks on 2 cores, unbound");
    }

    #[test]
    fn a_map_is_gone_through_in_turn() {
        let setting = Setting { map: Some(vec![5, 3, 5]), ..on_two_cores() };
        let shape = JobShape::bound(&setting, 4);
        assert_eq!((shape.cores, shape.shared_cores), (vec![5, 3, 5, 5], 2));
        let same = Setting { map: Some(vec![5]), ..on_two_cores() };
        assert!(JobShape::bound(&same, 2).is_crowded());
    }

    #[test]
    fn all_ranks_shuffle_alike() {
        let setting = on_two_cores();
        let order = setting.shuffled(0..100);
        assert_eq!(order, setting.shuffled(0..100));
        assert!(!order.is_sorted() && setting.shuffled(order.clone()).len() == 100);
        let mut sorted = order;
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..100));
    }

    #[test]
    fn words_differ_where_measurements_do_not_belong_together() {
        let usual = on_two_cores();
        for other in [
            Setting { quick: true, ..usual.clone() },
            Setting { cores: vec![3], ..usual.clone() },
            Setting { map: Some(vec![3]), ..usual.clone() },
            Setting { seed: 1, ..usual.clone() },
            Setting { options: [("sizes".to_owned(), "8".to_owned())].into(), ..usual.clone() },
        ] {
            assert_ne!(other.words(), usual.words());
        }
    }
}
