//! The page: head, contents, parts.

use crate::page::input::{Input, Results};
use crate::page::{compare, figure, machine, map, table};
use crate::results::{Part, Table};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use models::machine::Fingerprint;

/// The order in which parts are read, and what is missing if it is not there.
const SUITE: [(&str, &str); 10] = [
    ("plogp", "pLogP parameters"),
    ("pingpong", "Time against message length"),
    ("barrier", "Barrier"),
    ("memory", "Memory copy"),
    ("hypercube", "Hypercube emulation"),
    ("matchings", "Random matchings"),
    ("contention", "Contention"),
    ("placement", "Placement"),
    ("queues", "Queues"),
    ("overlap", "Overlap"),
];

const STYLE: &str = include_str!("page.css");
/// The whole page, as one HTML file that needs no other. Whatever the parts hold, it becomes text:
/// nothing in them is ever taken for markup.
pub fn render(input: &Input) -> String {
    let Input { results, other } = input;
    let parts = all_parts(results);
    let others = other.as_ref().map(all_parts).unwrap_or_default();
    let other_label = other.as_ref().map_or("", |other| other.label.as_str());
    let fingerprint = results.machine.as_ref().map(|machine| &machine.fingerprint);
    let title =
        fingerprint.map_or(results.label.as_str(), |fingerprint| fingerprint.processor.as_str());
    let comparison = comparison(input, &parts, &others);
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · tradewind" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#content" { "to the measurements" }
                (head(input, title, fingerprint))
                div.columns {
                    (contents(&parts, &comparison))
                    main #content {
                        (problems(input))
                        @if !comparison.is_empty() {
                            @let only = [(results.label.as_str(), unmatched(&parts, &others)), (other_label, unmatched(&others, &parts))];
                            (compared(&comparison, other_label, only))
                        }
                        @for part in &parts {
                            (section(part, others.iter().find(|candidate| candidate.name == part.name), other_label))
                        }
                        @if parts.is_empty() { p.nothing { "Nothing has been measured yet." } }
                    }
                }
            }
        }
    };
    markup.into_string()
}

/// The parts in the order in which they are read: the summary, the machine, the suite, then the
/// rest by name.
fn all_parts(results: &Results) -> Vec<Part> {
    let is_told = results.parts.iter().any(|part| part.name == "plogp");
    let mut parts: Vec<Part> =
        results.machine.iter().map(|machine| machine::part(machine, is_told)).collect();
    parts.extend(results.parts.iter().cloned());
    let place = |name: &str| match name {
        "summary" => 0,
        "machine" => 1,
        _ => {
            // Measurements between nodes follow those on one node.
            let name = name.split_once("-nodes").map_or(name, |(name, _)| name);
            2 + SUITE.iter().position(|(known, _)| *known == name).unwrap_or(SUITE.len())
        }
    };
    parts.sort_by(|one, another| {
        (place(&one.name), &one.name).cmp(&(place(&another.name), &another.name))
    });
    parts
}

fn head(input: &Input, title: &str, fingerprint: Option<&Fingerprint>) -> Markup {
    let Input { results, other } = input;
    let measured = results.measured.map(|time| humantime::format_rfc3339_seconds(time).to_string());
    html! {
        header.head {
            p.brand { "tradewind" }
            h1 { (title) }
            @if let Some(other) = other { p.versus { "compared with " strong { (other.label) } } }
            dl.facts {
                @if let Some(fingerprint) = fingerprint {
                    @for (name, value) in compare::facts(fingerprint).into_iter().skip(1) {
                        div { dt { (name) } dd { (value) } }
                    }
                }
                div { dt { "results" } dd { (results.label) } }
                @if let Some(measured) = &measured {
                    div { dt { "measured" } dd { time datetime=(measured) { (measured.replace('T', " ").replace('Z', " UTC")) } } }
                }
            }
            (state(results))
        }
    }
}

/// Complete, partial and missing parts.
fn state(results: &Results) -> Markup {
    let complete = results.parts.iter().filter(|part| part.complete).count();
    let partial: Vec<&str> = results
        .parts
        .iter()
        .filter(|part| !part.complete)
        .map(|part| part.title.as_str())
        .collect();
    let is_there = |name: &str| results.parts.iter().any(|part| part.name == name);
    let missing: Vec<&str> =
        SUITE.iter().filter(|(name, _)| !is_there(name)).map(|(_, title)| *title).collect();
    html! {
        ul.state {
            li.complete { strong { (complete) } " complete" }
            @if !partial.is_empty() { li.partial { strong { (partial.len()) } " partial: " (partial.join(", ")) } }
            @if !missing.is_empty() { li.missing { strong { (missing.len()) } " not measured: " (missing.join(", ")) } }
        }
    }
}

fn contents(parts: &[Part], comparison: &[Table]) -> Markup {
    html! {
        nav.contents aria-label="Contents" {
            details open {
                summary { "Contents" }
                ol {
                    @if !comparison.is_empty() { li { a href="#comparison" { "Comparison" } } }
                    @for part in parts {
                        li { a href={ "#" (slug(&part.name)) } {
                            (part.title)
                            @if !part.complete { " " span.badge { "partial" } }
                        } }
                    }
                }
            }
        }
    }
}

fn problems(input: &Input) -> Markup {
    let problems =
        || input.other.iter().chain([&input.results]).flat_map(|results| &results.problems);
    html! {
        @if problems().next().is_some() {
            section.problems role="note" {
                h2 { "Could not be read" }
                ul { @for problem in problems() { li { (problem) } } }
            }
        }
    }
}

fn comparison(input: &Input, parts: &[Part], others: &[Part]) -> Vec<Table> {
    let Input { results, other: Some(other) } = input else { return Vec::new() };
    let pairs = || {
        parts
            .iter()
            .filter_map(|part| Some((part, others.iter().find(|other| other.name == part.name)?)))
    };
    let mut tables = Vec::new();
    if let (Some(here), Some(there)) = (&results.machine, &other.machine) {
        tables.push(compare::machines(
            &here.fingerprint,
            &there.fingerprint,
            &results.label,
            &other.label,
        ));
    }
    let settings = compare::settings(pairs(), &results.label, &other.label);
    if !settings.rows.is_empty() {
        tables.push(settings);
    }
    tables.push(compare::ratios(pairs(), &results.label, &other.label));
    tables
}

/// Parts that only one of two runs has.
fn unmatched<'a>(parts: &'a [Part], others: &'a [Part]) -> Vec<&'a str> {
    let is_alone = |part: &&Part| others.iter().all(|other| other.name != part.name);
    parts.iter().filter(is_alone).map(|part| part.title.as_str()).collect()
}

fn compared(tables: &[Table], other_label: &str, only: [(&str, Vec<&str>); 2]) -> Markup {
    html! {
        section.part id="comparison" {
            h2 { "Comparison" }
            p.about { "Curves of " strong { (other_label) } " have hollow marks and long dashes, in the colour of their counterparts." }
            @for (label, titles) in only {
                @if !titles.is_empty() { p.about { "Only in " strong { (label) } ": " (titles.join(", ")) "." } }
            }
            @for each in tables { (table::table(&format!("comparison-{}", each.name), each, None)) }
        }
    }
}

fn section(part: &Part, other: Option<&Part>, other_label: &str) -> Markup {
    let id = |name: &str| format!("{}--{}", slug(&part.name), slug(name));
    let other_id = |name: &str| format!("{}--other", id(name));
    html! {
        section.part id=(slug(&part.name)) {
            h2 {
                (part.title)
                @if !part.complete { " " span.badge { "partial: not all of it was measured" } }
                @if part.setting.get("effort").is_some_and(|extent| extent == "quick") {
                    " " span.badge { "quick: few sizes, short repetitions; not to be quoted" }
                }
            }
            @if !part.about.is_empty() { p.about { (part.about) } }
            @if !part.source.is_empty() { p.source { (part.source) } }
            @if !part.notes.is_empty() { ul.notes { @for note in &part.notes { li { (note) } } } }
            @if part.name == "summary" { (tables(part, &id, None)) }
            @if !part.figures.is_empty() {
                div.figures { @for each in &part.figures {
                    (figure::figure(&id(&each.name), each, compare::counterpart(other, each).map(|figure| (figure, other_label))))
                } }
            }
            @let others = || other.iter().flat_map(|other| &other.maps);
            @if !part.maps.is_empty() || others().next().is_some() {
                div.figures {
                    @for each in &part.maps { (map::map(&id(&each.name), each, None)) }
                    @for each in others() { (map::map(&other_id(&each.name), each, Some(other_label))) }
                }
            }
            @if part.name != "summary" { (tables(part, &id, None)) }
            @if let Some(other) = other.filter(|other| !other.tables.is_empty()) {
                details.others { summary { "Tables of " (other_label) } (tables(other, &other_id, Some(other_label))) }
            }
        }
    }
}

fn tables(part: &Part, id: &dyn Fn(&str) -> String, whose: Option<&str>) -> Markup {
    let filled = part.tables.iter().filter(|table| !table.rows.is_empty());
    html! { div.tables { @for each in filled { (table::table(&id(&each.name), each, whose)) } } }
}

/// A name that can be an anchor.
fn slug(name: &str) -> String {
    name.chars()
        .map(
            |letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' },
        )
        .collect()
}
