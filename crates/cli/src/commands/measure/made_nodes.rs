//! Nodes that are made for a measurement: network namespaces, with ranks that hydra starts.

use crate::failure::Failure;
use crate::format::Format;
use launch::environment::{COMMAND, INTERNODE};
use std::ffi::OsString;
use std::fs::Permissions;
use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use virtual_nodes::VirtualNodes;

/// Script with which hydra starts a command on a node. Its arguments are options, the node's name,
/// and a command line for a shell there.
const LAUNCHER: &str = r#"#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
name=$1; shift
eval "namespace=\$NAMESPACE_$name"
exec nsenter --net="$namespace" -- sh -c "$*"
"#;

/// The largest IP packet between the nodes, in bytes.
const MTU: u32 = 1500;

/// Nodes, for as long as this exists.
pub(in crate::commands) struct MadeNodes {
    nodes: VirtualNodes,
    ranks_per_node: NonZeroU32,
    launcher: PathBuf,
    _directory: tempfile::TempDir,
}

impl MadeNodes {
    /// So many nodes, for so many ranks on each.
    pub(in crate::commands) fn new(
        count: u32,
        ranks_per_node: NonZeroU32,
    ) -> Result<Self, Failure> {
        let nodes = VirtualNodes::new(count as usize, MTU)?;
        let directory = tempfile::tempdir()?;
        let launcher = directory.path().join("launch");
        let written = std::fs::write(&launcher, LAUNCHER)
            .and_then(|()| std::fs::set_permissions(&launcher, Permissions::from_mode(0o700)));
        written.map_err(|source| Failure::Write { path: launcher.clone(), source })?;
        Ok(MadeNodes { nodes, ranks_per_node, launcher, _directory: directory })
    }

    /// The engines to start ranks for, as `TRADEWIND_INTERNODE` names them: those in user space,
    /// and the kernel where it can be had.
    pub(in crate::commands) fn engines(&self) -> &'static [&'static str] {
        let probe = |node: &virtual_nodes::Node| node.run(|| kernel::probe(node.interface()));
        match self.nodes.nodes().first().map(probe) {
            Some(Ok(_)) => &["direct", "kernel"],
            Some(Err(why)) => {
                eprintln!("tradewind: the kernel engine is not measured: {why}");
                &["direct"]
            }
            None => &[],
        }
    }

    /// Runs this command with these arguments as the ranks on the nodes.
    pub(in crate::commands) fn run(
        &self,
        engine: &str,
        arguments: &[OsString],
        format: Format,
    ) -> Result<(), Failure> {
        let nodes = self.nodes.nodes();
        let Some(first) = nodes.first() else { return Ok(()) };
        let program = std::env::current_exe()?;
        let per_node = self.ranks_per_node;
        let mut command = first.command("mpiexec.hydra");
        command.args(["-localhost", &first.address().to_string()]);
        command.args(["-launcher", "ssh", "-launcher-exec"]).arg(&self.launcher);
        let hosts: Vec<String> =
            nodes.iter().map(|node| format!("h{}:{per_node}", node.number())).collect();
        let ranks = per_node.get().saturating_mul(nodes.len() as u32);
        command.args(["-hosts", &hosts.join(","), "-n", &ranks.to_string()]);
        command.arg(&program);
        if format == Format::Json {
            command.args(["--format", "json"]);
        }
        command.args(arguments);
        for node in nodes {
            command.env(format!("NAMESPACE_h{}", node.number()), node.namespace());
        }
        command.env(INTERNODE, engine).env(COMMAND, &program);
        // A signal that ends this process ends the launcher, and with it the ranks.
        shm::process::kill_with_this_thread(&mut command);
        let status = command.stdin(Stdio::null()).status().map_err(Failure::Hydra)?;
        match status.code().unwrap_or(1) {
            0 => Ok(()),
            status => Err(Failure::RanksOnNodes(status)),
        }
    }
}
