//! Names of collectives on the command line.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use collectives::{Collective, UnknownName};

/// Returns the parser of a collective's name; `reduce_scatter` is accepted beside `reduce-scatter`.
pub(in crate::commands) fn parser() -> impl TypedValueParser<Value = Collective> {
    let values = Collective::ALL
        .iter()
        .map(|collective| PossibleValue::new(label(*collective)).alias(collective.name()));
    PossibleValuesParser::new(values)
        .try_map(|name| -> Result<Collective, UnknownName> { name.replace('-', "_").parse() })
}

/// Returns the collective's name as the command line spells it.
pub(in crate::commands) fn label(collective: Collective) -> &'static str {
    match collective {
        Collective::ReduceScatter => "reduce-scatter",
        other => other.name(),
    }
}
