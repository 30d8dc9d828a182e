//! `tradewind schedule`: the operations of an algorithm on all ranks, as text, SVG or a GOAL file,
//! and predictions of the times of algorithms.

pub(super) mod collective;
mod layout;
mod portable;
mod predict;
mod summary;
mod svg;

use super::values::number;
use crate::failure::{OutputError, problem_of};
use crate::format::Format;
use crate::goal_file::{self, FileFormat};
use collectives::{Choice, Collective, CollectiveError, GraphSpec, Levels, Tuning};
use goal::arithmetic::{Arithmetic, DataType};
use goal::graph::Graph;
use std::io::Write;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Shows the operations of a collective's algorithm on all ranks: number of messages, depth,
/// longest path. Draws them as SVG, or writes a GOAL file. Without --algorithm, lists the
/// algorithms.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    other: Option<Other>,

    /// The collective.
    #[arg(value_parser = collective::parser(), value_name = "OP", required = true)]
    collective: Option<Collective>,

    /// The algorithm.
    #[arg(short, long, value_name = "NAME")]
    algorithm: Option<String>,

    /// Number of ranks.
    #[arg(short = 'n', long, default_value_t = 8, value_parser = number("ranks", 1..=MOST_RANKS))]
    ranks: u32,

    /// Bytes of the message or contribution; of one block, where every rank has a block of its own.
    #[arg(short, long, default_value_t = 1024, value_parser = number("bytes", 0..=u64::MAX))]
    bytes: u64,

    /// The root, where there is one.
    #[arg(long, default_value_t = 0)]
    root: u32,

    /// Bytes in a segment of segmented algorithms.
    #[arg(long, value_name = "BYTES", default_value_t = Tuning::default().segment_bytes)]
    #[arg(value_parser = number("bytes", NonZeroU64::MIN..=NonZeroU64::MAX))]
    segment: NonZeroU64,

    /// Children of a rank in a tree, or ranks in each exchange of a multiphase all-to-all.
    #[arg(long, default_value_t = Tuning::default().degree)]
    #[arg(value_parser = number("children", NonZeroU32::MIN..=NonZeroU32::MAX))]
    degree: NonZeroU32,

    /// The operation of a reduction: add, mul, min, max, and, or, xor, sub, div.
    #[arg(long, default_value_t = Arithmetic::Add)]
    operation: Arithmetic,

    /// The elements of a reduction: u8, i32, f64, ….
    #[arg(long = "type", value_name = "TYPE", default_value_t = DataType::U8)]
    data_type: DataType,

    /// Two levels, with this many ranks in each node: barrier, bcast, reduce, allreduce, allgather,
    /// alltoall.
    #[arg(long, value_name = "RANKS")]
    #[arg(value_parser = number("ranks", NonZeroU32::MIN..=NonZeroU32::MAX))]
    ranks_per_node: Option<NonZeroU32>,

    /// Writes all ranks' graphs to standard output in this format instead of the summary.
    #[arg(long, value_enum)]
    draw: Option<Drawing>,

    /// Shows the operations of this rank only.
    #[arg(long)]
    rank: Option<u32>,

    /// Writes a GOAL file: binary if the name ends in .bin, else text; - is standard output. Copies
    /// and local operations become computations that take no time.
    #[arg(long, value_name = "FILE")]
    goal: Option<PathBuf>,
}

/// Another report on a collective.
#[derive(Debug, clap::Subcommand)]
enum Other {
    Predict(predict::Arguments),
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Drawing {
    /// A picture: a column for each rank, time downwards.
    Svg,
}

/// Limit of a legible figure.
const MOST_RANKS: u32 = 1024;
/// All ranks' operations together; what is more fills the memory.
const MOST_OPERATIONS: usize = 1 << 22;

pub(crate) fn execute(arguments: &Arguments, format: Format) -> anyhow::Result<ExitCode> {
    match (&arguments.other, arguments.collective) {
        (Some(Other::Predict(arguments)), _) => predict::execute(arguments, format),
        (None, Some(collective)) => show(collective, arguments, format),
        (None, None) => Err(anyhow::anyhow!("name a collective; --help lists the arguments")),
    }
}

fn show(collective: Collective, arguments: &Arguments, format: Format) -> anyhow::Result<ExitCode> {
    let Some(algorithm) = &arguments.algorithm else {
        let algorithms = collective.algorithms();
        let names: Vec<&str> = algorithms.iter().map(|algorithm| algorithm.name()).collect();
        let wanted = [
            (arguments.draw.is_some(), "--draw"),
            (arguments.goal.is_some(), "--goal"),
            (arguments.rank.is_some(), "--rank"),
        ];
        if let Some((_, option)) = wanted.into_iter().find(|(wanted, _)| *wanted) {
            let collective = collective::label(collective);
            anyhow::bail!(
                "{option} shows one algorithm: name it with --algorithm; {collective} has {}",
                names.join(", ")
            );
        }
        format.print(|| names.join("\n"), &names)?;
        return Ok(ExitCode::SUCCESS);
    };
    let graphs = draw_all(collective, arguments, algorithm)?;
    if let Some(path) = &arguments.goal {
        let file_format = match path.extension().and_then(|extension| extension.to_str()) {
            Some("bin") => FileFormat::Binary,
            _ => FileFormat::Text,
        };
        let graphs = graphs.iter().map(portable::of).collect::<Result<Vec<Graph>, _>>()?;
        let bytes = goal_file::encode(&graphs, file_format).map_err(problem_of(path))?;
        goal_file::write(path, &bytes)?;
        if path == Path::new("-") {
            return Ok(ExitCode::SUCCESS);
        }
    }
    let title = title(collective, arguments, algorithm);
    match arguments.draw {
        Some(Drawing::Svg) => {
            let picture = svg::draw(&title, &graphs, arguments.rank);
            std::io::stdout().write_all(picture.as_bytes()).map_err(OutputError)?;
        }
        None => {
            let summary = summary::Summary::new(title, &graphs, arguments.rank);
            format.print(|| summary.to_string(), &summary)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn draw_all(
    collective: Collective,
    arguments: &Arguments,
    algorithm: &str,
) -> anyhow::Result<Vec<Graph>> {
    let ranks = arguments.ranks;
    if let Some(rank) = arguments.rank.filter(|rank| *rank >= ranks) {
        return Err(CollectiveError::RankOutOfRange { rank, ranks }.into());
    }
    let choice = Choice {
        levels: if arguments.ranks_per_node.is_some() { Levels::Two } else { Levels::One },
        algorithm: collective.algorithm(algorithm)?,
        segment_bytes: Some(arguments.segment),
        degree: Some(arguments.degree),
    };
    let spec = |rank| GraphSpec {
        collective,
        rank,
        ranks,
        ranks_per_node: arguments.ranks_per_node.unwrap_or(NonZeroU32::MIN),
        root: arguments.root,
        bytes: arguments.bytes,
        reduction: collectives::Reduction::new(arguments.operation, arguments.data_type),
    };
    let mut graphs = Vec::new();
    let mut operations = 0;
    for rank in 0..ranks {
        let graph = collectives::build(&spec(rank), &choice).map_err(|error| match error {
            CollectiveError::OneLevelOnly { .. } => anyhow::anyhow!(
                "{} has no form in two levels: leave out --ranks-per-node, or use barrier, bcast, reduce, allreduce, \
                 allgather or alltoall",
                collective::label(collective)
            ),
            error => error.into(),
        })?;
        operations += graph.vertices().len();
        anyhow::ensure!(
            operations <= MOST_OPERATIONS,
            "all ranks together have more than {MOST_OPERATIONS} operations: use fewer ranks or longer segments"
        );
        graphs.push(graph);
    }
    Ok(graphs)
}

fn title(collective: Collective, arguments: &Arguments, algorithm: &str) -> String {
    let Arguments { ranks, bytes, root, .. } = arguments;
    let mut title = format!("{}, {algorithm}, {ranks} ranks", collective::label(collective));
    if collective != Collective::Barrier {
        title.push_str(&format!(", {bytes} bytes"));
    }
    if collective.has_root() {
        title.push_str(&format!(", root {root}"));
    }
    if let Some(ranks_per_node) = arguments.ranks_per_node {
        title.push_str(&format!(", {ranks_per_node} ranks a node"));
    }
    title
}
