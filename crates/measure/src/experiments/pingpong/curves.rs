//! Curves against message length.

use crate::experiments::curves::{drawn, point};
use crate::experiments::pairs::LONGEST;
use crate::results::Figure;
use crate::rows::{Exchange, Mechanism, Pattern, Receive, Row, Run, What};
use models::machine_file::Engine;

/// The longest message of the figures of short ones.
pub(super) const LONGEST_SHORT: u64 = 2_000;
/// Name and title of a figure, with the pattern that it shows.
pub(super) type Shown = (&'static str, &'static str, Pattern);
/// Figures of the curves.
pub(super) const FIGURES: [Shown; 2] = [
    ("exchange", "Exchange", Pattern::Exchange),
    ("round-trip", "Half a round trip", Pattern::RoundTrip),
];

/// The curves of a figure, of all lengths.
pub(super) fn curves(run: &Run, (name, title, pattern): Shown) -> Figure {
    let title = format!("{title}, 0 to {LONGEST} bytes");
    let figure = Figure::by_length(name, &title, "time of a message");
    let shown = run.rows().filter(|row| row.bytes <= LONGEST);
    drawn(figure, shown, |row| match &row.what {
        What::Exchange(exchange) if exchange.pattern == pattern => {
            Some((curve(row, exchange), point(row, row.bytes as f64, EACH)))
        }
        What::Messages(mechanism) if pattern == Pattern::RoundTrip => {
            let wide = *mechanism == Mechanism::Wide;
            let curve = if wide { "wide queue" } else { mechanism.name() };
            Some((curve.to_owned(), point(row, row.bytes as f64, 1.0)))
        }
        _ => None,
    })
}

/// A run moves two messages.
pub(super) const EACH: f64 = 0.5;

fn curve(row: &Row, exchange: &Exchange) -> String {
    let receive = match exchange.receive {
        Receive::Posted => "receive posted",
        Receive::Late => "receive not posted",
    };
    match (row.engine, row.form) {
        (Some(engine), Some(form)) if row.nodes > 1 => format!("{receive}, {form}, {engine}"),
        (Some(engine), _) if engine != Engine::Caller => format!("{receive}, {engine}"),
        _ => receive.to_owned(),
    }
}
