//! Every experiment of the suite, quickly and on threads: what its part looks like, never how long
//! anything takes.

use crate::{part_on_threads, run_on_threads};
use collectives::Collective;
use measure::experiments::queues::QueueRow;
use measure::experiments::{BETWEEN_NODES, EXPERIMENTS, between_nodes, find, part};
use measure::harness::{Error, Experiment, JobShape, Nodes, Setting, Step, StepContext};
use measure::results::{Part, Point, Role};
use measure::rows::{Mechanism, Quantity, Row, StepRows, What};
use std::collections::BTreeSet;

testing::tests![
    memory_has_a_cell_for_each_alignment,
    pingpong_has_every_curve_in_every_figure,
    barrier_says_what_is_crowded,
    a_hypercube_has_each_dimension,
    matchings_have_a_row_each_and_a_distribution,
    contention_compares_with_one_pair,
    contention_says_that_two_cores_are_too_few,
    placement_has_every_mapping,
    queues_have_a_row_for_each_case_and_what_follows_from_them,
    queues_of_ranks_that_share_a_core_are_not_measured,
    overlap_has_both_engines,
    parts_between_nodes_have_names_of_their_own,
    every_mechanism_that_crosses_nodes_has_rows_between_them,
    messages_between_nodes_have_a_curve_for_each_form,
    messages_between_and_inside_nodes_have_parameters,
    collectives_between_nodes_are_measured_against_progress_in_calls,
    two_ranks_on_two_nodes_say_what_they_are_too_few_for,
    every_process_draws_up_the_same_steps,
    all_of_it_takes_as_long_as_users_are_told,
    a_row_that_cannot_be_is_refused,
    a_step_that_fails_is_named,
    neighbours_of_one_shape_share_a_job,
];

/// Little work, on two cores whatever this machine has.
fn quick() -> Setting {
    Setting { quick: true, cores: vec![0, 1], ..Setting::default() }
}

fn unique<'a>(what: &str, names: impl IntoIterator<Item = &'a String>) {
    let mut seen = BTreeSet::new();
    for name in names {
        assert!(
            !name.is_empty() && seen.insert(name),
            "{what} {name:?} is there twice, or has no name"
        );
    }
}

fn is_a_file_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .chars()
            .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-')
}

fn assert_is_finite(place: &str, point: &Point) {
    let Point { x, median, minimum, lower_quartile, upper_quartile, maximum, .. } = *point;
    let ordered: Vec<f64> = [minimum, lower_quartile, Some(median), upper_quartile, maximum]
        .into_iter()
        .flatten()
        .collect();
    assert!(x.is_finite() && ordered.iter().all(|value| value.is_finite()), "{place}: {point:?}");
    assert!(ordered.is_sorted(), "{place}: {point:?}");
}

/// Checks the properties that every reader of parts relies on.
fn assert_obeys_the_form(part: &Part) {
    let name = &part.name;
    assert!(part.complete, "{name}");
    assert!(
        !part.title.is_empty() && !part.about.is_empty() && !part.source.is_empty(),
        "{name} says what it is"
    );
    let names = || {
        let figures = part.figures.iter().map(|figure| &figure.name);
        figures
            .chain(part.maps.iter().map(|map| &map.name))
            .chain(part.tables.iter().map(|table| &table.name))
    };
    unique(name, names());
    assert!(names().all(|name| is_a_file_name(name)), "{name}");
    for figure in &part.figures {
        let place = format!("{name}, {}", figure.name);
        unique(&place, figure.series.iter().map(|series| &series.name));
        assert!(
            figure.series.iter().any(|series| series.role == Role::Measured),
            "{place} shows something measured"
        );
        for series in &figure.series {
            let place = format!("{place}, {}", series.name);
            assert!(!series.points.is_empty(), "{place}");
            assert!(
                series.points.is_sorted_by(|left, right| left.x < right.x),
                "{place}: x is not ascending"
            );
            series.points.iter().for_each(|point| assert_is_finite(&place, point));
        }
    }
    for map in &part.maps {
        unique(name, &map.columns.names);
        unique(name, &map.rows.names);
        assert!(!map.cells.is_empty(), "{name}, {}", map.name);
        for cell in &map.cells {
            assert!(
                cell.column < map.columns.names.len() && cell.row < map.rows.names.len(),
                "{name}: {cell:?}"
            );
        }
    }
    for table in &part.tables {
        assert!(
            table.rows.iter().all(|row| row.len() == table.columns.len()),
            "{name}, {}",
            table.name
        );
    }
}

fn measured(name: &str) -> Part {
    let entry = find(name).unwrap_or_else(|| panic!("there is no {name}"));
    let part = part_on_threads(&entry.experiment(&quick()))
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(part.name, name);
    assert_obeys_the_form(&part);
    part
}

fn memory_has_a_cell_for_each_alignment() {
    let part = measured("memory");
    assert_eq!(part.maps[0].cells.len(), 16);
    assert!(
        part.maps[0].cells.iter().all(|cell| cell.value >= Some(1.0)),
        "{:?}",
        part.maps[0].cells
    );
    assert!(!part.tables[0].rows.is_empty());
}

fn pingpong_has_every_curve_in_every_figure() {
    let part = measured("pingpong");
    for figure in ["exchange", "exchange-short", "round-trip", "round-trip-short"] {
        let figure = part.figure(figure).expect("it is there");
        for curve in [
            "receive posted",
            "receive not posted",
            "receive posted, peers",
            "receive not posted, peers",
        ] {
            assert!(
                figure.curve(curve).is_some_and(|curve| curve.points.len() > 5),
                "{}: {curve}",
                figure.name
            );
        }
    }
    assert!(part.figure("round-trip").is_some_and(|figure| figure.curve("wide queue").is_some()));
    let fits = &part.table("fits").expect("it is there").rows;
    assert!(fits.len() >= 8, "zero and a line at least for each curve: {fits:?}");
}

fn barrier_says_what_is_crowded() {
    let part = measured("barrier");
    assert!(part.notes.iter().any(|note| note.contains("4 ranks on 2 cores")), "{:?}", part.notes);
    assert!(part.figures[0].curve("join, more ranks than cores").is_some());
}

fn a_hypercube_has_each_dimension() {
    let part = measured("hypercube");
    let curves: Vec<&str> =
        part.figures[0].series.iter().map(|series| series.name.as_str()).collect();
    assert_eq!(curves, ["dimension 1", "dimension 2, more ranks than cores"]);
    assert_eq!(part.tables[0].rows.len(), 6);
}

fn matchings_have_a_row_each_and_a_distribution() {
    let part = measured("matchings");
    assert_eq!(part.table("matchings").map(|table| table.rows.len()), Some(8));
    let shares = &part.figure("distribution").expect("it is there").series[0].points;
    assert_eq!((shares.len(), shares[7].x), (8, 100.0));
    assert!(shares.is_sorted_by(|left, right| left.median <= right.median));
}

/// On threads, which are not bound, so that any machine has four cores to name.
fn contention_compares_with_one_pair() {
    let setting = Setting { cores: (0..4).collect(), ..quick() };
    let experiment = find("contention").expect("it is there").experiment(&setting);
    let part = part_on_threads(&experiment).expect("it can be measured");
    assert_obeys_the_form(&part);
    let rows = &part.tables[0].rows;
    assert_eq!(rows.len(), 4);
    assert_eq!(rows[0][3], 1.0.into());
}

fn contention_says_that_two_cores_are_too_few() {
    let part = measured("contention");
    assert!(part.complete && part.figures.is_empty(), "no curve through turns of the scheduler");
    assert!(part.tables.iter().all(|table| table.rows.is_empty()));
    let note = "The chain says nothing here";
    assert!(part.notes.iter().any(|one| one.starts_with(note)), "{:?}", part.notes);
    let results = measure::page::Results { parts: vec![part], ..measure::page::Results::named("") };
    let page = measure::page::render(&measure::page::Input { results, other: None });
    assert!(page.contains(note), "the report repeats it");
}

fn placement_has_every_mapping() {
    let part = measured("placement");
    assert_eq!(part.maps[0].cells.len(), 4);
    assert!(
        part.figures[0].curve("not bound").is_some()
            && part.figures[0].curve("same-core").is_some()
    );
}

fn queues_have_a_row_for_each_case_and_what_follows_from_them() {
    let experiment = find("queues").expect("it is there").experiment(&quick());
    let run = run_on_threads(&experiment).expect("it can be measured");
    let part = part(&run).expect("it is known");
    assert_obeys_the_form(&part);
    let rows = QueueRow::all(&run);
    assert_eq!(rows.len(), part.table("rows").map_or(0, |table| table.rows.len()));
    assert!(
        rows.len() > 20 && part.table("crossovers").is_some_and(|table| !table.rows.is_empty())
    );
    let latency = part.figure("latency").expect("it is there");
    assert!(
        latency.curve("wide").is_some()
            && latency.curve("floor").is_some_and(|floor| floor.role == Role::Floor)
    );
}

fn queues_of_ranks_that_share_a_core_are_not_measured() {
    let setting = Setting { cores: vec![0], ..quick() };
    let experiment = find("queues").expect("it is there").experiment(&setting);
    let part = part_on_threads(&experiment).expect("there is nothing to do");
    assert!(part.complete && part.figures.is_empty() && part.tables.is_empty());
    assert!(part.notes[0].contains("2 ranks on 1 core"), "{:?}", part.notes);
}

fn overlap_has_both_engines() {
    let part = measured("overlap");
    let exposed = part.figure("exposed").expect("it is there");
    for curve in ["allreduce, caller", "allreduce, peers", "neighbor, caller", "neighbor, peers"] {
        assert!(exposed.curve(curve).is_some_and(|curve| curve.points.len() == 2), "{curve}");
    }
    assert_eq!(part.tables[0].rows.len(), 18);
}

/// Nodes of one machine with two cores, with so many ranks on each.
fn nodes(ranks: &[u32]) -> Nodes {
    let machines = vec![0; ranks.len()];
    let engine = Some("direct".to_owned());
    Nodes { ranks: ranks.to_vec(), machines, cores: vec![2], engine, others: Vec::new() }
}

/// The experiment between nodes that are threads of this process.
fn measured_between(name: &str, ranks: &[u32]) -> Part {
    let experiment = between_nodes(name, &quick(), &nodes(ranks));
    let experiment = experiment.unwrap_or_else(|| panic!("there is no {name} between nodes"));
    let part = part_on_threads(&experiment).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_is_between(name, ranks, &part);
    part
}

fn assert_is_between(name: &str, ranks: &[u32], part: &Part) {
    assert_eq!(part.name, format!("{name}-nodes-direct"));
    assert!(part.title.ends_with(" between nodes"), "{}", part.title);
    let sharing = format!("{} nodes share 2 cores", ranks.len());
    assert!(part.notes.iter().any(|note| note.starts_with(&sharing)), "{:?}", part.notes);
    assert_obeys_the_form(part);
}

fn curves<'p>(part: &'p Part, figure: &str) -> Vec<&'p str> {
    let figure = part.figure(figure).unwrap_or_else(|| panic!("{} has no {figure}", part.name));
    figure.series.iter().map(|series| series.name.as_str()).collect()
}

fn parts_between_nodes_have_names_of_their_own() {
    for name in BETWEEN_NODES {
        let experiment = between_nodes(name, &quick(), &nodes(&[2, 2])).expect("it runs there");
        assert_eq!(experiment.name(), format!("{name}-nodes-direct"));
        let shapes = experiment.steps().iter().map(|step| &step.shape);
        assert!(shapes.clone().all(|shape| shape.nodes.is_some()), "{name}");
        assert!(shapes.clone().all(|shape| (2..=4).contains(&shape.ranks)), "{name}");
    }
    let overlap = between_nodes("overlap", &quick(), &nodes(&[2, 1])).expect("it runs there");
    let ranks: BTreeSet<u32> = overlap.steps().iter().map(|step| step.shape.ranks).collect();
    assert_eq!(ranks, [2, 3].into(), "powers of two, and all ranks");
    assert!(between_nodes("progress", &quick(), &nodes(&[1, 1])).is_none());
    let memory = measured_between("memory", &[1, 1]);
    assert_eq!(memory.maps.len(), 1, "both nodes are one machine");
    assert!(!memory.tables[0].rows.is_empty());
}

fn every_mechanism_that_crosses_nodes_has_rows_between_them() {
    let experiment = between_nodes("queues", &quick(), &nodes(&[1, 1])).expect("it runs there");
    let run = run_on_threads(&experiment).expect("it can be measured");
    assert_is_between("queues", &[1, 1], &part(&run).expect("it is known"));
    let rows = QueueRow::all(&run);
    let is_measured = |mechanism: Mechanism| {
        rows.iter().any(|row| row.mechanism == mechanism && row.latency_ns.is_some())
    };
    for &mechanism in Mechanism::ALL {
        assert_eq!(is_measured(mechanism), mechanism.crosses_nodes(), "{mechanism}");
    }
    assert!(rows.iter().all(|row| row.floor_ns.is_none()), "nodes share no memory");
}

fn messages_between_nodes_have_a_curve_for_each_form() {
    let part = measured_between("pingpong", &[1, 1]);
    for figure in ["exchange", "exchange-short", "round-trip", "round-trip-short"] {
        let found = curves(&part, figure);
        for curve in [
            "receive posted, blocking, direct",
            "receive not posted, blocking, direct",
            "receive posted, nonblocking, agent",
            "receive not posted, nonblocking, agent",
        ] {
            assert!(found.contains(&curve), "{figure}: {curve} is not among {found:?}");
        }
    }
    assert!(part.table("fits").is_some_and(|table| table.rows.len() >= 8));
    let barrier = measured_between("barrier", &[1, 1, 1, 1]);
    let crowded = "dissemination, nonblocking, agent, more ranks than cores";
    assert!(curves(&barrier, "time").contains(&crowded), "{:?}", barrier.figures);
    let hypercube = measured_between("hypercube", &[2, 2]);
    assert_eq!(
        curves(&hypercube, "emulation"),
        ["dimension 1", "dimension 2, more ranks than cores"]
    );
    let matchings = measured_between("matchings", &[2, 2]);
    let rows = &matchings.table("matchings").expect("it is there").rows;
    assert_eq!(rows.len(), 8);
    // A matching of 4 ranks pairs both of a node, or none.
    assert!(rows.iter().all(|row| [2.0.into(), 0.0.into()].contains(&row[2])), "{rows:?}");
}

fn collectives_between_nodes_are_measured_against_progress_in_calls() {
    let part = measured_between("overlap", &[1, 1]);
    let by_size = curves(&part, "exposed");
    let by_ranks = curves(&part, "exposed-ranks");
    // The ranks execute collectives of one step, as those of two ranks are.
    for engine in ["direct in calls", "direct"] {
        for operation in ["allreduce", "neighbor"] {
            let curve = format!("{operation}, 2 ranks, {engine}");
            assert!(by_size.contains(&curve.as_str()), "{curve} is not among {by_size:?}");
        }
        let barrier = format!("barrier, {engine}");
        let figure = part.figure("exposed-ranks").expect("it is there");
        let points = &figure.curve(&barrier).expect("it is there").points;
        assert_eq!(points.iter().map(|point| point.x).collect::<Vec<_>>(), [2.0]);
        let bcast = format!("bcast of 8 bytes, {engine}");
        assert!(by_ranks.contains(&bcast.as_str()), "{bcast} is not among {by_ranks:?}");
    }
}

fn messages_between_and_inside_nodes_have_parameters() {
    let part = measured_between("plogp", &[2, 1]);
    let rows = &part.table("parameters").expect("it is there").rows;
    let pairs: Vec<_> = rows.iter().map(|row| (row[0].clone(), row[1].clone())).collect();
    let expected = [
        ("other-node", "direct"),
        ("other-node", "agent"),
        ("same-socket", "direct"),
        ("same-socket", "agent"),
    ];
    assert_eq!(pairs, expected.map(|(class, engine)| (class.into(), engine.into())));
    assert_eq!(curves(&part, "arrival").len(), 4);
    assert!(part.about.contains("a job with 3 ranks on 2 nodes"), "{}", part.about);
}

/// Nothing is drawn through what cannot be seen there.
fn two_ranks_on_two_nodes_say_what_they_are_too_few_for() {
    for (name, note) in [
        ("matchings", "Matchings say nothing here: 2 ranks have one matching only"),
        ("contention", "The chain says nothing here"),
    ] {
        let part = measured_between(name, &[1, 1]);
        assert!(part.figures.is_empty() && part.notes.iter().any(|one| one.starts_with(note)));
    }
}

/// The list depends on the setting alone: every rank draws it up for itself.
fn every_process_draws_up_the_same_steps() {
    for entry in EXPERIMENTS {
        let name = entry.name();
        for setting in [quick(), Setting { quick: false, ..quick() }] {
            let steps = |experiment: Experiment| {
                let of = |step: &Step| (step.what.clone(), step.shape.clone(), step.milliseconds);
                experiment.steps().iter().map(of).collect::<Vec<_>>()
            };
            let (one, other) =
                (steps(entry.experiment(&setting)), steps(entry.experiment(&setting)));
            assert!(!one.is_empty() && one == other, "{name}");
            assert_eq!(entry.experiment(&setting).name(), name);
        }
    }
}

/// Durations that the help text states: some minutes in full, about one in the quick form.
fn all_of_it_takes_as_long_as_users_are_told() {
    let minutes = |setting: &Setting| {
        let steps = EXPERIMENTS.iter().flat_map(|entry| {
            entry
                .experiment(setting)
                .steps()
                .iter()
                .map(|step| step.milliseconds)
                .collect::<Vec<_>>()
        });
        steps.sum::<u64>() as f64 / 60_000.0
    };
    let full = minutes(&Setting { quick: false, ..quick() });
    assert!((1.0..=10.0).contains(&full), "{full} minutes");
    assert!(minutes(&quick()) <= 1.0, "{} minutes", minutes(&quick()));
}

/// An experiment of one step for each number of ranks.
fn trial<R: Into<StepRows>>(
    ranks: impl IntoIterator<Item = u32>,
    measure: impl Fn(&StepContext<'_>) -> Result<R, Error> + Copy + Send + Sync + 'static,
) -> Experiment {
    let setting = quick();
    let shape = |ranks| JobShape::bound(&setting, ranks);
    let step = |ranks| Step::new("by moonlight", shape(ranks), 1, measure);
    Experiment::new("trial", &setting, ranks.into_iter().map(step))
}

fn a_row_that_cannot_be_is_refused() {
    for time in [f64::NAN, f64::INFINITY, -1.0] {
        let experiment = trial([2], move |here| {
            let what = What::Collective(Collective::Barrier);
            Ok(vec![here.row(what, Quantity::Alone, vec![1.0, time])])
        });
        let error = run_on_threads(&experiment).expect_err("it is no time").to_string();
        assert!(error.contains("which is no time in microseconds"), "{error}");
    }
}

fn a_step_that_fails_is_named() {
    let fails = |_: &StepContext<'_>| {
        Err::<Vec<Row>, _>(Error::Impossible {
            what: "there is no moon".to_owned(),
            way_out: "wait for it".to_owned(),
        })
    };
    let experiment = trial([2], fails);
    let error = run_on_threads(&experiment).expect_err("it fails").to_string();
    assert_eq!(error, "by moonlight: there is no moon; wait for it");
}

fn neighbours_of_one_shape_share_a_job() {
    let experiment = trial([2, 2, 4, 2], |_| Ok(Vec::new()));
    let jobs: Vec<_> = [0, 1, 2, 3, 4].map(|first| experiment.job_from(first)).to_vec();
    assert_eq!(jobs, [0..2, 1..2, 2..3, 3..4, 4..4]);
}
