//! What has happened on the wire.

use aya::Ebpf;
use aya::maps::{MapError, PerCpuArray};

macro_rules! counts {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// What one node's program has counted since it was loaded.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$meta])* pub $name: u64,)*
        }

        impl Counts {
            /// In the order of the program's enumeration in `bpf/streams.h`.
            fn from_values(mut values: impl Iterator<Item = u64>) -> Self {
                Counts { $($name: values.next().unwrap_or(0),)* }
            }

            /// Name and value of each.
            pub fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counts! {
    /// Data packets sent for the first time.
    sent,
    /// Sends refused because the window was full.
    held,
    /// Data packets sent again.
    resent,
    /// Packets sent only to acknowledge.
    acknowledged,
    /// Requests sent.
    asked,
    /// Messages delivered.
    received,
    /// Messages for which the receiver had no memory: dropped, to be sent again.
    refused,
    /// Data packets dropped because they had arrived before.
    duplicate,
    /// Requests and answers dropped because they came late or once more.
    stale,
    /// Packets dropped because lengths contradict each other.
    truncated,
    /// Packets dropped that are not of this protocol and version, or hold values that no node
    /// sends.
    strange,
    /// Packets dropped that belong to another job.
    other_job,
    /// Packets dropped because the MAC is wrong: forged or damaged.
    forged,
}

impl Counts {
    /// Reads them from a loaded program.
    ///
    /// # Errors
    /// When the program has no such map.
    pub fn read(ebpf: &Ebpf) -> Result<Self, MapError> {
        let map = ebpf
            .map("wire_counts")
            .ok_or(MapError::InvalidName { name: "wire_counts".to_owned() })?;
        let counters = PerCpuArray::<_, u64>::try_from(map)?;
        let values: Vec<u64> = counters
            .iter()
            .map(|values| Ok(values?.iter().sum()))
            .collect::<Result<_, MapError>>()?;
        Ok(Counts::from_values(values.into_iter()))
    }

    /// Packets that were no node's of the job, or were damaged on their way.
    pub fn rejected(&self) -> u64 {
        self.truncated + self.strange + self.other_job + self.forged
    }
}
