//! The environment variables of tradewind.
//!
//! [`VARIABLES`] lists all of them, and [`Lookup`] reads their values. [`warn_of_misspelt`] logs a
//! warning for each variable of the environment that begins with `TRADEWIND_` and is not in the
//! list.

mod variables;

pub use variables::*;

use crate::error::LaunchError;
use crate::ports::Ports;
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// The value of [`START_TIMEOUT`] if it is not set.
const DEFAULT_START_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest time of a variable, 30 years: the end of a longer one may be none that the clock can
/// show.
const LONGEST_TIME: Duration = Duration::from_secs(1_000_000_000);

/// The value of [`INTERNODE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InternodeEngine {
    /// The kernel engine where all nodes have it, the agent, and direct connections between the ranks
    /// for blocking collectives. Also for nonblocking ones of one step, if a node has no more cores than
    /// ranks.
    #[default]
    Any,
    /// The kernel engine, which all nodes must have.
    Kernel,
    /// The agent, and direct connections between the ranks for blocking collectives and nonblocking
    /// ones of one step.
    Direct,
    /// Direct connections between the ranks for all collectives, and the agent for the rest.
    Ranks,
    /// The agent alone.
    Agent,
}

/// The value of [`NETWORK`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NetworkChoice {
    /// TCP.
    #[default]
    Tcp,
    /// libfabric with this provider; any for an empty name.
    Fabric(String),
    /// The fastest network that was measured, otherwise TCP.
    Auto,
}

/// The file with the measured decisions between algorithms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionsFile {
    /// Its path.
    pub path: PathBuf,
    /// The path is from [`DECISIONS`], so the file must exist.
    pub is_named: bool,
}

/// A source of variables: the environment, or a table in a test.
pub trait Lookup {
    /// The value of a variable, if it is set.
    fn get(&self, name: &str) -> Option<OsString>;

    /// The number in a variable, if it is set.
    ///
    /// # Errors
    /// If the value is no number.
    fn number(&self, name: &'static str) -> Result<Option<u32>, LaunchError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.to_str().and_then(|text| text.trim().parse().ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(LaunchError::Variable { name, value, expected: "a number from 0 on" }),
        }
    }

    /// The text in a variable, if it is set and not empty.
    ///
    /// # Errors
    /// If the value is no text.
    fn text(&self, name: &'static str) -> Result<Option<String>, LaunchError> {
        match self.get(name).filter(|value| !value.is_empty()) {
            None => Ok(None),
            Some(value) => match value.into_string() {
                Ok(text) => Ok(Some(text)),
                Err(value) => Err(LaunchError::Variable { name, value, expected: "readable text" }),
            },
        }
    }

    /// The engine between nodes.
    ///
    /// # Errors
    /// If the value is no engine's name.
    fn internode_engine(&self) -> Result<InternodeEngine, LaunchError> {
        match self.text(INTERNODE)?.as_deref() {
            None => Ok(InternodeEngine::Any),
            Some("kernel") => Ok(InternodeEngine::Kernel),
            Some("direct") => Ok(InternodeEngine::Direct),
            Some("ranks") => Ok(InternodeEngine::Ranks),
            Some("agent") => Ok(InternodeEngine::Agent),
            Some(other) => {
                let value = other.into();
                let expected = "kernel, direct, ranks or agent";
                Err(LaunchError::Variable { name: INTERNODE, value, expected })
            }
        }
    }

    /// The network between node services.
    ///
    /// # Errors
    /// If the value is none of the table's.
    fn network(&self) -> Result<NetworkChoice, LaunchError> {
        let Some(text) = self.text(NETWORK)? else { return Ok(NetworkChoice::Tcp) };
        match text.split_once(':').unwrap_or((&text, "")) {
            ("tcp", "") => Ok(NetworkChoice::Tcp),
            ("auto", "") => Ok(NetworkChoice::Auto),
            ("fabric", provider) => Ok(NetworkChoice::Fabric(provider.to_owned())),
            _ => {
                let expected = "tcp, fabric, fabric:PROVIDER or auto";
                Err(LaunchError::Variable { name: NETWORK, value: text.into(), expected })
            }
        }
    }

    /// Ports at which the processes of the job listen.
    ///
    /// # Errors
    /// If the value is no range.
    fn ports(&self) -> Result<Ports, LaunchError> {
        let Some(text) = self.text(PORTS)? else { return Ok(Ports::default()) };
        let expected = "a range of ports such as 7000-7999";
        text.parse().map_err(|()| LaunchError::Variable {
            name: PORTS,
            value: text.into(),
            expected,
        })
    }

    /// The time in a variable, if it is set.
    ///
    /// # Errors
    /// If the value is no number of seconds, or more than 30 years.
    fn seconds(&self, name: &'static str) -> Result<Option<Duration>, LaunchError> {
        let Some(value) = self.get(name).filter(|value| !value.is_empty()) else { return Ok(None) };
        let seconds = value.to_str().and_then(|text| text.trim().parse::<f64>().ok());
        let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        match time.filter(|time| *time <= LONGEST_TIME) {
            Some(time) => Ok(Some(time)),
            None => Err(LaunchError::Variable { name, value, expected: "a number of seconds" }),
        }
    }

    /// Returns the number in a variable, if it is set. `expected` describes the range.
    ///
    /// # Errors
    /// Returns an error if the value is no number of the range.
    fn number_within(
        &self,
        name: &'static str,
        range: RangeInclusive<u64>,
        expected: &'static str,
    ) -> Result<Option<u64>, LaunchError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.to_str().and_then(|text| text.parse().ok());
        match number.filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(LaunchError::Variable { name, value, expected }),
        }
    }

    /// Returns the directory of the shared memory's file, if it is set.
    fn segment_directory(&self) -> Option<PathBuf> {
        self.get(SEGMENT_DIR).map(PathBuf::from)
    }

    /// Returns the address space of a rank's part of the shared memory in bytes, if it is set.
    ///
    /// # Errors
    /// Returns an error if the value is no number of MiB.
    fn arena_bytes(&self) -> Result<Option<u64>, LaunchError> {
        let mib = self.number_within(ARENA_MIB, 1..=1 << 24, "a number from 1 to 16777216")?;
        Ok(mib.map(|mib| mib << 20))
    }

    /// Returns the length of the longest eager message within a node, if it is set.
    ///
    /// # Errors
    /// Returns an error if the value is no number of bytes.
    fn eager_bytes(&self) -> Result<Option<u64>, LaunchError> {
        self.number_within(EAGER_BYTES, 0..=1 << 30, "a number from 0 to 1073741824")
    }

    /// Returns the length from which a rank reads another rank's private memory, if it is set;
    /// `u64::MAX` for never.
    ///
    /// # Errors
    /// Returns an error if the value is no number of bytes.
    fn single_copy(&self) -> Result<Option<u64>, LaunchError> {
        let bytes = self.number_within(SINGLE_COPY, 0..=u64::MAX, "a number of bytes, or 0")?;
        Ok(bytes.map(|bytes| if bytes == 0 { u64::MAX } else { bytes }))
    }

    /// Returns the file of decisions: the value of [`DECISIONS`], with an empty value for no file;
    /// otherwise `tradewind/decisions.json` under `XDG_CONFIG_HOME`, or under `.config` in the home
    /// directory.
    fn decisions_file(&self) -> Option<DecisionsFile> {
        if let Some(named) = self.get(DECISIONS) {
            let is_set = !named.is_empty();
            return is_set.then(|| DecisionsFile { path: named.into(), is_named: true });
        }
        let set = |name: &str| self.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let base = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
        let path = base.join("tradewind").join("decisions.json");
        Some(DecisionsFile { path, is_named: false })
    }

    /// Returns the file of collectives of MPI libraries, beside that of decisions.
    fn mpi_table_file(&self) -> Option<PathBuf> {
        Some(self.decisions_file()?.path.with_file_name("mpi.json"))
    }

    /// Time to wait for the other ranks.
    ///
    /// # Errors
    /// If the value is no number of seconds, or zero.
    fn start_timeout(&self) -> Result<Duration, LaunchError> {
        match self.seconds(START_TIMEOUT)? {
            Some(Duration::ZERO) => Err(LaunchError::Variable {
                name: START_TIMEOUT,
                value: self.get(START_TIMEOUT).unwrap_or_default(),
                expected: "a number of seconds above 0",
            }),
            time => Ok(time.unwrap_or(DEFAULT_START_TIMEOUT)),
        }
    }

    /// Time without a response of another node, if it is set. At least a second: a busy machine may
    /// not respond for so long.
    ///
    /// # Errors
    /// If the value is no number of seconds.
    fn node_timeout(&self) -> Result<Option<Duration>, LaunchError> {
        Ok(self.seconds(NODE_TIMEOUT)?.map(|time| time.max(Duration::from_secs(1))))
    }
}

/// The environment of this process.
#[derive(Clone, Copy, Debug)]
pub struct Environment;

impl Lookup for Environment {
    fn get(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }
}

#[cfg(test)]
impl Lookup for std::collections::HashMap<&str, &str> {
    fn get(&self, name: &str) -> Option<OsString> {
        self.get(name).map(|value| OsString::from(*value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn a_value_that_is_no_number_is_named() {
        let table = HashMap::from([(RANK, "one")]);
        let error = table.number(RANK).expect_err("not a number");
        assert_eq!(
            error.to_string(),
            "TRADEWIND_RANK is \"one\", it must be a number from 0 on: change it or unset it"
        );
        assert!(table.number(SIZE).expect("not set").is_none());
    }

    #[test]
    fn lengths_lie_within_their_limits() {
        let table = HashMap::from([(ARENA_MIB, "0"), (EAGER_BYTES, "64")]);
        assert_eq!(
            table.arena_bytes().expect_err("too small").to_string(),
            "TRADEWIND_ARENA_MIB is \"0\", it must be a number from 1 to 16777216: \
             change it or unset it"
        );
        assert_eq!(table.eager_bytes().expect("a number"), Some(64));
        let table = HashMap::from([(ARENA_MIB, "2")]);
        assert_eq!(table.arena_bytes().expect("a number"), Some(2 << 20));
        assert_eq!(table.eager_bytes().expect("not set"), None);
    }

    #[test]
    fn the_file_of_decisions_is_named_or_the_users() {
        let file = |pairs: &[(&'static str, &'static str)]| {
            let table: HashMap<&str, &str> = pairs.iter().copied().collect();
            table.decisions_file().map(|file| (file.path, file.is_named))
        };
        let home = ("HOME", "/home/me");
        assert_eq!(file(&[(DECISIONS, "a.json"), home]), Some(("a.json".into(), true)));
        assert_eq!(file(&[(DECISIONS, ""), home]), None);
        let usual = "/home/me/.config/tradewind/decisions.json";
        assert_eq!(file(&[home]), Some((usual.into(), false)));
        let base = ("XDG_CONFIG_HOME", "/etc/me");
        assert_eq!(file(&[base, home]), Some(("/etc/me/tradewind/decisions.json".into(), false)));
        assert_eq!(file(&[]), None);
    }

    #[test]
    fn the_engine_between_nodes_has_a_known_name() {
        let wanted = |word| HashMap::from([(INTERNODE, word)]).internode_engine();
        assert_eq!(wanted("kernel").expect("it is known"), InternodeEngine::Kernel);
        assert_eq!(wanted("direct").expect("it is known"), InternodeEngine::Direct);
        assert_eq!(wanted("ranks").expect("it is known"), InternodeEngine::Ranks);
        assert_eq!(wanted("agent").expect("it is known"), InternodeEngine::Agent);
        assert_eq!(wanted("").expect("it is empty"), InternodeEngine::Any);
        let error = wanted("kernal").expect_err("there is no such engine").to_string();
        let expected =
            format!("{INTERNODE} is \"kernal\", it must be kernel, direct, ranks or agent");
        assert!(error.starts_with(&expected), "{error}");
    }

    #[test]
    fn the_network_between_nodes_has_a_known_name() {
        let wanted = |word| HashMap::from([(NETWORK, word)]).network();
        assert_eq!(wanted("tcp").expect("it is known"), NetworkChoice::Tcp);
        assert_eq!(wanted("auto").expect("it is known"), NetworkChoice::Auto);
        let named = NetworkChoice::Fabric("tcp;ofi_rxm".into());
        assert_eq!(wanted("fabric:tcp;ofi_rxm").expect("it is known"), named);
        assert_eq!(wanted("fabric").expect("it is known"), NetworkChoice::Fabric(String::new()));
        for wrong in ["infiniband", "tcp:eth0", "auto:tcp"] {
            let error = wanted(wrong).expect_err("there is no such network").to_string();
            assert!(error.contains(wrong) && error.contains("fabric:PROVIDER"), "{error}");
        }
    }

    #[test]
    fn the_start_timeout_is_in_seconds() {
        let timeout = |text| HashMap::from([(START_TIMEOUT, text)]).start_timeout();
        assert_eq!(timeout("0.25").expect("a quarter of a second"), Duration::from_millis(250));
        for wrong in ["-1", "0", "soon", "1e19", "1e300"] {
            assert!(timeout(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_node_timeout_is_a_second_at_least() {
        let timeout =
            |text| HashMap::from([(NODE_TIMEOUT, text)]).node_timeout().expect("it is a number");
        assert_eq!(
            ["0", "90.5"].map(timeout),
            [1000, 90_500].map(|time| Some(Duration::from_millis(time)))
        );
        assert_eq!(HashMap::new().node_timeout().expect("it is not set"), None);
    }
}
