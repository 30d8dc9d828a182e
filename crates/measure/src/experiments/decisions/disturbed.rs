//! Calls with candidates that were timed while something disturbed the measurement.

use crate::harness::{Doubts, Error, Finding, StepContext, undisturbed};
use crate::results::{Part, Table, Value};
use crate::rows::Row;

const NAME: &str = "disturbed";

/// The table, before anything is measured.
pub(super) fn outline() -> Table {
    Table {
        name: NAME.to_owned(),
        title: "Disturbed comparisons".to_owned(),
        caption:
            "Candidates that were timed while the cores had other work, each attempt. Their rows \
                  of the decision table are marked as noisy."
                .to_owned(),
        columns: ["call", "bytes", "disturbance"].map(str::to_owned).to_vec(),
        rows: Vec::new(),
    }
}

/// Compares candidates of a call until nothing disturbs it, at most so many times; the comparison, and
/// a finding if every attempt was disturbed. All ranks call this.
pub(super) fn compare(
    here: &StepContext<'_>,
    attempts: u32,
    (figure, bytes): (&str, u64),
    mut compare: impl FnMut() -> Result<Vec<Row>, Error>,
) -> Result<(Vec<Row>, Option<Finding>), Error> {
    let attempt = || Ok((compare()?, Doubts::default()));
    let (compared, doubts) = undisturbed(here, attempts, attempt)?;
    let row: [Value; 3] =
        [figure.into(), (bytes as f64).into(), doubts.to_string().as_str().into()];
    Ok((compared, doubts.is_disturbed().then(|| Finding::row(NAME, row))))
}

/// The disturbances of a figure's comparisons in these parts, in words.
pub(super) fn of_figure<'a>(
    parts: impl IntoIterator<Item = &'a Part>,
    figure: &str,
) -> Option<String> {
    let tables = parts.into_iter().filter_map(|part| part.table(NAME));
    let rows: Vec<&Vec<Value>> = tables
        .flat_map(|table| &table.rows)
        .filter(|row| row.first() == Some(&Value::from(figure)))
        .collect();
    let [_, Value::Number(bytes), Value::Text(why)] = rows.first()?.as_slice() else {
        return None;
    };
    match rows.len() {
        1 => Some(format!("{bytes} bytes: {why}")),
        sizes => Some(format!("{sizes} sizes, such as {bytes} bytes: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disturbed_sizes_are_named_for_their_figure_alone() {
        let mut part = Part::new("decisions", "");
        part.tables.push(outline());
        let row = |figure: &str, bytes: f64| -> Vec<Value> {
            vec![figure.into(), bytes.into(), "other processes used 43 % of the cores".into()]
        };
        part.replace_rows(NAME, vec![row("bcast-2-blocking", 64.0)]);
        let of = |part: &Part, figure| of_figure([part], figure);
        let one = "64 bytes: other processes used 43 % of the cores";
        assert_eq!(of(&part, "bcast-2-blocking").as_deref(), Some(one));
        assert_eq!(of(&part, "bcast-4-blocking"), None);
        part.replace_rows(NAME, vec![row("bcast-2-blocking", 64.0), row("bcast-2-blocking", 8.0)]);
        let both = "2 sizes, such as 64 bytes: other processes used 43 % of the cores";
        assert_eq!(of(&part, "bcast-2-blocking").as_deref(), Some(both));
        assert_eq!(of(&Part::new("regret", ""), "bcast-2-blocking"), None, "it has no table");
    }
}
