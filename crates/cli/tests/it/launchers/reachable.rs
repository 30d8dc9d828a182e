//! Two nodes, and a program that reaches them in the place of ssh.

use super::loops::nodes;
use crate::nodes::harness::processes;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use virtual_nodes::{Entrance, VirtualNodes};

/// Two nodes, n0 and n1, the program that reaches them, and a directory.
pub(super) struct Reachable {
    testbed: VirtualNodes,
    directory: TempDir,
}

impl Reachable {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().expect("there is space");
        let reachable = Reachable { testbed: nodes(2), directory };
        let named = reachable.testbed.nodes().iter().map(|node| {
            let name = format!("n{}", node.number());
            let words = reachable.as_host(&name);
            let quoted = words.map(|word| format!("'{word}'")).join(" ");
            (name, node, quoted)
        });
        Entrance::new(named).write(&reachable.reach()).expect("there is space");
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
        let [unshare, words @ ..] = self.as_host("n0");
        let mut command = self.testbed.nodes()[0].command(unshare);
        command.args(words).arg(program.as_ref());
        command
    }

    /// Returns words that execute a command line with this host name, where the names of all nodes can
    /// be looked up.
    fn as_host(&self, name: &str) -> [String; 9] {
        let names = self.path("names").display().to_string();
        let script = format!("hostname {name}; mount --bind $1 /etc/hosts; shift; exec \"$@\"");
        ["unshare", "--uts", "--mount", "--", "sh", "-c", &script, "sh", &names].map(str::to_owned)
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
