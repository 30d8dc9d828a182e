//! Values of options, which all commands read alike: numbers within bounds, and times.

use engine::node::{EngineKind, RANK_LIMIT};
use service::ServiceError;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Returns the parser of a number of things within bounds. Its errors name all three.
pub(super) fn number<T>(
    things: &'static str,
    bounds: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static
where
    T: FromStr + PartialOrd + Display + Clone + Send + Sync + 'static,
{
    move |text: &str| {
        text.parse().ok().filter(|number| bounds.contains(number)).ok_or_else(|| {
            let least = bounds.start();
            format!("the number of {things} is {text}, it must be from {least} to {}", bounds.end())
        })
    }
}

/// The eager limit with which a GOAL file runs.
#[derive(Debug, clap::Args)]
pub(super) struct EagerLimit {
    /// Send messages of up to this many bytes without waiting for their receive [default:
    /// TRADEWIND_EAGER_BYTES or 4096].
    #[arg(long, value_name = "BYTES", value_parser = number("bytes", 0..=u64::MAX))]
    eager_bytes: Option<u64>,
}

impl EagerLimit {
    /// The limit, by the option or that of a job on this node.
    ///
    /// # Errors
    /// Returns an error if a variable of the environment has an invalid value.
    pub(super) fn bytes(&self) -> Result<u64, ServiceError> {
        let of_job = || Ok(service::job_options(1, EngineKind::Peers)?.eager_limit);
        self.eager_bytes.map_or_else(of_job, Ok)
    }
}

/// Parses the number of ranks of a job.
pub(super) fn ranks(text: &str) -> Result<u32, String> {
    number("ranks", 1..=RANK_LIMIT)(text)
}

/// Parses a duration in seconds.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse().ok();
    let duration = number.and_then(|number| Duration::try_from_secs_f64(number).ok());
    duration.ok_or_else(|| "it must be a number of seconds, 0 or more".to_owned())
}

/// Parses a time limit in seconds, which is above zero.
pub(super) fn time_limit(text: &str) -> Result<Duration, String> {
    let limit = seconds(text).ok().filter(|limit| !limit.is_zero());
    let wrong = "it must be a number of seconds above 0; leave the option out for no limit";
    limit.ok_or_else(|| wrong.to_owned())
}

/// Parses an engine within a node. The error names the variable, too: the value may come from there.
pub(super) fn engine(text: &str) -> Result<EngineKind, String> {
    text.parse().map_err(|error| format!("{error} (--engine or TRADEWIND_ENGINE)"))
}
