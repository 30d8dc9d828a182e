//! Place of the results.

use std::path::PathBuf;

/// Directory of the results.
#[derive(Debug, clap::Args)]
pub(crate) struct ResultsLocation {
    /// Directory of the results; created if it does not exist.
    #[arg(long, value_name = "DIR", default_value = "tradewind-measurements")]
    pub(crate) out: PathBuf,

    /// Measures anew what is in the directory already.
    #[arg(long)]
    pub(crate) again: bool,

    /// Only commands read the directory: no message names it, and it gets no tables and no page.
    #[arg(skip)]
    pub(crate) temporary: bool,
}
