//! `tradewind overlap --nodes`: engines between nodes, on nodes that are made for it.

mod candidates;

use super::super::values::number;
use super::figures::{figure, table_with, trusted};
use crate::failure::Failure;
use crate::format::Format;
use comfy_table::Cell;
use measure::experiments::nodes::{
    ExchangePattern, LevelScheme, Measure, RankLocation, Row, Setting, Target, compare, part,
    targets,
};
use measure::results::Directory;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;
use virtual_nodes::VirtualNodes;

/// Bytes of the messages of the ping-pong.
const MESSAGES: [u64; 6] = [8, 64, 512, 4096, 65_536, 1 << 20];
/// Bytes of the vectors that are reduced.
const VECTORS: [u64; 7] = [4, 64, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10];
/// Bytes of the blocks of an all-to-all.
const BLOCKS: [u64; 7] = [8, 64, 256, 512, 1024, 4096, 16384];

/// Arguments of the measurement between nodes.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "between-hosts")]
pub(super) struct Arguments {
    /// Measures engines between this number of nodes instead: network namespaces made for the
    /// measurement. Needs root.
    #[arg(long, value_name = "N", value_parser = number("nodes", 2..=16_u32))]
    #[arg(conflicts_with_all = ["ranks", "collectives", "bytes", "engines", "repetitions"])]
    pub(super) nodes: Option<u32>,

    /// Number of ranks on each node. With several, an all-to-all in one level and in two is
    /// measured, of all ranks and of neighbours on a torus.
    #[arg(long, value_name = "R", default_value = "1", requires = "nodes")]
    #[arg(value_parser = number("ranks", NonZeroU32::MIN..=NonZeroU32::MAX))]
    ranks_per_node: NonZeroU32,

    /// Rounds in which every engine has a turn.
    #[arg(long, value_name = "R", default_value_t = measure::experiments::nodes::ROUNDS, requires = "nodes")]
    #[arg(value_parser = number("rounds", 1..=1000_u32))]
    rounds: u32,

    /// Calls of a round.
    #[arg(long, value_name = "C", default_value_t = 500, requires = "nodes")]
    #[arg(value_parser = number("calls", 1..=1_000_000_u32))]
    calls: u32,

    /// The largest IP packet between the nodes, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 1500, requires = "nodes")]
    #[arg(value_parser = number("bytes", 1280..=65_535_u32))]
    mtu: u32,

    /// Delivers packets on a core of their receiver, as after a network card's interrupt, instead
    /// of inside the sender's call.
    #[arg(long, requires = "nodes")]
    receiver_core: bool,

    /// Also writes the results to this directory, for `tradewind report`.
    #[arg(long, value_name = "DIR", requires = "nodes")]
    out: Option<PathBuf>,
}

impl Arguments {
    /// Context in which packets were received.
    fn way(&self) -> &'static str {
        if self.receiver_core {
            "received on a core of the receiver (RPS)"
        } else {
            "received inside the sender's call (veth without RPS)"
        }
    }
}

/// Makes the nodes, measures, and prints the figures and the conclusion about the kernel engine.
pub(super) fn execute(
    arguments: &Arguments,
    nodes: u32,
    compute_us: Option<f64>,
    format: Format,
) -> Result<ExitCode, Failure> {
    // Before anything is measured that could not be kept.
    let directory = arguments.out.as_deref().map(Directory::create).transpose()?;
    let virtual_nodes = VirtualNodes::new(nodes as usize, arguments.mtu)?;
    if arguments.receiver_core {
        let cores = shm::process::allowed_cores();
        for node in virtual_nodes.nodes() {
            node.receive_on(1 << cores[node.number() % cores.len()])?;
        }
    }
    let computation_us = compute_us.unwrap_or(Setting::full().computation_us);
    let setting = Setting { rounds: arguments.rounds, calls: arguments.calls, computation_us };
    let mut rows = candidates::floor(&virtual_nodes, &setting)?;
    let per_node = arguments.ranks_per_node;
    let (engines, _loaders) = candidates::of(&virtual_nodes, arguments.mtu, per_node)?;
    let measures = if per_node.get() == 1 { between_single_ranks() } else { in_levels() };
    rows.extend(compare(&engines, &measures, &setting, &OnNodes(&virtual_nodes, per_node))?);
    if let Some(directory) = directory {
        directory.write(&part(&rows, arguments.way()))?;
    }
    format.print(|| table(arguments, nodes, &rows), &rows)?;
    Ok(ExitCode::SUCCESS)
}

/// So many consecutive ranks are threads on each node.
struct OnNodes<'t>(&'t VirtualNodes, NonZeroU32);

impl RankLocation for OnNodes<'_> {
    fn run(&self, rank: usize, part: &mut (dyn FnMut() + Send)) {
        self.0.nodes()[rank / self.1.get() as usize].run(part);
    }
}

/// Measures of engines with a rank on each node.
fn between_single_ranks() -> Vec<Measure> {
    let mut measures: Vec<Measure> = MESSAGES.map(|bytes| Measure::PingPong { bytes }).to_vec();
    measures.extend([
        Measure::Barrier,
        Measure::Overlap { bytes: 8 },
        Measure::Test,
        Measure::LateWait,
    ]);
    measures.extend([Measure::Start, Measure::Operation]);
    measures.extend(VECTORS.map(|bytes| Measure::Reduction { bytes }));
    measures
}

/// Measures of nodes with several ranks.
fn in_levels() -> Vec<Measure> {
    let among = |pattern, forms: &'static [LevelScheme]| {
        let each = move |bytes| {
            forms.iter().map(move |form| Measure::Exchange { pattern, bytes, form: *form })
        };
        BLOCKS.into_iter().flat_map(each)
    };
    let among_neighbors =
        among(ExchangePattern::Torus, &[LevelScheme::Direct, LevelScheme::TwoLevels]);
    among(ExchangePattern::AllRanks, &LevelScheme::ALL).chain(among_neighbors).collect()
}

fn table(arguments: &Arguments, nodes: u32, rows: &[Row]) -> String {
    let mut table = table_with(&["what", "bytes", "engine", "median", "least", "greatest", ""]);
    for row in rows {
        table.add_row([
            Cell::new(row.what),
            figure(if row.bytes == 0 { String::new() } else { row.bytes.to_string() }),
            Cell::new(&row.engine),
            trusted(format!("{:.2}", row.median)),
            figure(format!("{:.2}", row.least)),
            figure(format!("{:.2}", row.greatest)),
            Cell::new(row.unit.sign()),
        ]);
    }
    let cores = shm::process::allowed_cores().len();
    let mut text = format!(
        "{nodes} nodes with {} each (network namespaces, MTU {}) on {cores} cores; packets are {}. {} rounds in turns.\n{table}",
        if arguments.ranks_per_node.get() == 1 {
            "a rank".into()
        } else {
            format!("{} ranks", arguments.ranks_per_node)
        },
        arguments.mtu,
        arguments.way(),
        arguments.rounds
    );
    let targets = targets(rows);
    if !targets.is_empty() {
        text = format!("{text}\n{}", target_table(&targets));
    }
    text
}

fn target_table(targets: &[Target]) -> String {
    let mut table = table_with(&["the kernel engine", "reach", "found", ""]);
    for target in targets {
        table.add_row([
            Cell::new(&target.what),
            figure(format!("≤ {} {}", target.limit, target.unit)),
            trusted(format!("{:.2} {}", target.found, target.unit)),
            Cell::new(if target.holds() { "yes" } else { "no" }),
        ]);
    }
    table.to_string()
}
