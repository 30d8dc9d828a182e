//! Contents of the file.

use crate::costs::Costs;
use crate::file::{self, FileError, FileKind};
use crate::formulas::join::JoinCosts;
use crate::machine::Fingerprint;
use crate::machine::PairClass;
use crate::parameters::Classes;
use crate::statistics::Sample;
use collectives::Collective;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Measurements of a machine. Times are microseconds and sizes bytes unless a name says otherwise.
///
/// ```
/// use models::machine_file::Machine;
/// use std::path::Path;
///
/// let bytes = br#"{"format": "tradewind machine", "version": 2, "content": {"classes": 7}}"#;
/// let error = Machine::from_bytes(Path::new("machine.json"), bytes).expect_err("classes are no number");
/// assert!(error.to_string().starts_with("machine.json:1:70: damaged in field `content.classes`"));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked", into = "Unchecked")]
pub struct Machine {
    /// The machine.
    pub fingerprint: Fingerprint,
    /// The smallest step of the clock, in nanoseconds.
    pub clock_nanoseconds: f64,
    /// Disturbances of the measurements.
    pub noise: Noise,
    /// The parameters of each class of pairs, with in-call progress (the caller engine): each
    /// rank runs its own operations and pays the overheads of its own messages.
    pub classes: Classes,
    /// The raw samples.
    pub samples: BTreeMap<PairClass, Samples>,
    /// Costs of a run besides its messages, for each class of pairs.
    pub starts: BTreeMap<PairClass, StartCosts>,
    /// The same with cooperative progress (the peers engine): the process that completes an
    /// operation runs the operations it enables, of any rank.
    pub peers: Peers,
    /// Time to combine two contributions, in microseconds a byte.
    pub combine: f64,
    /// γ, the contention ratio of the direct all-to-all.
    pub contention: f64,
    /// Costs of joins inside a node.
    pub joins: BTreeMap<Collective, JoinCosts>,
}

/// Costs of messages under the peers engine. There one process carries a chain of messages through
/// all ranks, and nothing is under way: the latency is about nothing, and the gap is what the
/// message takes of that process. What an algorithm costs is then nearer to the sum of its
/// messages' gaps than to its longest chain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peers {
    /// The parameters of each class of pairs.
    pub classes: Classes,
    /// The raw samples.
    pub samples: BTreeMap<PairClass, Samples>,
    /// Costs of a run besides its messages, for each class of pairs.
    pub starts: BTreeMap<PairClass, StartCosts>,
}

/// Costs of a run besides its messages: a + c × m, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartCosts {
    /// a: to start, and to be told that all is done.
    pub fixed: f64,
    /// c, for each byte of private buffers, which are copied in or out. What lies in the job's
    /// memory costs nothing.
    pub per_byte: f64,
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
            clock_nanoseconds: 0.0,
            noise: Noise::default(),
            classes: Classes::default(),
            samples: BTreeMap::new(),
            starts: BTreeMap::new(),
            peers: Peers::default(),
            combine: 0.0,
            contention: 1.0,
            joins: BTreeMap::new(),
        }
    }

    /// Reads a machine's file, whichever machine it tells of.
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

    /// Returns the costs of operations among ranks with no pair farther apart than this; `None`
    /// without a class for it ([`Classes::for_pair`]). Between nodes there
    /// are no joins.
    pub fn costs(&self, farthest: PairClass) -> Option<Costs> {
        let network = self.classes.for_pair(farthest)?.1.clone();
        let joins = if farthest.is_inside_node() { self.joins.clone() } else { BTreeMap::new() };
        Some(Costs { network, combine: self.combine, contention: self.contention, joins })
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
    clock_nanoseconds: f64,
    noise: Noise,
    classes: Classes,
    #[serde(default)]
    samples: BTreeMap<PairClass, Samples>,
    #[serde(default)]
    starts: BTreeMap<PairClass, StartCosts>,
    #[serde(default)]
    peers: Peers,
    combine: f64,
    contention: f64,
    #[serde(default)]
    joins: BTreeMap<Collective, JoinCosts>,
}

impl TryFrom<Unchecked> for Machine {
    type Error = OutOfRange;

    fn try_from(unchecked: Unchecked) -> Result<Self, Self::Error> {
        let Unchecked {
            fingerprint,
            clock_nanoseconds,
            noise,
            classes,
            samples,
            starts,
            peers,
            combine,
            contention,
            joins,
        } = unchecked;
        not_negative("clock_nanoseconds", clock_nanoseconds)?;
        not_negative("combine", combine)?;
        moderate("contention".to_owned(), contention)?;
        for (operation, costs) in &joins {
            for (name, value) in
                [("fixed", costs.fixed), ("per_rank", costs.per_rank), ("per_byte", costs.per_byte)]
            {
                moderate(format!("joins.{operation}.{name}"), value)?;
            }
        }
        for (engine, starts) in [("", &starts), ("peers.", &peers.starts)] {
            for (class, costs) in starts {
                not_negative(&format!("{engine}starts.{class}.fixed"), costs.fixed)?;
                not_negative(&format!("{engine}starts.{class}.per_byte"), costs.per_byte)?;
            }
        }
        Ok(Machine {
            fingerprint,
            clock_nanoseconds,
            noise,
            classes,
            samples,
            starts,
            peers,
            combine,
            contention,
            joins,
        })
    }
}

impl From<Machine> for Unchecked {
    fn from(machine: Machine) -> Self {
        let Machine {
            fingerprint,
            clock_nanoseconds,
            noise,
            classes,
            samples,
            starts,
            peers,
            combine,
            contention,
            joins,
        } = machine;
        Unchecked {
            fingerprint,
            clock_nanoseconds,
            noise,
            classes,
            samples,
            starts,
            peers,
            combine,
            contention,
            joins,
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
