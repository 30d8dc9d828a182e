//! The nodes of a job that an experiment runs on.

use super::agreement;
use super::error::Error;
use models::machine::{Fingerprint, Topology};
use models::machine_file::Engine;
use serde::{Deserialize, Serialize};
use tradewind::Communicator;

/// Nodes, with their ranks and machines. Ranks of a communicator on such nodes are in the order of
/// the nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nodes {
    /// Number of ranks on each node.
    pub ranks: Vec<u32>,
    /// The machine of each node, from 0 on. Nodes that are namespaces share one.
    pub machines: Vec<u32>,
    /// Number of cores of each machine that the ranks may use.
    pub cores: Vec<u32>,
    /// The engine between nodes that the job was started for, as `TRADEWIND_INTERNODE` names it, or
    /// the kernel where the job has it; otherwise it has those in user space.
    pub engine: Option<String>,
    /// Machines that differ from the first node's, each once.
    pub others: Vec<Fingerprint>,
}

/// Identity of a machine: the same for all namespaces of one running kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Machine {
    boot: String,
    cores: Vec<usize>,
    fingerprint: Fingerprint,
}

impl Machine {
    fn here() -> Self {
        // Without this file, nodes count as one machine: too few cores are assumed, never too many.
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let fingerprint = Topology::here().fingerprint().clone();
        Machine { boot: boot.trim().to_owned(), cores: shm::process::allowed_cores(), fingerprint }
    }
}

impl Nodes {
    /// The nodes of a job. All ranks call this and return the same.
    ///
    /// # Errors
    /// When a rank is gone.
    pub fn of(world: &Communicator, engine: Option<String>) -> Result<Self, Error> {
        let of_ranks = leaders_of_ranks(world)?;
        let mut nodes = Nodes {
            ranks: Vec::new(),
            machines: Vec::new(),
            cores: Vec::new(),
            engine,
            others: Vec::new(),
        };
        let mut machines: Vec<Machine> = Vec::new();
        for leader in distinct(&of_ranks) {
            nodes.ranks.push(of_ranks.iter().filter(|one| **one == leader).count() as u32);
            let own = (world.rank() == leader).then(Machine::here);
            let machine = agreement::of_rank(world, leader, own.as_ref())?;
            let known = machines.iter_mut().position(|known| known.boot == machine.boot);
            let number = known.unwrap_or(machines.len());
            match machines.get_mut(number) {
                Some(known) => known.cores.extend(machine.cores),
                None => machines.push(machine),
            }
            nodes.machines.push(number as u32);
        }
        let first = machines.first().map(|machine| machine.fingerprint.clone());
        for Machine { cores, fingerprint, .. } in machines {
            nodes.cores.push(distinct(&cores).len() as u32);
            if Some(&fingerprint) != first.as_ref() && !nodes.others.contains(&fingerprint) {
                nodes.others.push(fingerprint);
            }
        }
        Ok(nodes)
    }

    /// Number of ranks on all nodes.
    pub fn size(&self) -> u32 {
        self.ranks.iter().sum()
    }

    /// Returns true if the job was started for collectives in the kernel.
    pub fn has_kernel(&self) -> bool {
        self.engine.as_deref() == Some(Engine::Kernel.name())
    }

    /// Number of cores of all machines.
    pub fn all_cores(&self) -> u32 {
        self.cores.iter().sum()
    }

    /// Nodes with so many of the ranks: one of each node, then a second of each, and so on. They
    /// are the first ranks of their nodes.
    ///
    /// ```
    /// use measure::harness::Nodes;
    /// let nodes = Nodes {
    ///     ranks: vec![2, 2, 1],
    ///     machines: vec![0, 0, 1],
    ///     cores: vec![2, 8],
    ///     engine: None,
    ///     others: Vec::new(),
    /// };
    /// assert_eq!(nodes.spread(4).ranks, [2, 1, 1]);
    /// assert_eq!((nodes.spread(2).ranks, nodes.spread(2).cores), (vec![1, 1], vec![2]));
    /// ```
    #[must_use]
    pub fn spread(&self, ranks: u32) -> Self {
        let mut taken = vec![0; self.ranks.len()];
        let mut left = ranks.min(self.size());
        while left > 0 {
            for (taken, there) in taken.iter_mut().zip(&self.ranks) {
                if left > 0 && *taken < *there {
                    *taken += 1;
                    left -= 1;
                }
            }
        }
        taken.retain(|ranks| *ranks > 0);
        let machines = self.machines[..taken.len()].to_vec();
        let count = machines.iter().max().map_or(0, |last| *last as usize + 1);
        let cores = self.cores[..count].to_vec();
        Nodes { ranks: taken, machines, cores, ..self.clone() }
    }

    /// The node of a rank.
    pub fn node_of(&self, rank: u32) -> usize {
        let mut end = 0;
        let is_behind = |ranks: &&u32| {
            end += **ranks;
            end <= rank
        };
        self.ranks.iter().take_while(is_behind).count()
    }

    /// Returns true for the first rank of each node.
    pub fn is_first_of_node(&self, rank: u32) -> bool {
        rank == 0 || self.node_of(rank) != self.node_of(rank - 1)
    }

    /// Returns true for the first rank of each machine.
    pub fn is_first_of_machine(&self, rank: u32) -> bool {
        let machine = |rank| self.machines.get(self.node_of(rank));
        (0..rank).all(|other| machine(other) != machine(rank))
    }

    /// "4 nodes of one machine".
    pub fn describe(&self) -> String {
        let nodes = self.ranks.len();
        match self.cores.len() {
            1 => format!("{nodes} nodes of one machine"),
            machines if machines == nodes => format!("{nodes} nodes"),
            machines => format!("{nodes} nodes of {machines} machines"),
        }
    }

    /// Remark for readers of the results where nodes share cores.
    pub(super) fn sharing(&self) -> Option<String> {
        (self.cores.len() < self.ranks.len()).then(|| {
            format!(
                "{} nodes share {} cores, with their node services: where more ranks than cores \
                 take part, turns of the scheduler are measured, too.",
                self.ranks.len(),
                self.all_cores()
            )
        })
    }
}

/// The first rank of each node, ascending. All ranks call this.
pub(crate) fn leaders(world: &Communicator) -> Result<Vec<u32>, Error> {
    Ok(distinct(&leaders_of_ranks(world)?))
}

fn distinct<T: Clone + Ord>(all: &[T]) -> Vec<T> {
    let mut distinct = all.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    distinct
}

/// The first rank of the node of each rank.
fn leaders_of_ranks(world: &Communicator) -> Result<Vec<u32>, Error> {
    let mut leader = [world.rank()];
    world.split_by_node()?.bcast(&mut leader, 0)?;
    let mut all = vec![0; world.size() as usize];
    world.allgather(&leader, &mut all)?;
    Ok(all)
}
