//! The page as a whole: nothing in it runs, every curve is drawn, labels and colours can be read, and a
//! tuning run is shown with its errors and winners.

use super::page_fixture as fixture;
use super::recorded::{data, recorded, row, run};
use measure::experiments::part;
use measure::page::{Input, Results};
use measure::results::{Part, Point, Scale, Value};
use measure::rows::{Chooser, Quantity, Row};
use models::machine_file::{Engine, Machine};
use models::prediction::Models;
use roxmltree::{Document, Node};
use std::collections::BTreeMap;

testing::tests![
    every_curve_is_drawn_and_nothing_runs,
    labels_of_a_drawing_do_not_touch,
    every_colour_stands_out_from_its_ground,
    the_report_of_a_tuning_run_shows_errors_and_winners,
];

/// The drawings of a page.
fn drawings(page: &str) -> Vec<&str> {
    let starts = page.split("<div class=\"chart\">").skip(1);
    starts.map(|rest| rest.split("</div>").next().expect("the end of a drawing")).collect()
}

fn parsed(drawing: &str) -> Document<'_> {
    Document::parse(drawing).unwrap_or_else(|error| panic!("{error}: {drawing}"))
}

fn has_class(node: &Node, class: &str) -> bool {
    node.attribute("class").is_some_and(|classes| classes.split(' ').any(|one| one == class))
}

/// Curves of a drawing with a line or a mark, and all.
fn curves(drawing: &Document) -> (usize, usize) {
    let curves = drawing.descendants().filter(|node| has_class(node, "curve"));
    let is_drawn = |curve: &Node| {
        let shows = |node: Node| {
            let is_visible = has_class(&node, "line")
                || node.parent_element().is_some_and(|parent| has_class(&parent, "marks"));
            is_visible && node.attribute("d").is_some_and(|path| path.starts_with('M'))
        };
        curve.descendants().any(shows)
    };
    let drawn: Vec<bool> = curves.map(|curve| is_drawn(&curve)).collect();
    (drawn.iter().filter(|is| **is).count(), drawn.len())
}

/// Curves of a figure that have something to show, and all, by the figure's title.
fn expected(parts: &[Part]) -> BTreeMap<String, (usize, usize)> {
    let figures = parts.iter().flat_map(|part| &part.figures);
    let of_figure = |figure: &measure::results::Figure| {
        let has_place =
            |value: f64, scale| value.is_finite() && (scale != Scale::Logarithmic || value > 0.0);
        let is_shown = |point: &Point| {
            has_place(point.x, figure.x.scale) && has_place(point.median, figure.y.scale)
        };
        let shown = figure.series.iter().filter(|series| series.points.iter().any(is_shown));
        (figure.title.clone(), (shown.count(), figure.series.len()))
    };
    figures.map(of_figure).collect()
}

fn every_curve_is_drawn_and_nothing_runs() {
    for compared in [false, true] {
        let input = fixture::input(compared);
        let page = measure::page::render(&input);
        for text in ["<script", "</script", "<b>", "javascript:", "NaN", "onerror="] {
            assert!(!page.contains(text), "{text}");
        }
        let mut drawn: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for drawing in drawings(&page) {
            let drawing = parsed(drawing);
            let title = drawing.root_element().attribute("aria-label").expect("a title");
            drawn.insert(title.to_owned(), curves(&drawing));
        }
        let machines = if compared { 2 } else { 1 };
        let expected = expected(&input.results.parts);
        assert!(expected.len() > 10, "{expected:?}");
        for (title, (shown, all)) in expected {
            assert_eq!(drawn.remove(&title), Some((machines * shown, machines * all)), "{title}");
        }
        assert!(!drawn.is_empty(), "figures of the machine");
        for (title, (shown, all)) in drawn {
            assert!(shown == all && all > 0, "{title}: {shown} of {all}");
        }
    }
}

fn labels_of_a_drawing_do_not_touch() {
    /// About the width of a letter, and the height of one.
    const LETTER: (f64, f64) = (6.0, 10.0);
    let page = measure::page::render(&fixture::input(true));
    for drawing in drawings(&page) {
        let drawing = parsed(drawing);
        let frame = |node: Node| {
            let at = |name| node.attribute(name).and_then(|text| text.parse::<f64>().ok());
            let text = node.text().unwrap_or_default().to_owned();
            let width = LETTER.0 * text.chars().count() as f64;
            let share = [("end", 1.0), ("middle", 0.5)];
            let share = share.iter().find(|(class, _)| has_class(&node, class));
            let left = at("x").expect("a place") - width * share.map_or(0.0, |(_, share)| *share);
            (left, left + width, at("y").expect("a place"), text)
        };
        let labels = drawing.descendants().filter(|node| node.has_tag_name("text"));
        let frames: Vec<(f64, f64, f64, String)> = labels.map(frame).collect();
        for (place, one) in frames.iter().enumerate() {
            for other in &frames[place + 1..] {
                let beside = one.1 < other.0 || other.1 < one.0;
                let apart = beside || (one.2 - other.2).abs() >= LETTER.1;
                assert!(apart, "{} on {}", one.3, other.3);
            }
        }
    }
}

/// Lines need a contrast of 3, words 4.5 (WCAG 2.2, 1.4.11 and 1.4.3), on light and on dark ground.
fn every_colour_stands_out_from_its_ground() {
    let style = include_str!("../../src/page/page.css");
    let colours = |name: &str| -> [f64; 2] {
        let start = format!("--{name}: light-dark(");
        let (_, rest) = style.split_once(&start).unwrap_or_else(|| panic!("{name} has a colour"));
        let (pair, _) = rest.split_once(')').expect("the end of two colours");
        let (light, dark) = pair.split_once(", ").expect("two colours");
        [light, dark].map(luminance)
    };
    let lines = (0..=8).map(|hue| (format!("series-{hue}"), "surface", 3.0));
    let words = ["ink", "quiet", "accent"];
    let words = words
        .iter()
        .flat_map(|name| ["surface", "paper"].map(|ground| ((*name).to_owned(), ground, 4.5)));
    let warning = [("warn".to_owned(), "warn-paper", 4.5)];
    for (name, ground, least) in lines.chain(words).chain(warning) {
        for (one, other) in colours(&name).into_iter().zip(colours(ground)) {
            let contrast = (one.max(other) + 0.05) / (one.min(other) + 0.05);
            assert!(contrast >= least, "{name} on {ground}: {contrast:.2}");
        }
    }
}

/// Relative luminance of a colour, such as `#1a1f26`.
fn luminance(colour: &str) -> f64 {
    let channel = |place: usize| {
        let digits = colour.get(1 + 2 * place..3 + 2 * place).expect("two digits a channel");
        let value = f64::from(u8::from_str_radix(digits, 16).expect("hexadecimal")) / 255.0;
        if value <= 10.0 / 255.0 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * channel(0) + 0.7152 * channel(1) + 0.0722 * channel(2)
}

/// The part that recorded times make, and the numbers of predictions by operation and algorithm.
fn tuned() -> (Part, BTreeMap<(String, String), f64>) {
    let models = Models::of(&Machine::read(&data("one-node.json")).expect("the machine's file"));
    let mut counts: BTreeMap<(String, String), f64> = BTreeMap::new();
    let mut rows = Vec::new();
    for (query, timed) in recorded("one-node.csv") {
        let choice = models.choose(&query).map(|one| one.plan);
        for one in models.candidates(&query) {
            if timed.iter().any(|row| row.algorithm == Some(one.plan)) {
                let algorithm = one.plan.algorithm.to_string();
                *counts.entry((query.operation.to_string(), algorithm)).or_default() += 1.0;
            }
            let is_chosen = choice == Some(one.plan);
            rows.push(Row {
                quantity: Quantity::Predicted,
                chosen_by: if is_chosen { vec![Chooser::Models] } else { Vec::new() },
                ..row(&query, Engine::Peers, one.plan, one.microseconds)
            });
        }
        rows.extend(timed);
    }
    (part(&run("decisions", rows)).expect("an experiment of rows"), counts)
}

fn the_report_of_a_tuning_run_shows_errors_and_winners() {
    let (part, counts) = tuned();
    let shown = |table: &str| -> Vec<(String, String, f64)> {
        let table = part.tables.iter().find(|one| one.name == table).expect("a table");
        let number = |value: &Value| if let Value::Number(number) = value { *number } else { -1.0 };
        let text = |value: &Value| {
            if let Value::Text(text) = value { text.clone() } else { String::new() }
        };
        table.rows.iter().map(|row| (text(&row[0]), text(&row[1]), number(&row[4]))).collect()
    };
    let mut rows = shown("errors");
    rows.sort_by(|one, other| one.partial_cmp(other).expect("numbers"));
    let counted =
        counts.into_iter().map(|((operation, algorithm), all)| (operation, algorithm, all));
    assert_eq!(rows, counted.collect::<Vec<_>>());

    let results = Results { parts: vec![part.clone()], ..Results::named("tuned") };
    let page = measure::page::render(&Input { results, other: None });
    assert_eq!(drawings(&page).len(), part.figures.len());
    let maps: Vec<(String, usize)> = page
        .split("<figure class=\"map")
        .skip(1)
        .map(|map| {
            let id = map.split("id=\"").nth(1).and_then(|rest| rest.split('"').next());
            let map = map.split("</figure>").next().unwrap_or_default();
            (id.unwrap_or_default().to_owned(), map.matches("<td class=\"tint").count())
        })
        .collect();
    let of_ranks = |ranks| ["clock", "models"].map(|by| format!("decisions--{by}-{ranks}"));
    let names: Vec<String> = maps.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(names, [2, 4, 8].map(of_ranks).concat(), "the models' winners follow the clock's");
    for pair in maps.chunks(2) {
        assert!(pair[0].1 > 50 && pair[0].1 == pair[1].1, "cells of both maps: {pair:?}");
    }
}
