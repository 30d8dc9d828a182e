//! Experiments with rows that the user names, printed as one table: on one node, between the nodes
//! of this process's job, or between nodes that are made for it.

use super::made_nodes::{LINK, MadeNodes, NodesWanted};
use super::nodes::{experiment, of_job, refuse_in_job};
use super::suite::{self, ResultsLocation};
use crate::commands::figures::ranks_on_cores;
use crate::format::Format;
use clap::error::ErrorKind;
use launch::detect::{Launch, detect};
use launch::environment::Environment;
use measure::harness::{Error, Setting};
use measure::rows::{Measurements, Run};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tradewind::Job;

/// Place of the rows, and the nodes between which they are measured.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Place {
    /// Keeps the rows in this directory, made if it is not there.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    #[command(flatten)]
    made: NodesWanted,

    /// Measures anew what is in the directory already.
    #[arg(long, requires = "out")]
    again: bool,

    /// Prints nothing: the command that has started this one reads the rows.
    #[arg(long, hide = true)]
    unseen: bool,
}

/// The usual numbers of ranks: on one node, and on each node that is made.
pub(super) const USUAL_RANKS: [NonZeroU32; 2] =
    [NonZeroU32::new(2).expect("not zero"), NonZeroU32::MIN];

/// An experiment with a plan.
pub(super) struct Planned<'a> {
    /// Name of the experiment.
    pub(super) name: &'static str,
    /// Name of the command.
    pub(super) command: &'static str,
    /// The plan, as options of the command.
    pub(super) options: BTreeMap<String, String>,
    /// Number of ranks on one node, and on each of those that are made.
    pub(super) ranks: [NonZeroU32; 2],
    /// Prints the rows of a run under a line about its ranks.
    pub(super) print: &'a dyn Fn(&str, &Run, Format) -> anyhow::Result<()>,
}

impl Place {
    /// Returns true if the rows are measured between nodes.
    pub(super) fn is_between_nodes(&self) -> bool {
        self.made.nodes.is_some() || self.is_in_job()
    }

    fn is_in_job(&self) -> bool {
        matches!(detect(&Environment), Ok(Launch::ManyNodes { .. }))
    }
}

/// Ends the process if a plan cannot be measured, before any rank is started.
pub(super) fn refuse(checked: Result<(), Error>) {
    if let Err(error) = checked {
        clap::Error::raw(ErrorKind::ValueValidation, format!("{error}\n")).exit();
    }
}

impl Planned<'_> {
    /// Measures and prints.
    pub(super) fn execute(&self, wanted: Place, format: Format) -> anyhow::Result<ExitCode> {
        let temporary = tempfile::tempdir()?;
        let is_in_job = wanted.is_in_job();
        let Place { out, made, again, unseen } = wanted;
        let place = ResultsLocation {
            temporary: out.is_none() || unseen,
            out: out.unwrap_or_else(|| temporary.path().to_owned()),
            again,
        };
        let setting = Setting { options: self.options.clone(), ..Setting::default() };
        let status = match made.nodes {
            Some(nodes) => {
                let made = MadeNodes::new(nodes, self.ranks[1], made.link)?;
                // Node services carry messages whatever engine the job has, and collectives with
                // this one, which is there without a right to load programs into the kernel.
                made.run("direct", &self.line(&place)?, format)?;
                ExitCode::SUCCESS
            }
            None if is_in_job => {
                return self.in_job(made.with_link(setting), &place, unseen, format);
            }
            None => {
                refuse_in_job()?;
                let measured = suite::measure_one(self.name, &made.with_link(setting), &place)?;
                self.print_run(&place.out, self.name, ranks_on_cores, format)?;
                measured.status
            }
        };
        if place.temporary && std::io::stderr().is_terminal() {
            eprintln!("tradewind: these rows are kept nowhere; --out DIR keeps them");
        }
        Ok(status)
    }

    /// The command line of the ranks on nodes that are made.
    fn line(&self, place: &ResultsLocation) -> anyhow::Result<Vec<OsString>> {
        let mut line: Vec<OsString> = ["measure", self.command, "--out"].map(OsString::from).into();
        line.push(std::path::absolute(&place.out)?.into());
        line.extend(place.again.then(|| "--again".into()));
        for (name, value) in &self.options {
            line.extend([format!("--{name}").into(), value.into()]);
        }
        Ok(line)
    }

    /// Measures between the nodes of the job that this process is a rank of.
    fn in_job(
        &self,
        setting: Setting,
        place: &ResultsLocation,
        unseen: bool,
        format: Format,
    ) -> anyhow::Result<ExitCode> {
        let job = Job::init()?;
        let setting = of_job(job.world(), setting)?;
        let build = || experiment(self.name, &setting);
        let measured = super::in_job::in_job(&job, &setting, place, build)?;
        if let (Some(part), Some(nodes), false) = (measured.parts.first(), &setting.nodes, unseen) {
            let link = part.setting.get(LINK).map(|link| format!(", links of {link}"));
            let nodes = format!("{}{}", nodes.describe(), link.unwrap_or_default());
            let words = |ranks| format!("{ranks} ranks between {nodes}");
            self.print_run(&place.out, &part.name, words, format)?;
        }
        job.finish()?;
        Ok(measured.status)
    }

    /// Prints a run under a line about its ranks, in words for their number.
    fn print_run(
        &self,
        directory: &Path,
        name: &str,
        words: impl FnOnce(u32) -> String,
        format: Format,
    ) -> anyhow::Result<()> {
        let measured = Measurements::read(directory)?;
        let empty = Run::default();
        let run = measured.run(name).unwrap_or(&empty);
        let ranks = run.rows().map(|row| row.ranks).max().unwrap_or(self.ranks[0].get());
        (self.print)(&words(ranks), run, format)
    }
}
