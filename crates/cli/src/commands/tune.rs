//! `tradewind tune`: the decision table of this machine.

use super::measure::suite;
use crate::failure::Failure;
use crate::format::Format;
use engine::node::RANK_LIMIT;
use measure::experiments::decisions::RANKS;
use measure::experiments::find;
use measure::harness::Setting;
use measure::results::Directory;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Finds out which algorithm is best when on this machine, and keeps it where programs look for it.
///
/// Times the candidates of every collective side by side, for several sizes and numbers of ranks,
/// and writes the winners as a decision table. Every job on this machine goes by it from then on;
/// programs need not be built anew. Takes about half a minute for each number of ranks, and as long
/// again with --check.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Arguments {
    /// The file to write [default: $TRADEWIND_DECISIONS, else tradewind/decisions.json under
    /// $XDG_CONFIG_HOME or ~/.config].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Numbers of ranks; for others the nearest one counts, up to twice or half as many.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "2,4,8")]
    #[arg(value_parser = super::values::number("ranks", 2..=RANK_LIMIT))]
    ranks: Vec<u32>,

    /// Checks the table in jobs of their own, at sizes it was not made from: how long its choices
    /// take over the best.
    #[arg(long)]
    check: bool,

    /// Few operations, few sizes, short repetitions: to see how it goes. What it writes is no good,
    /// so it goes where --out says.
    #[arg(long, requires = "out")]
    quick: bool,

    /// Keeps what was measured in this directory.
    #[arg(long, value_name = "DIR")]
    measurements: Option<PathBuf>,
}

const AFTER: &str = "\
A program says which algorithm runs and why when the variable TRADEWIND_EXPLAIN is 1, and goes by the built-in rules when
TRADEWIND_DECISIONS is set to nothing.";

pub(crate) fn execute(arguments: &Arguments, format: Format) -> Result<ExitCode, Failure> {
    // Before minutes are spent on it.
    let out = arguments.out.clone().or_else(service::decisions_path).ok_or(Failure::NoPlace)?;
    let folder = folder_of(&out)?;
    tempfile::tempfile_in(folder).map_err(|source| Failure::Write { path: out.clone(), source })?;
    let temporary = tempfile::tempdir()?;
    let path = arguments.measurements.clone().unwrap_or_else(|| temporary.path().to_owned());
    warn_of_crowds(&arguments.ranks);
    let ranks = arguments.ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let options = [(RANKS.to_owned(), ranks)].into();
    let setting = Setting { quick: arguments.quick, options, ..Setting::default() };
    // With parameters, models choose the algorithms to measure.
    let has_parameters = path.join("machine.json").exists();
    let first = ["plogp"].into_iter().filter(|name| !has_parameters && find(name).is_some());
    let check = ["regret"].into_iter().filter(|_| arguments.check);
    let names: Vec<&str> = first.chain(["decisions"]).chain(check).collect();
    let place = suite::ResultsLocation {
        out: path.clone(),
        again: true,
        temporary: arguments.measurements.is_none(),
    };
    let status = suite::these(&names, &setting, &place, format)?;
    let directory = Directory::create(&path)?;
    let complete = directory.read("decisions")?.is_some_and(|part| part.complete);
    match suite::decisions(&directory)?.filter(|_| complete) {
        Some(table) => {
            table.write(&out)?;
            eprintln!("tradewind: {} rows written to {}", table.rows().len(), out.display());
        }
        None => {
            eprintln!("tradewind: not all was measured, so that {} is left as it is", out.display())
        }
    }
    Ok(status)
}

/// The directory of the table, made if it is not there.
fn folder_of(out: &Path) -> Result<&Path, Failure> {
    let folder =
        out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)
        .map_err(|source| Failure::Write { path: out.to_owned(), source })?;
    Ok(folder)
}

/// Many ranks on few cores take turns, and their measurement its time.
fn warn_of_crowds(ranks: &[u32]) {
    /// Ranks a core that a measurement is made for.
    const USUAL: usize = 8;
    let cores = shm::process::allowed_cores().len();
    for ranks in ranks.iter().filter(|ranks| **ranks as usize > USUAL * cores) {
        eprintln!(
            "tradewind: {ranks} ranks share {cores} cores: this takes long, and what it finds out is mostly how they take turns"
        );
    }
}
