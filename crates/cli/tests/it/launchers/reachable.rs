//! Two nodes, and a program that reaches them in the place of ssh.

use super::loops::nodes;
use crate::nodes::harness::processes;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use virtual_nodes::VirtualNodes;

/// Executes a command line on a node whose name is n and its number, which is its host name there,
/// and which the other nodes can look up. Options before the name are for ssh.
const REACH: &str = r#"#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
name=$1; shift
eval "namespace=\$NAMESPACE_$name"
[ -n "$namespace" ] || { echo "there is no node $name" >&2; exit 255; }
exec nsenter --net="$namespace" -- unshare --uts --mount -- \
    sh -c "hostname $name; mount --bind '$HOST_NAMES' /etc/hosts; $*"
"#;

/// Two nodes, n0 and n1, the program that reaches them, and a directory.
pub(super) struct Reachable {
    testbed: VirtualNodes,
    directory: TempDir,
}

impl Reachable {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().expect("there is space");
        let reachable = Reachable { testbed: nodes(2), directory };
        std::fs::write(reachable.reach(), REACH).expect("there is space");
        let mode = Permissions::from_mode(0o700);
        std::fs::set_permissions(reachable.reach(), mode).expect("it is ours");
        let nodes = reachable.testbed.nodes().iter().enumerate();
        let names = nodes.map(|(number, node)| format!("{} n{number}\n", node.address()));
        let names: String = std::iter::once("127.0.0.1 localhost\n".into()).chain(names).collect();
        std::fs::write(reachable.path("names"), names).expect("there is space");
        reachable
    }

    pub(super) fn testbed(&self) -> &VirtualNodes {
        &self.testbed
    }

    /// The program that reaches the nodes.
    pub(super) fn reach(&self) -> PathBuf {
        self.path("reach")
    }

    /// A file of the directory.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns a program on the first node, which has its host name.
    pub(super) fn first(&self, program: impl AsRef<Path>) -> Command {
        let nodes = self.testbed.nodes();
        let mut command = nodes[0].command("unshare");
        let script = "hostname n0; mount --bind \"$HOST_NAMES\" /etc/hosts; exec \"$@\"";
        command.args(["--uts", "--mount", "--", "sh", "-c", script, "sh"]);
        command.env("HOST_NAMES", self.path("names"));
        command.arg(program.as_ref());
        for (number, node) in nodes.iter().enumerate() {
            command.env(format!("NAMESPACE_n{number}"), node.namespace());
        }
        command
    }

    /// Returns `tradewind run` on the first node with these options and this program.
    pub(super) fn run(&self, options: &[&str], program: &[&str]) -> Command {
        let mut command = self.first(env!("CARGO_BIN_EXE_tradewind"));
        command.args(["run", "--timeout", "60", "--ssh"]).arg(self.reach());
        command.args(options).arg("--").args(program);
        command
    }

    /// Waits until no process is left on the nodes.
    pub(super) fn wait_for_silence(&self) {
        let end = Instant::now() + Duration::from_secs(20);
        while !processes(&self.testbed).is_empty() {
            assert!(Instant::now() < end, "left behind: {:?}", processes(&self.testbed));
            std::thread::yield_now();
        }
    }
}
