//! Errors of loading the program, each with its way out.

use std::io;

/// Failure to load the kernel engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// Rights are missing.
    #[error(
        "{what} is not permitted: the process that loads the kernel engine needs CAP_BPF, CAP_NET_ADMIN and \
         CAP_PERFMON (as root, or `setcap cap_bpf,cap_net_admin,cap_perfmon+ep` on the program that loads it); without \
         them, use the agent engine"
    )]
    Forbidden {
        /// Step that failed.
        what: &'static str,
    },
    /// The kernel lacks a feature that the program needs.
    #[error(
        "this kernel ({release}) is too old for the kernel engine: {what}; it needs Linux 6.9 or later, with \
         CONFIG_BPF_SYSCALL, CONFIG_NET_XGRESS and CONFIG_DEBUG_INFO_BTF; take the agent engine here"
    )]
    TooOld {
        /// Release of the kernel.
        release: String,
        /// Error of the kernel.
        what: String,
    },
    /// There is no type information about the kernel.
    #[error(
        "there is no /sys/kernel/btf/vmlinux: the kernel engine needs a kernel with CONFIG_DEBUG_INFO_BTF and /sys \
         mounted; take the agent engine here"
    )]
    NoTypes,
    /// There is no such interface.
    #[error("there is no network interface `{name}` here: `ip link` lists those that there are")]
    NoInterface {
        /// Its name.
        name: String,
    },
    /// The interface's packets have no Ethernet header.
    #[error(
        "the interface `{name}` is not an Ethernet, and the kernel engine sends only Ethernet frames: name another one in \
         TRADEWIND_INTERFACE (`tradewind doctor kernel` lists them), or use the agent engine (TRADEWIND_INTERNODE=agent)"
    )]
    NoEthernet {
        /// Its name.
        name: String,
    },
    /// The interface does not take the program.
    #[error(
        "the interface `{name}` takes no program at tcx ingress ({source}): take the agent engine on it"
    )]
    NoTcx {
        /// Its name.
        name: String,
        /// Error of the system.
        source: io::Error,
    },
    /// More ranks than slots, or more nodes or ranks than map elements.
    #[error(
        "a job of the kernel engine has at most {limit} {what}, this one has {found}: take the agent engine"
    )]
    TooMany {
        /// Unit of the numbers.
        what: &'static str,
        /// Largest number.
        limit: usize,
        /// Number in this job.
        found: usize,
    },
    /// The interfaces take short packets only.
    #[error(
        "{} takes packets of {mtu} bytes at most (its MTU), the kernel engine needs {least}: raise the MTU there, as root \
         with `ip link set dev {name} mtu {least}`, or use the agent engine (TRADEWIND_INTERNODE=agent)",
        narrowest(.name, .nodes)
    )]
    ShortPackets {
        /// Name of this node's interface.
        name: String,
        /// Number of nodes.
        nodes: usize,
        /// The shortest of their longest packets.
        mtu: u32,
        /// Smallest accepted MTU.
        least: u32,
    },
    /// The system refused another step.
    #[error("{what}: {source}")]
    System {
        /// Step that failed.
        what: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The verifier rejected the program: a defect of the program, or a kernel with another
    /// verifier.
    #[error(
        "the kernel's verifier refused the program, take the agent engine here and report this: {0}"
    )]
    Refused(String),
}

/// Names the interface with the smallest MTU: that of this node or, if the job has several nodes,
/// perhaps one of another node.
fn narrowest(name: &str, nodes: &usize) -> String {
    let others = if *nodes > 1 { ", or that of another node," } else { "" };
    format!("the interface `{name}`{others}")
}

impl LoadError {
    /// Returns true if the machine or the process lacks a requirement of this engine, so that
    /// another engine should be used.
    pub fn is_missing_requirement(&self) -> bool {
        !matches!(
            self,
            LoadError::TooMany { .. } | LoadError::System { .. } | LoadError::Refused(_)
        )
    }

    pub(crate) fn of(what: &'static str) -> impl FnOnce(io::Error) -> LoadError {
        move |source| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => LoadError::Forbidden { what },
            _ => LoadError::System { what, source },
        }
    }
}
