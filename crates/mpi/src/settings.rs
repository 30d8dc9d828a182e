//! The user's settings: use of the library, the calls it takes, and its report.

use crate::kind::Kind;
use launch::environment::{Environment, Lookup, MPI, MPI_ONLY, MPI_REPORT};

/// The settings of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) is_on: bool,
    /// The calls that the user has chosen, a bit for each [`Kind`], which are taken over whatever
    /// their length. `None` if the table and the rule decide.
    pub(crate) chosen: Option<u128>,
    pub(crate) reports: bool,
}

impl Settings {
    /// Reads the environment. An unknown call is named in a warning and ignored.
    pub(crate) fn read() -> Self {
        let text = |name| Environment.get(name).map(|value| value.to_string_lossy().into_owned());
        let is_on = !text(MPI).is_some_and(|value| value.eq_ignore_ascii_case("off"));
        let only = text(MPI_ONLY).filter(|value| !value.trim().is_empty());
        let reports = text(MPI_REPORT).is_some_and(|value| !value.is_empty() && value != "0");
        Settings { is_on, chosen: only.as_deref().map(bits), reports }
    }

    /// Takes every call.
    pub(crate) fn for_measurements() -> Self {
        Settings { is_on: true, chosen: Some(Kind::ALL_KINDS), reports: false }
    }
}

/// Stands for all collectives.
const ALL: &str = "all";

/// Stands for all nonblocking and persistent ones.
const NONBLOCKING: &str = "nonblocking";

fn bits(list: &str) -> u128 {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).fold(0, |bits, name| {
        let name = name.to_ascii_lowercase();
        let name = name.strip_prefix("mpi_").unwrap_or(&name);
        if name == ALL {
            return Kind::ALL_KINDS;
        }
        if name == NONBLOCKING {
            return bits | Kind::ALL_BACKGROUND;
        }
        match Kind::named(name) {
            Some(kind) => bits | kind.bit(),
            None => {
                log::warn!("{MPI_ONLY}: there is no collective {name:?}");
                bits
            }
        }
    })
}
