//! A table: words to the left, numbers to the right, each column with its number of decimals.

use crate::page::units::{decimals, fixed, significant};
use crate::results::{Table, Value};
use maud::{Markup, html};

/// The table, with the label of the machine if it is the other one.
pub(crate) fn table(id: &str, table: &Table, other: Option<&str>) -> Markup {
    let columns: Vec<Column> =
        (0..table.columns.len()).map(|column| Column::of(table, column)).collect();
    html! {
        figure class=(if table.columns.len() > 5 { "table wide" } else { "table" }) id=(id) {
            figcaption { h3 { (table.title) @if let Some(other) = other { span.whose { (other) } } } }
            div.scroll tabindex="0" role="region" aria-label=(table.title) {
                table.values {
                    thead { tr { @for (name, column) in table.columns.iter().zip(&columns) {
                        th scope="col" class=[column.class()] { (name) }
                    } } }
                    tbody { @for row in &table.rows { tr {
                        @for (place, column) in columns.iter().enumerate() {
                            (column.cell(row.get(place).unwrap_or(&Value::None)))
                        }
                    } } }
                }
            }
            @if !table.caption.is_empty() { p.caption { (table.caption) } }
        }
    }
}

/// Format of a column's values.
struct Column {
    numeric: bool,
    /// True if its words are so few that they are not to be broken.
    short: bool,
    decimals: Option<usize>,
}

impl Column {
    fn of(table: &Table, column: usize) -> Self {
        let values = || table.rows.iter().filter_map(move |row| row.get(column));
        let numbers: Vec<f64> = values().filter_map(number).collect();
        let words = values().filter(|value| matches!(value, Value::Text(_))).count();
        let lengths = values()
            .map(|value| if let Value::Text(text) = value { text.chars().count() } else { 0 });
        let short = lengths.max().unwrap_or(0) <= Self::SHORT;
        Column { numeric: numbers.len() > words, short, decimals: decimals(&numbers) }
    }

    /// So many letters fit into a column of numbers.
    const SHORT: usize = 26;

    fn class(&self) -> Option<&'static str> {
        match (self.numeric, self.short) {
            (true, _) => Some("number"),
            (false, true) => Some("short"),
            (false, false) => None,
        }
    }

    fn cell(&self, value: &Value) -> Markup {
        match value {
            Value::None => {
                html! { td class={ "none " (self.class().unwrap_or_default()) } { "–" } }
            }
            Value::Text(text) => html! { td class=[self.class()] { (text) } },
            Value::Number(number) if !number.is_finite() => html! { td.number.none { "–" } },
            Value::Number(number) => {
                let text = match self.decimals {
                    Some(decimals) if *number != 0.0 => fixed(*number, decimals),
                    _ => significant(*number, 4),
                };
                html! { td.number title=(number) { (text) } }
            }
        }
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(rows: Vec<Vec<Value>>) -> String {
        let columns = vec!["what".to_owned(), "µs <a>".to_owned()];
        let title = "T & U".to_owned();
        let caption = "<b>".to_owned();
        table("id", &Table { name: "t".into(), title, caption, columns, rows }, None).into_string()
    }

    #[test]
    fn numbers_of_a_column_are_aligned_and_keep_their_full_value() {
        let page = drawn(vec![vec!["a".into(), 0.01234567.into()], vec!["b".into(), 1.1.into()]]);
        assert!(page.contains("<td class=\"number\" title=\"0.01234567\">0.0123</td>"), "{page}");
        assert!(page.contains(">1.1000</td>"), "{page}");
        assert!(page.contains("<th scope=\"col\" class=\"number\">µs &lt;a&gt;</th>"), "{page}");
    }

    #[test]
    fn short_rows_nothing_and_what_is_no_number_have_a_dash() {
        let page = drawn(vec![vec!["a".into()], vec![Value::None, f64::NAN.into()], vec![]]);
        assert_eq!(page.matches("–</td>").count(), 5, "{page}");
        assert!(!page.contains("NaN"), "{page}");
    }
}
