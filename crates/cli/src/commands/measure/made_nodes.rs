//! Nodes that are made for a measurement: network namespaces, with ranks that the launcher of this
//! command starts.

use crate::commands::values::number;
use crate::failure::JobFailed;
use crate::format::Format;
use engine::node::EngineKind;
use launch::environment::{COMMAND, INTERNODE};
use measure::harness::Setting;
use service::launcher::{NodeRanks, NodesOptions, launch_on_nodes};
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;
use virtual_nodes::{Entrance, LinkRate, VirtualNodes};

/// The largest IP packet between the nodes, in bytes.
const MTU: u32 = 1500;
/// Name of the speed of the links among the properties that measurements share.
pub(super) const LINK: &str = "link";
/// Time for the other ranks to report an error of their own after one has failed.
const GRACE: Duration = Duration::from_secs(10);

/// The nodes that a measurement makes, if any.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub(crate) struct NodesWanted {
    /// Measures between this number of nodes instead: network namespaces made for the measurement,
    /// with ranks that this command starts. Needs root.
    #[arg(long, value_name = "N", value_parser = number("nodes", 2..=16_u32))]
    pub(crate) nodes: Option<u32>,

    /// Gives the link of each node this speed in both directions, such as 1gbit or 100mbit (kbit, mbit
    /// or gbit, from 100kbit to 100gbit) [default: as fast as memory is copied].
    #[arg(long, value_name = "RATE", requires = "nodes")]
    pub(crate) link: Option<LinkRate>,

    /// The speed of the links between the nodes of this process's job.
    #[arg(long, hide = true, value_name = "RATE", conflicts_with = "nodes")]
    link_of_nodes: Option<LinkRate>,
}

impl NodesWanted {
    /// Adds the speed of this job's links to the rows of its measurements, and to the properties that
    /// they share.
    pub(in crate::commands) fn with_link(&self, mut setting: Setting) -> Setting {
        setting.link = self.link_of_nodes.map(LinkRate::bits_per_second);
        let link = self.link_of_nodes.map(|link| (LINK.to_owned(), link.to_string()));
        setting.options.extend(link);
        setting
    }
}

/// Nodes cannot be made here.
#[derive(Debug, thiserror::Error)]
#[error("cannot make nodes on this machine: {0}")]
pub(in crate::commands) struct NotMade(virtual_nodes::Error);

impl NotMade {
    /// Returns true if a right or a tool is missing.
    pub(in crate::commands) fn is_missing_requirement(&self) -> bool {
        self.0.is_missing_requirement()
    }
}

/// Nodes, for as long as this exists.
pub(in crate::commands) struct MadeNodes {
    nodes: VirtualNodes,
    ranks_per_node: NonZeroU32,
    link: Option<LinkRate>,
    entrance: PathBuf,
    _directory: tempfile::TempDir,
}

impl MadeNodes {
    /// Creates `count` nodes for so many ranks on each, with links of this speed.
    pub(in crate::commands) fn new(
        count: u32,
        ranks_per_node: NonZeroU32,
        link: Option<LinkRate>,
    ) -> anyhow::Result<Self> {
        let nodes = VirtualNodes::with_rate(count as usize, MTU, link).map_err(NotMade)?;
        let directory = tempfile::tempdir()?;
        let entrance = directory.path().join("enter");
        let named = nodes.nodes().iter().map(|node| (name(node), node, String::new()));
        Entrance::new(named).write(&entrance)?;
        Ok(MadeNodes { nodes, ranks_per_node, link, entrance, _directory: directory })
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
    ) -> anyhow::Result<()> {
        let mut words = match format {
            Format::Json => vec!["--format".into(), "json".into()],
            Format::Table => Vec::new(),
        };
        words.extend_from_slice(arguments);
        if let Some(link) = self.link {
            eprintln!("tradewind: each node has a link of {link}");
            words.extend(["--link-of-nodes".into(), link.to_string().into()]);
        }
        self.start(engine, &words)
    }

    /// Runs this command with exactly these arguments as the ranks on the nodes.
    pub(in crate::commands) fn start(
        &self,
        engine: &str,
        words: &[OsString],
    ) -> anyhow::Result<()> {
        let program = std::env::current_exe()?;
        let ranks = self.ranks_per_node.get();
        let nodes = self.nodes.nodes().iter();
        let options = NodesOptions {
            nodes: nodes.map(|node| NodeRanks { host: name(node), ranks }).collect(),
            shell: vec![self.entrance.clone().into()],
            command: program.clone(),
            engine: EngineKind::Peers,
            // Nodes share the cores of this machine.
            binds: Some(false),
            prefix: false,
            environment: vec![
                (INTERNODE.into(), engine.into()),
                (COMMAND.into(), program.clone().into()),
            ],
            grace: GRACE,
            limit: None,
        };
        let outcome = launch_on_nodes(program.as_os_str(), words, options)?;
        let status = outcome.exit_status();
        if status == 0 {
            return Ok(());
        }
        let why = format!(
            "the ranks on the nodes have failed (status {status}); their messages are above"
        );
        Err(JobFailed { why, status }.into())
    }
}

/// Returns the name of a node for the launcher.
fn name(node: &virtual_nodes::Node) -> String {
    format!("n{}", node.number())
}
