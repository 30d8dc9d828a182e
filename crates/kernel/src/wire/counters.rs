//! Counters of the wire.

use aya::Ebpf;
use aya::maps::{MapError, PerCpuArray};

macro_rules! counters {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// Counters of one node's program since it was loaded.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$meta])* pub $name: u64,)*
        }

        impl Counters {
            /// Converts values in the order of the program's enumeration in `bpf/streams.h`.
            fn from_values(mut values: impl Iterator<Item = u64>) -> Self {
                Counters { $($name: values.next().unwrap_or(0),)* }
            }

            /// Returns name and value of each counter.
            pub fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
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

impl Counters {
    /// Reads the counters of a loaded program.
    ///
    /// # Errors
    /// The program has no such map.
    pub fn read(ebpf: &Ebpf) -> Result<Self, MapError> {
        let map = ebpf
            .map("wire_counts")
            .ok_or(MapError::InvalidName { name: "wire_counts".to_owned() })?;
        // Each core increments its own element; the sums are no snapshot of one instant.
        let counters = PerCpuArray::<_, u64>::try_from(map)?;
        let values: Vec<u64> = counters
            .iter()
            .map(|values| Ok(values?.iter().sum()))
            .collect::<Result<_, MapError>>()?;
        Ok(Counters::from_values(values.into_iter()))
    }

    /// Returns the number of packets that were damaged or sent by strangers.
    pub fn rejected(&self) -> u64 {
        self.truncated + self.strange + self.other_job + self.forged
    }
}
