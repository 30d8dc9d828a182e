//! What can go wrong, and what of it is a reason to skip a test.

use rustix::io::Errno;
use std::io;

/// Why there is no testbed, or something in it could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process may not do it.
    #[error(
        "{what} needs {right}, which this process does not have: run it as root, outside of containers without it"
    )]
    Right {
        /// What was tried.
        what: &'static str,
        /// The capability, or the device.
        right: &'static str,
    },
    /// The kernel or the system lacks it.
    #[error("{what} is not possible here: {way_out}")]
    Feature {
        /// What was tried.
        what: &'static str,
        /// What to do.
        way_out: &'static str,
    },
    /// `ip` refused its orders.
    #[error("ip does not set up {place}: {output}")]
    Setup {
        /// Which node, or the bridge.
        place: String,
        /// What it wrote.
        output: String,
    },
    /// More nodes than there are addresses, or fewer than one.
    #[error("a testbed has 1 to {limit} nodes, not {nodes}")]
    Nodes {
        /// How many were asked for.
        nodes: usize,
        /// The most.
        limit: usize,
    },
    /// An interface did not come up.
    #[error("the link of node {node} is not up after {seconds} s")]
    Link {
        /// Which node.
        node: usize,
        /// How long that took.
        seconds: u64,
    },
    /// The system refused something else.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    /// Whether the machine lacks a right or a feature: a test cannot run here, and nothing is wrong
    /// with the project.
    pub fn is_lack(&self) -> bool {
        matches!(self, Error::Right { .. } | Error::Feature { .. })
    }

    /// A refusal of the system in which a missing right is told from everything else.
    pub(crate) fn of(what: &'static str, right: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| match errno {
            Errno::PERM | Errno::ACCESS => Error::Right { what, right },
            errno => Error::System { what, source: errno.into() },
        }
    }

    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Error::System { what, source }
    }
}

/// The value of a result; where the machine lacks a right or a feature, the test prints `SKIPPED:
/// why` and returns.
///
/// The line goes past the capture of `cargo test`, so that whoever runs the tests can look for it.
/// Any other error panics.
///
/// ```
/// # fn main() {
/// use testbed::{Options, Testbed};
///
/// let testbed = testbed::or_skip!(Testbed::new(2, Options::default()));
/// assert_eq!(testbed.nodes().len(), 2);
/// # }
/// ```
#[macro_export]
macro_rules! or_skip {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(error) if error.is_lack() => {
                $crate::say_skipped(&error);
                return;
            }
            Err(error) => panic!("{error}"),
        }
    };
}

/// Writes `SKIPPED: why` on standard error, past the capture of `cargo test`.
pub fn say_skipped(why: &dyn std::fmt::Display) {
    use std::io::Write;
    // Where standard error is closed, nobody can be told.
    let _ = writeln!(io::stderr(), "SKIPPED: {why}");
}
