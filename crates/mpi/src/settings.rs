//! The user's settings: use of the library, the calls it takes, and its report.

use crate::kind::Kind;
use launch::environment::{Environment, Lookup, MPI, MPI_ONLY, MPI_REPORT};
use launch::mpi_calls;

/// The settings of this process.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) is_on: bool,
    /// The calls that the user has chosen, a bit for each [`Kind`], which are taken over whatever
    /// their length. `None` if the table and the rule decide.
    pub(crate) chosen: Option<u128>,
    pub(crate) reports: bool,
    /// Sentences about unknown values, with their effect.
    pub(crate) unknown: Vec<String>,
}

impl Settings {
    /// Reads the environment.
    pub(crate) fn read() -> Self {
        let text = |name| Environment.get(name).map(|value| value.to_string_lossy().into_owned());
        let value = |name| text(name).filter(|value| !value.trim().is_empty());
        let mut unknown = Vec::new();
        let is_on = value(MPI).is_none_or(|value| is_on(&value, &mut unknown));
        // Without effect where the library is off, so its mistakes are not named.
        let chosen = value(MPI_ONLY).filter(|_| is_on).map(|list| bits(&list, &mut unknown));
        let is_off = |value: &String| value == "0" || value.eq_ignore_ascii_case("off");
        let reports = value(MPI_REPORT).is_some_and(|value| !is_off(&value));
        Settings { is_on, chosen, reports, unknown }
    }

    /// Takes every call.
    pub(crate) fn for_measurements() -> Self {
        Settings { is_on: true, chosen: Some(Kind::ALL_KINDS), reports: false, unknown: Vec::new() }
    }
}

/// Returns whether the library is on by a value of [`MPI`]. An unknown one leaves everything to the
/// MPI library, because the user wants no usual run.
fn is_on(value: &str, unknown: &mut Vec<String>) -> bool {
    match value.to_ascii_lowercase().as_str() {
        "on" => true,
        "off" => false,
        _ => {
            unknown.push(format!(
                "{MPI} is {value:?}, it must be on or off: nothing runs on tradewind"
            ));
            false
        }
    }
}

/// The kinds in a list, a bit for each.
fn bits(list: &str, unknown: &mut Vec<String>) -> u128 {
    let mut bits = 0;
    let mut errors = Vec::new();
    for name in mpi_calls::read(list) {
        match name.as_deref() {
            Ok(mpi_calls::ALL) => bits |= Kind::ALL_KINDS,
            Ok(mpi_calls::NONBLOCKING) => bits |= Kind::ALL_BACKGROUND,
            Ok(name) => bits |= Kind::named(name).map_or(0, Kind::bit),
            Err(error) => errors.push(error.to_string()),
        }
    }
    let effect = match bits {
        0 => "nothing runs on tradewind",
        _ => "only the others in the list run on tradewind",
    };
    unknown.extend(errors.into_iter().map(|error| format!("{MPI_ONLY}: {error}: {effect}")));
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_name_every_kind() {
        let names = mpi_calls::names().filter(|name| Kind::named(name).is_some());
        assert_eq!(names.count(), Kind::COUNT);
        let all: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        let mut unknown = Vec::new();
        assert_eq!(bits(&all.join(","), &mut unknown), Kind::ALL_KINDS);
        assert_eq!(bits("nonblocking", &mut unknown), Kind::ALL_BACKGROUND);
        assert_eq!(unknown, [""; 0]);
    }

    #[test]
    fn unknown_values_are_named_with_their_effect() {
        let mut unknown = Vec::new();
        assert!(!is_on("0", &mut unknown) && is_on("ON", &mut unknown));
        assert_eq!(bits("ibarier", &mut unknown), 0);
        assert_ne!(bits("ibarrier,ibarier", &mut unknown), 0);
        let effects = ["nothing runs", "nothing runs", "only the others"];
        assert_eq!(unknown.len(), effects.len(), "{unknown:?}");
        for (line, effect) in unknown.iter().zip(effects) {
            assert!(line.contains(effect), "{line}");
        }
    }
}
