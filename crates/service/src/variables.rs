//! Names of the environment variables by which a launcher and a rank understand each other, and how
//! they are read.

use crate::error::ServiceError;
use std::ffi::OsString;
use std::time::Duration;

/// Name of the node service's door.
pub const SERVICE: &str = "TRADEWIND_SERVICE";
/// Number of the rank, from 0.
pub const RANK: &str = "TRADEWIND_RANK";
/// Number of ranks.
pub const SIZE: &str = "TRADEWIND_SIZE";
/// Who runs operations: `peers` or `caller`.
pub const ENGINE: &str = "TRADEWIND_ENGINE";
/// Which engine runs collectives between nodes: `agent` for all, or `kernel` for what it takes,
/// which is then an error where it cannot be had. Unset, the kernel takes what it can where all
/// nodes have it.
pub const BETWEEN_NODES: &str = "TRADEWIND_BETWEEN_NODES";
/// The core that a rank is to bind itself to.
pub const CORE: &str = "TRADEWIND_CORE";
/// What tells a job apart from the other jobs of the same user, where no launcher says it.
pub const JOB: &str = "TRADEWIND_JOB";
/// Seconds that a rank waits for the others to start.
pub const START_TIMEOUT: &str = "TRADEWIND_START_TIMEOUT";
/// Seconds for which another node may leave unanswered what it is sent before it counts as
/// unreachable.
pub const NODE_TIMEOUT: &str = "TRADEWIND_NODE_TIMEOUT";
/// The `tradewind` command, where it is not in PATH.
pub const COMMAND: &str = "TRADEWIND_COMMAND";
/// The directory into which ranks write their part of a profile.
pub const TRACE: &str = "TRADEWIND_TRACE";

/// What this node is called, where several are simulated on one machine; usually the system says
/// which processes share one.
pub const NODE: &str = "TRADEWIND_NODE";
/// Which network leads to the other nodes: the name of an interface, or a range of addresses such
/// as 10.1.0.0/16.
pub const INTERFACE: &str = "TRADEWIND_INTERFACE";
/// The version of PMI to speak, 1 or 2; usually the first one that the process manager knows.
pub const PMI_VERSION: &str = "TRADEWIND_PMI";

/// How long a rank waits for the others unless [`START_TIMEOUT`] says otherwise.
const USUAL_START_TIMEOUT: Duration = Duration::from_secs(60);

/// What [`BETWEEN_NODES`] says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BetweenNodes {
    /// The kernel engine where it can be had, and the agent.
    #[default]
    Any,
    /// The kernel engine must be had.
    Kernel,
    /// The agent alone.
    Agent,
}

/// Where variables are looked up: the environment, or a table in a test.
pub(crate) trait Lookup {
    fn get(&self, name: &str) -> Option<OsString>;

    /// The number in a variable, if it is set.
    fn number(&self, name: &'static str) -> Result<Option<u32>, ServiceError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.to_str().and_then(|text| text.trim().parse().ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(ServiceError::Variable { name, value, expected: "a number from 0 on" }),
        }
    }

    /// The text in a variable, if it is set and not empty.
    fn text(&self, name: &'static str) -> Result<Option<String>, ServiceError> {
        match self.get(name).filter(|value| !value.is_empty()) {
            None => Ok(None),
            Some(value) => match value.into_string() {
                Ok(text) => Ok(Some(text)),
                Err(value) => {
                    Err(ServiceError::Variable { name, value, expected: "readable text" })
                }
            },
        }
    }

    /// Which engine is wanted between nodes.
    fn between_nodes(&self) -> Result<BetweenNodes, ServiceError> {
        match self.text(BETWEEN_NODES)?.as_deref() {
            None => Ok(BetweenNodes::Any),
            Some("kernel") => Ok(BetweenNodes::Kernel),
            Some("agent") => Ok(BetweenNodes::Agent),
            Some(other) => {
                let (value, expected) = (other.into(), "kernel or agent");
                Err(ServiceError::Variable { name: BETWEEN_NODES, value, expected })
            }
        }
    }

    /// The time in a variable, if it is set.
    fn seconds(&self, name: &'static str) -> Result<Option<Duration>, ServiceError> {
        let Some(value) = self.get(name).filter(|value| !value.is_empty()) else { return Ok(None) };
        let seconds = value.to_str().and_then(|text| text.trim().parse::<f64>().ok());
        match seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
            Some(time) => Ok(Some(time)),
            None => Err(ServiceError::Variable { name, value, expected: "a number of seconds" }),
        }
    }

    /// How long to wait for the other ranks.
    fn start_timeout(&self) -> Result<Duration, ServiceError> {
        Ok(self.seconds(START_TIMEOUT)?.unwrap_or(USUAL_START_TIMEOUT))
    }

    /// How long another node may be silent, if that was said. Not less than a second: what a busy
    /// machine does may take that.
    fn node_timeout(&self) -> Result<Option<Duration>, ServiceError> {
        Ok(self.seconds(NODE_TIMEOUT)?.map(|time| time.max(Duration::from_secs(1))))
    }
}

/// The environment of this process.
#[derive(Debug)]
pub(crate) struct Environment;

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
    fn what_is_not_a_number_is_named() {
        let table = HashMap::from([(RANK, "one")]);
        let error = table.number(RANK).expect_err("not a number");
        assert_eq!(
            error.to_string(),
            "TRADEWIND_RANK is \"one\", it must be a number from 0 on: change it or unset it"
        );
        assert!(table.number(SIZE).expect("not set").is_none());
    }

    #[test]
    fn the_engine_between_nodes_has_a_name_that_is_known() {
        let wanted = |word| HashMap::from([(BETWEEN_NODES, word)]).between_nodes();
        assert_eq!(wanted("kernel").expect("it is known"), BetweenNodes::Kernel);
        assert_eq!(wanted("agent").expect("it is known"), BetweenNodes::Agent);
        assert_eq!(wanted("").expect("nothing is asked for"), BetweenNodes::Any);
        let error = wanted("kernal").expect_err("there is no such engine").to_string();
        assert!(
            error.starts_with("TRADEWIND_BETWEEN_NODES is \"kernal\", it must be kernel or agent"),
            "{error}"
        );
    }

    #[test]
    fn the_start_timeout_is_in_seconds() {
        let timeout = |text| HashMap::from([(START_TIMEOUT, text)]).start_timeout();
        assert_eq!(timeout("0.25").expect("a quarter of a second"), Duration::from_millis(250));
        for wrong in ["-1", "soon", "1e300"] {
            assert!(timeout(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn nodes_have_a_second_at_least() {
        let timeout =
            |text| HashMap::from([(NODE_TIMEOUT, text)]).node_timeout().expect("it is a number");
        assert_eq!(
            ["0", "90.5"].map(timeout),
            [1000, 90_500].map(|time| Some(Duration::from_millis(time)))
        );
        assert_eq!(HashMap::new().node_timeout().expect("it is not set"), None);
    }
}
