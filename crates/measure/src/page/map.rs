//! A map: cells by two categories, coloured.

use crate::page::curves::HUES;
use crate::page::units::{Unit, significant};
use crate::results::{Categories, Colour, Map, Square};
use maud::{Markup, html};
use std::cmp::Reverse;

/// Twice as good as what was chosen: nothing beyond needs to be told apart by colour.
const WORST: f64 = 2.0;

/// The map, with the label of the machine if it is the other one.
pub(crate) fn map(id: &str, map: &Map, other: Option<&str>) -> Markup {
    let texts = texts(map);
    html! {
        figure class=(if across(map).0.names.len() > 8 { "map wide" } else { "map" }) id=(id) {
            figcaption { h3 { (map.title) @if let Some(other) = other { span.whose { (other) } } } }
            @match map.colour {
                Colour::ByText => ul.legend {
                    @for (place, (text, count)) in texts.iter().enumerate() {
                        li.key {
                            span class={ "patch " (tint(place)) } {}
                            span { (text) " " small { (count) } }
                        }
                    }
                },
                Colour::ByRatio => (ramp()),
            }
            div.scroll tabindex="0" role="region" aria-label=(map.title) { (grid(map, &texts)) }
            @if !map.caption.is_empty() { p.caption { (map.caption) } }
        }
    }
}

fn ramp() -> Markup {
    let steps = [1.0, 1.05, 1.1, 1.3, 1.5, WORST];
    html! {
        ul.legend.ramp aria-label="colours" {
            @for ratio in steps { li { span.patch.heat style=(heat(ratio)) {} span { (significant(ratio, 3)) "×" } } }
        }
    }
}

/// The categories across and down, and whether they are turned: sizes go downwards where there are
/// many, because a page is higher than it is wide.
fn across(map: &Map) -> (&Categories, &Categories, bool) {
    const WIDEST: usize = 12;
    let columns = &map.columns;
    let rows = &map.rows;
    if columns.names.len() > WIDEST.max(rows.names.len()) {
        (rows, columns, true)
    } else {
        (columns, rows, false)
    }
}

fn grid(map: &Map, texts: &[(&str, usize)]) -> Markup {
    let (across, down, turned) = across(map);
    let at = |below: usize, beside: usize| {
        let place = if turned { (beside, below) } else { (below, beside) };
        map.cells.iter().find(|cell| (cell.row, cell.column) == place)
    };
    html! {
        table.cells {
            thead {
                tr {
                    th.corner scope="col" { (down.label) " \\ " (across.label) }
                    @for name in &across.names { th scope="col" { (word(across, name)) } }
                }
            }
            tbody {
                @for (below, name) in down.names.iter().enumerate() {
                    tr {
                        th scope="row" { (word(down, name)) }
                        @for beside in 0..across.names.len() {
                            @match at(below, beside) {
                                Some(square) => (cell(map, square, texts)),
                                None => td.none title="not measured" { "·" },
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Label of a category: 1 KiB for 1024.
fn word(categories: &Categories, name: &str) -> String {
    match name.parse::<u32>() {
        Ok(bytes) if categories.label.contains("byte") => Unit::Bytes.tick(f64::from(bytes)),
        _ => name.to_owned(),
    }
}

fn cell(map: &Map, square: &Square, texts: &[(&str, usize)]) -> Markup {
    let name = |of: &Categories, at: usize| {
        format!("{} {}", of.label, of.names.get(at).map_or("", String::as_str))
    };
    let place = format!("{}, {}", name(&map.rows, square.row), name(&map.columns, square.column));
    let value = square.value.filter(|value| value.is_finite());
    let title = [place.as_str(), &square.detail].into_iter().filter(|text| !text.is_empty());
    let title = title.collect::<Vec<_>>().join("\n");
    let (class, style) = match (map.colour, value) {
        (Colour::ByText, _) => (
            tint(texts.iter().position(|(text, _)| *text == square.text).unwrap_or(0)),
            String::new(),
        ),
        (Colour::ByRatio, Some(value)) => ("heat".to_owned(), heat(value)),
        (Colour::ByRatio, None) => ("none".to_owned(), String::new()),
    };
    html! {
        td class=(class) style=[(!style.is_empty()).then_some(style)] title=(title) { (square.text) }
    }
}

/// The texts of all cells, the commonest first: those have the colours that differ most.
fn texts(map: &Map) -> Vec<(&str, usize)> {
    let mut texts: Vec<(&str, usize)> = Vec::new();
    for cell in &map.cells {
        match texts.iter_mut().find(|(text, _)| *text == cell.text) {
            Some((_, count)) => *count += 1,
            None => texts.push((&cell.text, 1)),
        }
    }
    texts.sort_by_key(|(_, count)| Reverse(*count));
    texts
}

fn tint(place: usize) -> String {
    format!("tint hue-{} depth-{}", place % HUES + 1, (place / HUES) % 3 + 1)
}

/// Strength of a ratio's colour: none at 1 and below, all at twice as much, equal for equal
/// ratios.
fn heat(ratio: f64) -> String {
    let share = (ratio.max(1.0).ln() / WORST.ln()).clamp(0.0, 1.0);
    format!("--heat:{:.0}%", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(colour: Colour, cells: Vec<Square>) -> String {
        let names =
            |label: &str| Categories { label: label.into(), names: vec!["1".into(), "<2>".into()] };
        let title = "Best <algorithm>".to_owned();
        let caption = String::new();
        let example = Map {
            name: "m".into(),
            title,
            caption,
            columns: names("bytes"),
            rows: names("ranks"),
            colour,
            cells,
        };
        map("id", &example, None).into_string()
    }

    fn square(row: usize, column: usize, text: &str, value: Option<f64>) -> Square {
        Square { row, column, text: text.into(), value, detail: "\" onmouseover=\"x".into() }
    }

    #[test]
    fn the_commonest_text_has_the_first_colour() {
        let cells = vec![
            square(0, 0, "chain", None),
            square(0, 1, "ring", None),
            square(1, 0, "ring", None),
        ];
        let page = example(Colour::ByText, cells);
        let first = "<td class=\"tint hue-1 depth-1\" title=\"ranks 1, bytes &lt;2&gt;\n";
        assert!(page.contains(first), "{page}");
        assert!(page.contains("not measured"), "the fourth cell: {page}");
        assert!(!page.contains("\" onmouseover=\""), "{page}");
    }

    #[test]
    fn the_colour_of_a_ratio_has_an_end() {
        let strengths = [0.5, 1.0, 2f64.sqrt(), 2.0, 1e300].map(heat);
        assert_eq!(
            strengths,
            ["--heat:0%", "--heat:0%", "--heat:50%", "--heat:100%", "--heat:100%"]
        );
        let page = example(
            Colour::ByRatio,
            vec![square(0, 0, "?", Some(f64::NAN)), square(7, 7, "outside", Some(1.0))],
        );
        assert!(!page.contains("NaN") && !page.contains("outside"), "{page}");
    }
}
