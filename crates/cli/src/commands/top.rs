//! `tradewind top`: the jobs of this user on this node, as they are now.

mod moment;
mod screen;
mod table;
mod view;

use super::values;
use crate::format::Format;
use moment::Watch;
use screen::Screen;
use std::process::ExitCode;
use std::time::Duration;
use view::View;

/// Time between the two observations of `--once`, if no interval is given.
const SHORT: Duration = Duration::from_millis(250);

/// Shows the jobs of this user on this node: what each rank waits for, collectives under way,
/// queues, and the load of the cores.
///
/// For each rank: its process, the core on which that runs, the CPU time that it uses, and whether
/// it computes or what it waits for, as soon as it sleeps (after some microseconds of polling). A
/// collective is under way as long as some ranks have started it and others have not, or a rank
/// sleeps until it completes. For each queue: how many messages it holds, and how many were
/// received a second. Last, the names that programs have published (see `tradewind names`).
///
/// The view only reads memory that the ranks share, and the ranks execute nothing for it. It shows
/// jobs of this network namespace; a job of one process that was started without a launcher is not
/// among them. Ctrl-C ends it. Where standard output is no terminal, one view follows the other as
/// plain text.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Print one view and end.
    #[arg(long)]
    once: bool,

    /// Seconds between two views, over which rates and loads are measured [default: 1, with --once
    /// 0.25].
    #[arg(long, value_name = "SECONDS", value_parser = interval)]
    interval: Option<Duration>,
}

/// Parses the time between two views.
fn interval(text: &str) -> Result<Duration, String> {
    /// The kernel counts the load of cores in ticks of up to ten milliseconds.
    const SHORTEST: Duration = Duration::from_millis(50);
    let interval = values::seconds(text)?;
    let too_short = "it must be 0.05 or more: the load of cores is counted in ticks";
    if interval < SHORTEST { Err(too_short.to_owned()) } else { Ok(interval) }
}

pub(crate) fn execute(arguments: &Arguments, format: Format) -> anyhow::Result<ExitCode> {
    let Arguments { once, interval } = arguments;
    let interval = interval.unwrap_or(if *once { SHORT } else { Duration::from_secs(1) });
    let mut screen = Screen::new(*once || format == Format::Json)?;
    let mut watch = Watch::default();
    let mut before = watch.observe()?;
    while screen.sleep(interval)? {
        let after = watch.observe()?;
        let view = View::between(&before, &after);
        match format {
            Format::Table => screen.show(&table::text(&view))?,
            Format::Json => format.print(String::new, &view)?,
        }
        if *once {
            break;
        }
        before = after;
    }
    Ok(ExitCode::SUCCESS)
}
