//! Properties of providers, by name.

use crate::error::Error;
use std::fmt;
use std::str::FromStr;

/// Providers that run over the system's sockets or shared memory. None of them is faster than TCP
/// connections of the program's own.
const SOFTWARE: [&str; 10] =
    ["tcp", "net", "sockets", "udp", "shm", "sm2", "ofi_rxm", "ofi_rxd", "ofi_mrail", "lnx"];
/// Providers with a descriptor that is never readable, or where nothing moves while the process
/// sleeps.
const SPINNING: [&str; 2] = ["psm3", "opx"];

/// A choice of a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// That of a network adapter, else one over sockets.
    #[default]
    Any,
    /// The one of this name, such as `tcp` or `tcp;ofi_rxm`.
    Named(String),
}

impl FromStr for Choice {
    type Err = Error;

    /// Reads the name of a provider; any for an empty text.
    fn from_str(name: &str) -> Result<Choice, Error> {
        if name.is_empty() {
            return Ok(Choice::Any);
        }
        match reason_to_refuse(name) {
            Some(why) => Err(Error::Refused { provider: name.into(), why }),
            None => Ok(Choice::Named(name.into())),
        }
    }
}

/// Protocol of long messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LongMessages {
    /// Read by their receivers where the provider is that of an adapter and has remote memory: a
    /// read there costs less than messages. Over sockets it costs as much as a message to the
    /// sender and one back.
    #[default]
    ByProvider,
    /// Read by their receivers, from memory that the sender registers.
    Read,
    /// Messages.
    Messages,
}

impl LongMessages {
    /// Returns true if long messages of this provider are read, as far as it has remote memory.
    pub(crate) fn are_read(self, provider: &str) -> bool {
        match self {
            LongMessages::ByProvider => !is_software(provider),
            LongMessages::Read => true,
            LongMessages::Messages => false,
        }
    }
}

/// End of the text of a selection with [`LongMessages::Read`].
const READ_SUFFIX: &str = "+read";
/// The same with [`LongMessages::Messages`].
pub(crate) const MESSAGES_SUFFIX: &str = "+messages";

/// A provider, and the protocol of its long messages.
///
/// ```
/// use fabric::{Choice, LongMessages, Selection};
///
/// let Selection { choice, long } = "tcp+read".parse()?;
/// assert_eq!((choice, long), (Choice::Named("tcp".into()), LongMessages::Read));
/// # Ok::<(), fabric::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The provider.
    pub choice: Choice,
    /// Protocol of long messages.
    pub long: LongMessages,
}

impl Selection {
    /// Returns true if reads through sockets are requested: every process that reaches the node may
    /// send some.
    pub fn reads_over_sockets(&self) -> bool {
        let Choice::Named(name) = &self.choice else { return false };
        self.long == LongMessages::Read && is_software(name)
    }
}

impl FromStr for Selection {
    type Err = Error;

    /// Reads the name of a provider, perhaps with `+read` or `+messages` behind it.
    fn from_str(text: &str) -> Result<Selection, Error> {
        let suffixes =
            [(READ_SUFFIX, LongMessages::Read), (MESSAGES_SUFFIX, LongMessages::Messages)];
        let found =
            suffixes.iter().find_map(|(suffix, long)| Some((text.strip_suffix(suffix)?, *long)));
        let (name, long) = found.unwrap_or((text, LongMessages::ByProvider));
        Ok(Selection { choice: name.parse()?, long })
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Any => formatter.write_str("provider of reliable messages"),
            Choice::Named(name) => write!(formatter, "provider {name} of reliable messages"),
        }
    }
}

/// The provider of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// Its name, such as `tcp;ofi_rxm`.
    pub name: String,
    /// Version of the library: major and minor.
    pub library: (u32, u32),
    /// Name of the device.
    pub domain: String,
    /// True if a process can sleep until something arrives.
    pub can_sleep: bool,
    /// True if the memory of messages is registered.
    pub registers: bool,
    /// Length of the longest injected message.
    pub inject_bytes: usize,
    /// True if long messages are read by their receivers.
    pub reads: bool,
    /// Length of the longest message, and of the longest read.
    pub longest: usize,
}

impl Provider {
    /// Returns the name, with the protocol of long messages where that is not the default of the
    /// provider.
    pub fn selection(&self) -> String {
        let suffix = match (self.reads, is_software(&self.name)) {
            (true, true) => READ_SUFFIX,
            (false, false) => MESSAGES_SUFFIX,
            _ => "",
        };
        format!("{}{suffix}", self.name)
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Provider { name, library: (major, minor), domain, can_sleep, reads, .. } = self;
        let waiting = if *can_sleep { "sleeps" } else { "is polled" };
        write!(formatter, "{name} of libfabric {major}.{minor} on {domain}, which {waiting}")?;
        let long = if *reads { "read from the sender's memory" } else { "sent as messages" };
        write!(formatter, "; long messages are {long}")
    }
}

/// Returns the reason why a provider is not used.
pub(crate) fn reason_to_refuse(name: &str) -> Option<&'static str> {
    let has = |part: &str| name.split(';').any(|other| other == part);
    if has("net") {
        // Its descriptor is always readable (seen in 1.17), so that a process which sleeps on it
        // keeps a core busy.
        return Some(
            "a process that waits for its messages never sleeps; take tcp instead \
             (TRADEWIND_NETWORK=fabric:tcp)",
        );
    }
    (has("shm") || has("sm2")).then_some(
        "it connects processes of one node only; take tcp instead (TRADEWIND_NETWORK=fabric:tcp)",
    )
}

pub(crate) fn is_software(name: &str) -> bool {
    name.split(';').all(|part| SOFTWARE.contains(&part))
}

pub(crate) fn spins(name: &str) -> bool {
    name.split(';').any(|part| SPINNING.contains(&part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_that_cannot_be_used_are_refused_by_name() {
        let refused = "net".parse::<Choice>().expect_err("it never sleeps").to_string();
        assert!(refused.contains("net") && refused.contains("fabric:tcp"), "{refused}");
        assert!("net+read".parse::<Selection>().is_err());
        assert!("net;ofi_rxm".parse::<Choice>().is_err());
        assert!("shm".parse::<Choice>().is_err());
        assert_eq!("verbs;ofi_rxm".parse(), Ok(Choice::Named("verbs;ofi_rxm".into())));
        assert_eq!("".parse(), Ok(Choice::Any));
    }

    #[test]
    fn adapters_are_told_from_sockets() {
        for (name, software) in
            [("tcp;ofi_rxm", true), ("udp;ofi_rxd", true), ("verbs;ofi_rxm", false), ("efa", false)]
        {
            assert_eq!(is_software(name), software, "{name}");
        }
        assert!(spins("psm3") && !spins("tcp"));
    }

    #[test]
    fn long_messages_of_adapters_are_read() {
        for (text, adapter, sockets) in
            [("efa", true, false), ("+read", true, true), ("efa+messages", false, false)]
        {
            let Selection { long, .. } = text.parse().expect("it is no name that is refused");
            assert_eq!(long.are_read("efa"), adapter, "{text}");
            assert_eq!(long.are_read("tcp;ofi_rxm"), sockets, "{text}");
        }
        for (text, sockets) in [("tcp;ofi_rxm+read", true), ("tcp", false), ("efa+read", false)] {
            let selection: Selection = text.parse().expect("it is no name that is refused");
            assert_eq!(selection.reads_over_sockets(), sockets, "{text}");
        }
        let other = "efa+something".parse::<Selection>().expect("the library knows its names");
        assert_eq!(other.choice, Choice::Named("efa+something".into()));
    }
}
