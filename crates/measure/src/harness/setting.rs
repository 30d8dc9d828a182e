//! Settings of an experiment, and the job that a step needs.

use super::nodes::Nodes;
use super::options::text_of;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use tradewind::EngineKind;

/// Name among the [words](Setting::words) of the machines that differ from the first node's.
pub(crate) const OTHER_MACHINES: &str = "other machines";

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
    /// The nodes of the job that the experiment runs in; none: jobs of its own, on one node.
    #[serde(default)]
    pub nodes: Option<Nodes>,
    /// Speed of the link between virtual nodes in bits a second; none: as fast as the machine.
    #[serde(default)]
    pub link: Option<u64>,
    /// Options of single experiments, by name.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

impl Default for Setting {
    /// Everything, on all cores that this process may use.
    fn default() -> Self {
        let cores = shm::process::allowed_cores();
        let options = BTreeMap::new();
        Setting { quick: false, cores, map: None, seed: 1995, nodes: None, link: None, options }
    }
}

impl Setting {
    /// Properties that comparable measurements share: a run keeps them, and goes on under the same
    /// only.
    pub fn words(&self) -> BTreeMap<String, String> {
        let mut words = self.options.clone();
        let mut put = |name: &str, value: String| words.insert(name.to_owned(), value);
        put("version", env!("CARGO_PKG_VERSION").to_owned());
        put("effort", if self.quick { "quick" } else { "full" }.to_owned());
        put("cores", text_of(&self.cores));
        put("machine", machine().to_owned());
        put("seed", self.seed.to_string());
        if let Some(map) = &self.map {
            put("map", text_of(map));
        }
        if let Some(nodes) = &self.nodes {
            let ranks = text_of(&nodes.ranks);
            put("nodes", format!("{}, with {ranks} ranks", nodes.describe()));
            put("engine", nodes.engine.clone().unwrap_or_else(|| "all".to_owned()));
            if !nodes.others.is_empty() {
                put(OTHER_MACHINES, serde_json::to_string(&nodes.others).unwrap_or_default());
            }
        }
        words
    }

    /// Shuffles items, in the same order on all processes. Whatever disturbs a machine for a
    /// while then disturbs points here and there, which fits leave out, and not a stretch of a
    /// curve, which would look like a property of the machine.
    pub fn shuffled<T>(&self, items: impl IntoIterator<Item = T>) -> Vec<T> {
        let mut items: Vec<T> = items.into_iter().collect();
        items.shuffle(&mut SmallRng::seed_from_u64(self.seed));
        items
    }

    /// `quick` if little is to be done, else `full`.
    pub fn choose<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// The machine in words. It is read once, because that takes a file or more for each core, and every
/// row names the machine.
pub(super) fn machine() -> &'static str {
    static MACHINE: OnceLock<String> = OnceLock::new();
    MACHINE.get_or_init(|| {
        let machine = models::machine::Topology::here().fingerprint().clone();
        format!("{}, {} cores", machine.processor, machine.cores)
    })
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
    /// The nodes that the ranks are on, of a job that runs already; none: a job on one node.
    pub nodes: Option<Nodes>,
}

impl JobShape {
    /// Ranks on the cores that the setting maps them to. Without a map each has a core of its own
    /// if there are enough, and otherwise the system places them. On several nodes they are those
    /// of the job's ranks that [`Nodes::spread`] takes.
    pub fn bound(setting: &Setting, ranks: u32) -> Self {
        if let Some(nodes) = &setting.nodes {
            return Self::between(nodes, ranks);
        }
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
        let shared_cores = different.len() as u32;
        JobShape { ranks, engine: EngineKind::Peers, shared_cores, cores, nodes: None }
    }

    /// So many of the ranks of a job on several nodes, wherever the system puts them.
    fn between(nodes: &Nodes, ranks: u32) -> Self {
        let nodes = nodes.spread(ranks);
        let shared_cores = nodes.all_cores();
        let engine = EngineKind::Peers;
        JobShape { ranks, engine, cores: Vec::new(), shared_cores, nodes: Some(nodes) }
    }

    /// Ranks wherever the system puts them.
    pub fn unbound(setting: &Setting, ranks: u32) -> Self {
        let shared_cores = setting.cores.len() as u32;
        let engine = EngineKind::Peers;
        JobShape { ranks, engine, cores: Vec::new(), shared_cores, nodes: None }
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
        let ranks = count(self.ranks, "rank");
        match &self.nodes {
            Some(nodes) => format!("{ranks} on {}, {cores}", nodes.describe()),
            None if self.cores.is_empty() => format!("{ranks} on {cores}, unbound"),
            None => format!("{ranks} on {cores}"),
        }
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

    fn three_nodes() -> Nodes {
        let ranks = vec![2, 2, 1];
        let machines = vec![0, 0, 0];
        Nodes { ranks, machines, cores: vec![2], engine: None, others: Vec::new() }
    }

    #[test]
    fn ranks_on_several_nodes_are_taken_from_each() {
        let setting = Setting { nodes: Some(three_nodes()), ..on_two_cores() };
        let shape = JobShape::bound(&setting, 4);
        let nodes = shape.nodes.as_ref().expect("it is on nodes");
        assert_eq!((nodes.ranks.as_slice(), shape.ranks), ([2, 1, 1].as_slice(), 4));
        assert_eq!([0, 1, 2, 3].map(|rank| nodes.node_of(rank)), [0, 0, 1, 2]);
        assert_eq!(
            [0, 1, 2, 3].map(|rank| nodes.is_first_of_node(rank)),
            [true, false, true, true]
        );
        assert_eq!([0, 1, 2].map(|rank| nodes.is_first_of_machine(rank)), [true, false, false]);
        assert!(shape.is_crowded());
        assert_eq!(shape.describe(), "4 ranks on 3 nodes of one machine, 2 cores");
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
            Setting { nodes: Some(three_nodes()), ..usual.clone() },
            Setting { options: [("sizes".to_owned(), "8".to_owned())].into(), ..usual.clone() },
        ] {
            assert_ne!(other.words(), usual.words());
        }
    }
}
