//! Contents of the file.

use super::networks::Networks;
use crate::costs::{Calibration, Costs, FlatCosts, Sharing, StartCosts};
use crate::file::{self, FileError, FileKind};
use crate::machine::Fingerprint;
use crate::machine::PairClass;
use crate::parameters::Classes;
use crate::query::CallForm;
use crate::statistics::Sample;
use collectives::Collective;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

collectives::named_enum! {
    /// Executor of the operations of a collective's graph.
    pub enum Engine ("engine") {
        /// In-call progress within a node: each rank runs its own operations and pays the overheads
        /// of its own messages.
        Caller = "caller",
        /// Cooperative progress within a node: the process that completes an operation runs the
        /// operations that it enables, of any rank. One process carries a chain of messages through
        /// all ranks, and nothing is under way: the latency is about nothing, and the gap is what
        /// the message takes of that process.
        Peers = "peers",
        /// Between nodes, in the ranks' blocking calls.
        Direct = "direct",
        /// Between nodes, in the node service.
        Agent = "agent",
        /// Between nodes, in the kernel.
        Kernel = "kernel",
    }
}

impl Engine {
    /// Returns `true` for an engine of collectives between nodes.
    pub const fn is_between_nodes(self) -> bool {
        matches!(self, Engine::Direct | Engine::Agent | Engine::Kernel)
    }
}

/// Measurements of a machine. Times are microseconds and sizes bytes unless a name says otherwise.
///
/// ```
/// use models::machine_file::Machine;
/// use std::path::Path;
///
/// let bytes = br#"{"format": "tradewind machine", "version": 4, "content": {"engines": 7}}"#;
/// let error = Machine::from_bytes(Path::new("machine.json"), bytes).expect_err("engines are no number");
/// assert!(error.to_string().starts_with("machine.json:1:70: damaged in field `content.engines`"));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked", into = "Unchecked")]
pub struct Machine {
    /// The machine.
    pub fingerprint: Fingerprint,
    /// Machines of the other nodes of the job in which messages between nodes were measured, each
    /// different one once.
    pub other_nodes: Vec<Fingerprint>,
    /// The smallest step of the clock, in nanoseconds.
    pub clock_nanoseconds: f64,
    /// Disturbances of the measurements.
    pub noise: Noise,
    /// Costs of messages under each engine that was measured.
    pub engines: BTreeMap<Engine, EngineCosts>,
    /// Time to combine two contributions, in microseconds a byte.
    pub combine: f64,
    /// Costs of flat collectives inside a node, by form of the call.
    pub flat: BTreeMap<CallForm, BTreeMap<Collective, FlatCosts>>,
    /// Constants of cooperative progress, by number of ranks.
    pub sharing: Vec<Sharing>,
    /// Disturbance of the measurement of [flat](Self::flat) collectives and [sharing](Self::sharing),
    /// for the numbers of ranks at which there was one.
    pub disturbed: BTreeMap<u32, String>,
    /// Times over the networks between two nodes.
    pub networks: Networks,
}

/// Costs of messages under one engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineCosts {
    /// The parameters of each class of pairs.
    pub classes: Classes,
    /// The raw samples.
    #[serde(default)]
    pub samples: BTreeMap<PairClass, Samples>,
    /// Costs of a run besides its messages, for each class of pairs.
    #[serde(default)]
    pub starts: BTreeMap<PairClass, StartCosts>,
    /// γ, the contention ratio of the direct all-to-all, for each class of pairs; 1, the upper
    /// bound, where it was not fitted.
    #[serde(default)]
    pub contention: BTreeMap<PairClass, f64>,
    /// Time to combine two contributions under this engine, in microseconds a byte, where it was
    /// measured; that of the [machine](Machine::combine) elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub combine: Option<f64>,
    /// Corrections by times of collectives between nodes.
    // Since version 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// Disturbance of the measurement, for the classes of pairs at which there was one.
    // Since version 6.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub disturbed: BTreeMap<PairClass, String>,
}

/// Disturbances of the measurements, as seen by a loop that only reads the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Noise {
    /// The share of time that the loop did not have, 0 to 1.
    pub share: f64,
    /// Interruptions a second.
    pub per_second: f64,
    /// The longest interruption, in microseconds.
    pub longest: f64,
}

/// The raw values of one class of pairs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Samples {
    /// Round trips of empty messages.
    pub round_trip: Sample,
    /// The values at each size.
    pub sizes: Vec<SizeSamples>,
}

/// The raw values at one size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SizeSamples {
    /// The size in bytes.
    pub bytes: u64,
    /// os.
    pub send_overhead: Sample,
    /// or.
    pub receive_overhead: Sample,
    /// g.
    pub gap: Sample,
}

impl Machine {
    /// A machine of which nothing has been measured yet.
    pub fn new(fingerprint: Fingerprint) -> Self {
        Machine {
            fingerprint,
            other_nodes: Vec::new(),
            clock_nanoseconds: 0.0,
            noise: Noise::default(),
            engines: BTreeMap::new(),
            combine: 0.0,
            flat: BTreeMap::new(),
            sharing: Vec::new(),
            disturbed: BTreeMap::new(),
            networks: Networks::default(),
        }
    }

    /// Reads the file of any machine.
    ///
    /// # Errors
    /// [`FileError`], which names the file, the place, and what to do.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        file::read(path, &FileKind::MACHINE)
    }

    /// Reads the file of this machine.
    ///
    /// # Errors
    /// As [`read`](Self::read), and [`FileError::OtherMachine`] if the file does not belong to the
    /// machine here.
    pub fn read_for(path: &Path, here: &Fingerprint) -> Result<Self, FileError> {
        let machine = Self::read(path)?;
        file::belongs(path, &FileKind::MACHINE, &machine.fingerprint, here)?;
        Ok(machine)
    }

    /// Returns `true` if a machine is the measured one, or like another node of the job in which
    /// messages between nodes were measured.
    pub fn describes(&self, here: &Fingerprint) -> bool {
        self.fingerprint == *here || self.other_nodes.contains(here)
    }

    /// The machine in a file with these bytes; the path is for messages.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Self, FileError> {
        file::parse(path, &FileKind::MACHINE, bytes)
    }

    /// The bytes of the file.
    ///
    /// # Errors
    /// Errors of the JSON writer.
    pub fn to_bytes(&self) -> io::Result<Vec<u8>> {
        file::to_bytes(&FileKind::MACHINE, self)
    }

    /// Writes the file, whole or not at all: on an error, such as a full disk, the old file is
    /// still there.
    ///
    /// # Errors
    /// [`FileError::Unwritable`].
    pub fn write(&self, path: &Path) -> Result<(), FileError> {
        file::write(path, &FileKind::MACHINE, self)
    }

    /// Takes over what a newer measurement of the same machine has.
    pub fn absorb(&mut self, newer: Machine) {
        let Machine {
            other_nodes,
            clock_nanoseconds,
            noise,
            engines,
            combine,
            flat,
            sharing,
            disturbed,
            networks,
            ..
        } = newer;
        if !other_nodes.is_empty() {
            self.other_nodes = other_nodes;
        }
        if clock_nanoseconds > 0.0 {
            (self.clock_nanoseconds, self.noise) = (clock_nanoseconds, noise);
        }
        if combine > 0.0 {
            self.combine = combine;
        }
        self.engines.extend(engines);
        if !flat.is_empty() || !sharing.is_empty() {
            self.disturbed = disturbed;
        }
        if !flat.is_empty() {
            self.flat = flat;
        }
        if !sharing.is_empty() {
            self.sharing = sharing;
        }
        // Networks that were measured in turns are compared, no others.
        if !networks.0.is_empty() {
            self.networks = networks;
        }
    }

    /// Costs of messages under an engine, begun if there are none.
    pub fn engine_mut(&mut self, engine: Engine) -> &mut EngineCosts {
        self.engines.entry(engine).or_default()
    }

    /// The parameters of each class of pairs under an engine.
    pub fn classes(&self, engine: Engine) -> Option<&Classes> {
        self.engines.get(&engine).map(|costs| &costs.classes)
    }

    /// Returns the costs of calls of a form under an engine, among ranks with no pair farther apart
    /// than this; `None` without a class for it ([`Classes::for_pair`]). Only cooperative progress
    /// within a node has flat collectives and [sharing](Sharing); where its messages were not
    /// measured, the constants of sharing suggest their parameters.
    pub fn costs(&self, engine: Engine, form: CallForm, farthest: PairClass) -> Option<Costs> {
        let costs = self.engines.get(&engine);
        let cooperative = engine == Engine::Peers && farthest.is_inside_node();
        let suggested = || {
            let sharing = self.sharing.first().filter(|_| cooperative)?;
            Some((farthest, sharing.constants.parameters().ok()?))
        };
        let measured = costs.and_then(|costs| costs.classes.for_pair(farthest));
        let measured = measured.map(|(class, network)| (class, network.clone()));
        let (class, network) = measured.or_else(suggested)?;
        let start = costs.and_then(|costs| costs.starts.get(&class)).copied();
        let contention = costs.and_then(|costs| costs.contention.get(&class)).copied();
        let mut found = Costs {
            network,
            start: start.unwrap_or_default(),
            combine: costs.and_then(|costs| costs.combine).unwrap_or(self.combine),
            contention: contention.unwrap_or(1.0),
            flat: self.flat.get(&form).filter(|_| cooperative).cloned().unwrap_or_default(),
            cores: self.cores(),
            sharing: if cooperative { self.sharing.clone() } else { Vec::new() },
        };
        if let Some(calibration) = costs.and_then(|costs| costs.calibration.as_ref()) {
            calibration.apply(&mut found, farthest.is_inside_node());
        }
        Some(found)
    }

    /// Number of cores that the ranks of one node may use.
    pub fn cores(&self) -> u32 {
        self.sharing.first().map_or(self.fingerprint.cores, |sharing| sharing.cores).max(1)
    }

    /// Returns `true` if flat collectives were measured among ranks that share cores, or have one
    /// each, as so many ranks on one node of this machine do.
    pub fn has_ranks_like(&self, ranks: u32) -> bool {
        let cores = self.cores();
        let points = self.flat.values().flat_map(BTreeMap::values).flat_map(FlatCosts::points);
        points.into_iter().any(|point| (point.ranks <= cores) == (ranks <= cores))
    }

    /// The farthest class of pairs inside the node that was measured under an engine.
    pub fn farthest_inside(&self, engine: Engine) -> Option<PairClass> {
        let classes = self.classes(engine)?.iter().map(|(class, _)| class);
        classes.filter(|class| class.is_inside_node()).last()
    }
}

/// A number in a machine's file that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("`{field}` is {value}: give a number {range}")]
struct OutOfRange {
    field: String,
    value: f64,
    range: &'static str,
}

/// The form in files, before validation.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    fingerprint: Fingerprint,
    #[serde(default)]
    other_nodes: Vec<Fingerprint>,
    clock_nanoseconds: f64,
    noise: Noise,
    engines: BTreeMap<Engine, EngineCosts>,
    combine: f64,
    #[serde(default)]
    flat: BTreeMap<CallForm, BTreeMap<Collective, FlatCosts>>,
    #[serde(default)]
    sharing: Vec<Sharing>,
    // Since version 6.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    disturbed: BTreeMap<u32, String>,
    // Since version 4.
    #[serde(default)]
    networks: Networks,
}

impl TryFrom<Unchecked> for Machine {
    type Error = OutOfRange;

    fn try_from(unchecked: Unchecked) -> Result<Self, Self::Error> {
        let Unchecked {
            fingerprint,
            other_nodes,
            clock_nanoseconds,
            noise,
            engines,
            combine,
            flat,
            sharing,
            disturbed,
            networks,
        } = unchecked;
        not_negative("clock_nanoseconds", clock_nanoseconds)?;
        not_negative("combine", combine)?;
        for (engine, costs) in &engines {
            for (class, ratio) in &costs.contention {
                moderate(format!("engines.{engine}.contention.{class}"), *ratio)?;
            }
            if let Some(Err((name, value))) = costs.calibration.as_ref().map(Calibration::check) {
                let field = format!("engines.{engine}.calibration.{name}");
                return Err(OutOfRange { field, value, range: "from 0 to 1e6" });
            }
            if let Some(combine) = costs.combine {
                not_negative(&format!("engines.{engine}.combine"), combine)?;
            }
            for (class, start) in &costs.starts {
                not_negative(&format!("engines.{engine}.starts.{class}.fixed"), start.fixed)?;
                not_negative(&format!("engines.{engine}.starts.{class}.per_byte"), start.per_byte)?;
            }
        }
        for (position, one) in sharing.iter().enumerate() {
            if let Err((name, value)) = one.check() {
                let field = format!("sharing.{position}.{name}");
                return Err(OutOfRange { field, value, range: "from 0 to 1e9" });
            }
        }
        if let Err((field, value)) = networks.check() {
            return Err(OutOfRange { field, value, range: "above 0" });
        }
        Ok(Machine {
            fingerprint,
            other_nodes,
            clock_nanoseconds,
            noise,
            engines,
            combine,
            flat,
            sharing,
            disturbed,
            networks,
        })
    }
}

impl From<Machine> for Unchecked {
    fn from(machine: Machine) -> Self {
        let Machine {
            fingerprint,
            other_nodes,
            clock_nanoseconds,
            noise,
            engines,
            combine,
            flat,
            sharing,
            disturbed,
            networks,
        } = machine;
        Unchecked {
            fingerprint,
            other_nodes,
            clock_nanoseconds,
            noise,
            engines,
            combine,
            flat,
            sharing,
            disturbed,
            networks,
        }
    }
}

/// Fits may give coefficients below zero, but no model may become infinite.
fn moderate(field: String, value: f64) -> Result<(), OutOfRange> {
    const MOST: f64 = 1e12;
    if value.abs() <= MOST {
        Ok(())
    } else {
        Err(OutOfRange { field, value, range: "between -1e12 and 1e12" })
    }
}

fn not_negative(field: &str, value: f64) -> Result<(), OutOfRange> {
    if value < 0.0 {
        return Err(OutOfRange { field: field.to_owned(), value, range: "that is not negative" });
    }
    moderate(field.to_owned(), value)
}
