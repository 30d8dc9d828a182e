//! Errors, and which of them mean that the machine lacks a requirement.

use rustix::io::Errno;
use std::io;

/// Failure to create nodes or to change them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A right of the process is missing.
    #[error(
        "{what} needs {right}, which this process does not have: run it as root, outside of containers without it"
    )]
    Right {
        /// Step that failed.
        what: &'static str,
        /// Capability, or device.
        right: &'static str,
    },
    /// A feature of the kernel or a program is missing.
    #[error("{what} is not possible here: {way_out}")]
    Feature {
        /// Step that failed.
        what: &'static str,
        /// Way to get the feature.
        way_out: &'static str,
    },
    /// A tool of iproute2 rejected its commands.
    #[error("{tool} cannot set up {subject}: {output}")]
    Setup {
        /// `ip` or `tc`.
        tool: &'static str,
        /// Node, or the bridge.
        subject: String,
        /// Its error output.
        output: String,
    },
    /// The number of nodes is zero or exceeds the addresses.
    #[error("{nodes} nodes: the number must be within 1 and {limit}")]
    Nodes {
        /// Requested number.
        nodes: usize,
        /// Largest number.
        limit: usize,
    },
    /// An interface did not come up.
    #[error("the link of node {node} is not up after {seconds} s")]
    Link {
        /// Number of the node.
        node: usize,
        /// Waiting time.
        seconds: u64,
    },
    /// The system refused another step.
    #[error("{what}: {source}")]
    System {
        /// Step that failed.
        what: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

impl Error {
    /// Returns true if the machine lacks a right or a feature, rather than the program being wrong.
    pub fn is_missing_requirement(&self) -> bool {
        matches!(self, Error::Right { .. } | Error::Feature { .. })
    }

    /// Converts a system error; EPERM and EACCES become the missing right.
    pub fn with_right(what: &'static str, right: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| match errno {
            Errno::PERM | Errno::ACCESS => Error::Right { what, right },
            errno => Error::System { what, source: errno.into() },
        }
    }

    /// Converts a system error.
    pub fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Error::System { what, source }
    }
}
