//! The report of a tuning run in a browser. The run is the one that was recorded for the tests of
//! the models: all plans of one node, timed.

use super::{browser, devtools::Browser, keep_picture, set_view};
use collectives::Collective;
use measure::experiments::decisions::{self, RANKS};
use measure::harness::{Finding, Setting};
use measure::page::{Input, Results};
use measure::results::{Part, Point, Role, Square};
use models::decision::{CallForm, Query};
use models::machine_file::Machine;
use models::prediction::Models;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

testing::tests![
    needs(Chromium):
    the_report_of_a_tuning_run_shows_errors_and_winners,
];

/// Recorded times of plans, by their names, in microseconds.
type Calls = BTreeMap<(Collective, CallForm, u32, u64), BTreeMap<String, f64>>;

fn data(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/data").join(name)
}

fn recorded() -> Calls {
    let mut calls = Calls::new();
    let mut lines = csv::Reader::from_path(data("one-node.csv")).expect("the recorded times");
    for line in lines.records() {
        let line = line.expect("a line of the recorded times");
        let key = (
            line[0].parse().expect("an operation"),
            line[1].parse().expect("a form"),
            line[2].parse().expect("a number of ranks"),
            line[5].parse().expect("a size"),
        );
        let time = line[7].parse().expect("a time");
        calls.entry(key).or_default().insert(line[6].to_owned(), time);
    }
    calls
}

/// The part as the experiment fills it, and the relative errors by operation and algorithm.
fn tuned() -> (Part, BTreeMap<(String, String), Vec<f64>>) {
    let models = Models::of(&Machine::read(&data("one-node.json")).expect("the machine's file"));
    let mut setting = Setting::default();
    setting.options.insert(RANKS.to_owned(), "2,4,8".to_owned());
    let experiment = decisions::experiment(&setting);
    let mut part = experiment.outline().clone();
    let mut findings = Vec::new();
    let mut errors: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
    for ((operation, form, ranks, bytes), times) in recorded() {
        let figure = format!("{}-{ranks}-{form}", operation.name().replace('_', "-"));
        let x = bytes as f64;
        let query = Query { operation, form, ranks, ranks_per_node: ranks, bytes };
        let predicted = models.candidates(&query);
        for one in &predicted {
            let plan = one.plan.to_string();
            if let Some(time) = times.get(&plan) {
                let error = (one.microseconds / time - 1.0).abs();
                let algorithm = one.plan.algorithm.to_string();
                errors.entry((operation.to_string(), algorithm)).or_default().push(error);
            }
            let point = Point::exact(x, one.microseconds);
            let curve = format!("{plan}, predicted");
            findings.push(Finding::point(&figure, &curve, Role::Predicted, point));
        }
        findings.extend(
            times
                .iter()
                .map(|(plan, time)| Finding::measured(&figure, plan, Point::exact(x, *time))),
        );
        let fastest = times.iter().min_by(|one, other| one.1.total_cmp(other.1));
        let winners = [
            ("clock", fastest.map(|(plan, _)| plan.clone())),
            ("models", models.choose(&query).map(|one| one.plan.to_string())),
        ];
        for (by, winner) in winners {
            let map = format!("{by}-{ranks}");
            let outline = part.maps.iter().find(|one| one.name == map).expect("a map");
            let place = |names: &[String], name: String| names.iter().position(|one| *one == name);
            let column = place(&outline.columns.names, bytes.to_string()).unwrap_or(0);
            let row = place(&outline.rows.names, operation.to_string()).expect("a row");
            if let (Some(text), CallForm::Blocking) = (winner, form) {
                let cell = Square { column, row, detail: text.clone(), text, value: None };
                findings.push(Finding::Cell { map, cell });
            }
        }
    }
    experiment.add(&mut part, findings).expect("findings of this experiment");
    experiment.conclude(&mut part).expect("tables");
    (part, errors)
}

/// Times of the browser's own clock, in milliseconds after it began to open the page.
fn load_times(browser: &mut Browser) -> (f64, f64) {
    let times = browser.evaluate(
        "[performance.getEntriesByType('navigation')[0].loadEventEnd, performance.now()]",
    );
    serde_json::from_value(times).expect("two times")
}

fn the_report_of_a_tuning_run_shows_errors_and_winners() {
    let (part, errors) = tuned();
    let points: usize =
        part.figures.iter().flat_map(|one| &one.series).map(|one| one.points.len()).sum();
    let maps: Vec<String> =
        part.maps.iter().map(|map| format!("{}--{}", part.name, map.name)).collect();
    let mut shown: Vec<(String, String, usize)> = errors
        .iter()
        .map(|((operation, algorithm), all)| (operation.clone(), algorithm.clone(), all.len()))
        .collect();
    shown.sort();
    let results = Results { parts: vec![part], ..Results::named("tuned") };
    let page = measure::page::render(&Input { results, other: None });
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("report.html");
    std::fs::write(&path, &page).expect("the page can be written");

    let mut browser = browser();
    set_view(&mut browser, 1400, "light");
    browser.open(&path);
    let (loaded, ready) = load_times(&mut browser);
    println!(
        "{points} points, {} KiB: loaded after {loaded:.0} ms, figures drawn after {ready:.0} ms",
        page.len() >> 10
    );
    assert!(loaded > 0.0 && ready >= loaded, "the browser's own times: {loaded}, {ready}");
    keep_picture(&mut browser, "tuned");
    assert_eq!(browser.complaints(), [""; 0]);

    let rows = browser.evaluate(
        "[...document.querySelectorAll('#decisions--errors tbody tr')].map(row => \
         [row.cells[0].textContent, row.cells[1].textContent, Number(row.cells[4].textContent)])",
    );
    let mut rows: Vec<(String, String, usize)> = serde_json::from_value(rows).expect("rows");
    rows.sort();
    assert_eq!(rows, shown);

    let of_ranks = |ranks| ["clock", "models"].map(|by| format!("decisions--{by}-{ranks}"));
    assert_eq!(maps, [2, 4, 8].map(of_ranks).concat());
    for pair in maps.chunks(2) {
        let places = browser.evaluate(&format!(
            "{}.map(map => {{ const element = document.getElementById(map); const frame = \
             element.getBoundingClientRect(); return [frame.top, frame.height, \
             element.querySelectorAll('td[data-place]').length]; }})",
            json!(pair)
        ));
        let places: [[f64; 3]; 2] = serde_json::from_value(places).expect("two frames");
        let [[top, height, clock], [under, _, by_models]] = places;
        assert!(under >= top + height, "the models' winners lie under the clock's: {places:?}");
        assert!(clock > 50.0 && clock == by_models, "cells of both maps: {places:?}");
    }
}
