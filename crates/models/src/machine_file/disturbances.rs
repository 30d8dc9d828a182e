//! Measurements of a machine that were disturbed.

use super::contents::{Engine, EngineCosts, Machine};
use crate::costs::Sharing;
use crate::machine::PairClass;
use crate::query::Query;

impl Machine {
    /// Disturbances of the measurements: what was measured, and the reason to doubt it. Empty if
    /// nothing disturbed them.
    ///
    /// ```
    /// use models::machine::Fingerprint;
    /// use models::machine_file::Machine;
    ///
    /// let mut machine = Machine::new(Fingerprint::default());
    /// assert!(machine.disturbances().is_empty());
    /// machine.disturbed.insert(4, "other processes used 43 % of the cores".to_owned());
    /// assert_eq!(machine.disturbances(), ["4 ranks: other processes used 43 % of the cores"]);
    /// ```
    pub fn disturbances(&self) -> Vec<String> {
        let of_engine = |(engine, costs): (&Engine, &EngineCosts)| {
            let words = |(class, why): (&PairClass, &String)| format!("{class}, {engine}: {why}");
            costs.disturbed.iter().map(words).collect::<Vec<_>>()
        };
        let of_ranks = self.disturbed.iter().map(|(ranks, why)| format!("{ranks} ranks: {why}"));
        self.engines.iter().flat_map(of_engine).chain(of_ranks).collect()
    }

    /// The disturbance of a measurement that predicts a call, if there was one.
    pub fn disturbance_of(&self, query: &Query) -> Option<&str> {
        if query.nodes() == 1 {
            let nearest = Sharing::nearest(&self.sharing, query.ranks)?;
            return self.disturbed.get(&nearest.ranks).map(String::as_str);
        }
        let between = self.engines.iter().filter(|(engine, _)| engine.is_between_nodes());
        between.flat_map(|(_, costs)| costs.disturbed.values()).next().map(String::as_str)
    }

    /// Returns `true` if messages of a class of pairs were measured under an engine, undisturbed.
    pub fn is_quiet_between(&self, engine: Engine, class: PairClass) -> bool {
        let is_quiet = |costs: &EngineCosts| {
            costs.classes.get(class).is_some() && !costs.disturbed.contains_key(&class)
        };
        self.engines.get(&engine).is_some_and(is_quiet)
    }

    /// Returns `true` if cooperative progress among so many ranks was measured, undisturbed.
    pub fn is_quiet_among(&self, ranks: u32) -> bool {
        self.sharing.iter().any(|one| one.ranks == ranks) && !self.disturbed.contains_key(&ranks)
    }

    /// The disturbances of a newer measurement of the same machine in what this one has measured
    /// undisturbed.
    pub fn spoilt_by(&self, newer: &Machine) -> Vec<String> {
        let mut spoilt = newer.clone();
        spoilt.disturbed.retain(|ranks, _| self.is_quiet_among(*ranks));
        for (engine, costs) in &mut spoilt.engines {
            costs.disturbed.retain(|class, _| self.is_quiet_between(*engine, *class));
        }
        spoilt.disturbances()
    }
}
