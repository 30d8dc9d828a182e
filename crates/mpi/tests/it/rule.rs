//! The built-in rule: it follows from recorded measurements, and decides where no table does.

use crate::harness::{Host, families};
use models::machine::Topology;
use models::mpi_table::rule::Rule;
use models::mpi_table::{MpiRow, MpiSize, MpiTable};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use testing::mpi::Family;

testing::tests![the_rule_follows_from_recorded_rows, the_rule_takes_no_call_that_took_longer];
families! {
    goes_by_the_rule:
        mpich_goes_by_the_rule, open_mpi_goes_by_the_rule, intel_mpi_goes_by_the_rule;
}

const RULE: &str = include_str!("../../src/rule.txt");

/// The rows that `tradewind tune --mpi` has measured for the rule.
fn recorded() -> MpiTable {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/mpi-rows.json");
    let text = std::fs::read_to_string(path).expect("it is there");
    let mut file: Value = serde_json::from_str(&text).expect("it is JSON");
    serde_json::from_value(file["content"].take()).expect("it is a table")
}

fn the_rule_follows_from_recorded_rows() {
    let text = Rule::text(&recorded());
    if text != RULE {
        let path = std::env::temp_dir().join("rule.txt");
        std::fs::write(&path, &text).expect("there is space");
        panic!("cp {} crates/mpi/src/rule.txt", path.display());
    }
}

/// Ratios of a size in both situations.
fn ratios(size: &MpiSize) -> impl Iterator<Item = f64> {
    std::iter::once(size.ratio).chain(size.late.map(|late| late.ratio))
}

fn the_rule_takes_no_call_that_took_longer() {
    let (table, rule) = (recorded(), Rule::of(RULE));
    let unknown = rule.class("another library", 2, Topology::here().fingerprint());
    let (mut taken_sizes, mut groups) = (0, BTreeSet::new());
    for row in table.all_rows() {
        let MpiRow { library, job, ranks, collective, sizes } = row;
        groups.insert((library, *job, *ranks));
        let class = rule.class(library, *job, table.machine());
        let known = rule.taken(class, *ranks, collective);
        let of_unknown = rule.taken(unknown, *ranks, collective);
        for taken in [known, of_unknown] {
            let is_taken = |size: &&MpiSize| {
                let mut ranges = taken.ranges.iter();
                taken.at_any_size || ranges.any(|range| range.contains(&size.bytes))
            };
            for size in sizes.iter().filter(is_taken) {
                taken_sizes += 1;
                assert!(ratios(size).all(|ratio| ratio <= 1.0), "{library} {collective}: {size:?}");
            }
        }
    }
    assert!(taken_sizes > 0);
    for (job, ranks) in [(2, 2), (4, 4), (4, 2)] {
        let libraries = groups.iter().filter(|group| (group.1, group.2) == (job, ranks));
        assert_eq!(libraries.count(), 3, "{ranks} of {job} ranks: {groups:?}");
    }
}

/// Calls of 8 B, 1 KiB and 64 KiB run on tradewind where the rule says so.
fn goes_by_the_rule(family: Family) {
    let rule = Rule::of(RULE);
    for (host, ranks) in Host::with_each(family, &[2, 3]) {
        let class = rule.class(&host.version(), ranks, Topology::here().fingerprint());
        let job = host.job("blocking", ranks).variable("TRADEWIND_MPI_ONLY", "");
        let finished = job.preloaded().expect_success();
        for (collective, lengths) in [("Allreduce", &[8, 1024, 65536][..]), ("Iallreduce", &[8])] {
            let taken = rule.taken(class, ranks, collective);
            let contains = |bytes| taken.ranges.iter().any(|range| range.contains(bytes));
            let count = lengths.iter().filter(|bytes| contains(bytes)).count() as u64;
            // Each of the lengths ten times; of the nonblocking one, beside each of the others.
            let times = if lengths.len() == 1 { 30 } else { 10 };
            let (taken, _) = finished.calls(&format!("MPI_{collective}"));
            let expected = count * times * u64::from(ranks);
            assert_eq!(taken, expected, "{collective} with {host:?}: {finished:?}");
        }
    }
}
