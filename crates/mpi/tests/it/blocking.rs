//! Blocking collectives: all of them here, and calls that a measured table selects.

use crate::harness::{Finished, Host, Job, Shared, families, first_case};
use crate::programs::COLLECTIVES;
use serde_json::Value;
use std::path::Path;
use std::sync::LazyLock;
use testing::mpi::Family;

testing::tests![needs(Mpich):
    blocking_calls_drive_messages,
    a_table_selects_calls,
    reports_name_the_times_of_the_library,
    an_unusable_table_is_named_once,
];
testing::tests![needs(Mpich, OpenMpi): every_name_is_taken];
families! {
    compare_with_library:
        mpich_has_every_blocking_collective,
        open_mpi_has_every_blocking_collective,
        intel_mpi_has_every_blocking_collective;
    mismatched_collectives_end:
        mpich_ends_mismatched_collectives,
        open_mpi_ends_mismatched_collectives,
        intel_mpi_ends_mismatched_collectives;
}

/// Compares the blocking forms, which run here, with the nonblocking ones of the MPI library.
fn compare_with_library(family: Family) {
    // Those of Open MPI 5.0.11 free memory twice with three ranks, without the library too, and
    // refuse the null type beside a count of 0. They run here as well: `programs` compares them with
    // the blocking ones of Open MPI.
    let background_is_here = family == Family::OpenMpi;
    let only = if background_is_here {
        "all".to_owned()
    } else {
        format!("Barrier,{}", COLLECTIVES.join(","))
    };
    for (host, ranks) in Host::with_each(family, &[2, 3]) {
        let job = host.job("collectives", ranks).argument("blocking");
        let finished = job.variable("TRADEWIND_MPI_ONLY", &only).preloaded().expect_success();
        let is_taken = finished.calls("MPI_Iallreduce").0 > 0;
        assert_eq!(is_taken, background_is_here, "{host:?}: {finished:?}");
        for name in COLLECTIVES {
            let (taken, left) = finished.calls(&format!("MPI_{name}"));
            assert!(taken > 0 && left == 0, "{name} with {host:?}: {finished:?}");
        }
    }
}

fn blocking_calls_drive_messages() {
    for (host, only) in Host::with_each(Family::Mpich, &["all", "barrier"]) {
        let job = host.job("progress", 3).variable("TRADEWIND_MPI_ONLY", only);
        let finished = job.preloaded().expect_success();
        assert_eq!(finished.calls("MPI_Barrier"), (39, 0), "{finished:?}");
    }
}

/// Time of the MPI library in the tables that tests change, in microseconds.
const LIBRARY_TIME: f64 = 777.25;

/// A table that one job has measured in a second, in which not all calls have their turn, and
/// which tests then change.
struct Table {
    directory: tempfile::TempDir,
    content: Value,
}

impl Table {
    /// A table of this library. One job measures for all tests.
    fn measured(host: Host) -> Self {
        static ALL: LazyLock<Shared<[&Path; 2], Value>> = LazyLock::new(Shared::default);
        let directory = tempfile::tempdir().expect("there is space");
        Table { content: ALL.get(host.places(), || Table::measure(host)), directory }
    }

    fn measure(host: Host) -> Value {
        let directory = tempfile::tempdir().expect("there is space");
        let file = directory.path().join("mpi.json");
        let name = file.to_str().expect("the name is UTF-8");
        let finished = host.job("tune", 2).argument(name).preloaded().expect_success();
        assert!(finished.output.contains("MPI_Barrier"), "{finished:?}");
        assert!(finished.output.ends_with(&format!("written to {name}\n")), "{finished:?}");
        let text = std::fs::read_to_string(&file).expect("it was written");
        let content: Value = serde_json::from_str(&text).expect("it is JSON");
        let rows = content["content"]["rows"].as_array().expect("a table has rows");
        assert!(!rows.is_empty(), "{text}");
        for size in rows.iter().flat_map(|row| row["sizes"].as_array().expect("a list")) {
            assert!(size["library"].as_f64().is_some_and(|time| time > 0.0), "{size}");
            assert!(size["tradewind"].as_f64().is_some_and(|time| time > 0.0), "{size}");
        }
        content
    }

    /// Keeps a row for each of these collectives, with these ratios at 8 B, 1 KiB and 64 KiB, and one
    /// time of the MPI library.
    fn set(&mut self, collectives: &[&str], ratios: [f64; 3]) {
        let rows = &mut self.content["content"]["rows"];
        let mut row = rows[0].clone();
        let mut size = row["sizes"][0].clone();
        let sizes = [8, 1024, 1 << 16].into_iter().zip(ratios).map(|(bytes, ratio)| {
            size["bytes"] = bytes.into();
            (size["ratio"], size["upper"]) = (ratio.into(), ratio.into());
            size.clone()
        });
        row["sizes"] = sizes.collect();
        let of = |collective: &&str| {
            row["collective"] = (*collective).into();
            for size in row["sizes"].as_array_mut().expect("a row has sizes") {
                // The other time is that of the slowest rank.
                (size["library"], size["library_mean"]) = (1.0.into(), LIBRARY_TIME.into());
                let ratio = size["ratio"].clone();
                let late = serde_json::json!({
                    "library": 1.0, "tradewind": ratio, "ratio": ratio, "upper": ratio,
                });
                size.as_object_mut().expect("a size has fields").remove("late");
                if collective.starts_with('I') {
                    size["late"] = late;
                }
            }
            row.clone()
        };
        *rows = collectives.iter().map(of).collect();
        self.write(&self.content.to_string());
    }

    fn write(&self, text: &str) {
        std::fs::write(self.directory.path().join("mpi.json"), text).expect("there is space");
    }

    /// A job that goes by this table.
    fn job(&self, host: Host, program: &str, ranks: u32) -> Job {
        let decisions = self.directory.path().join("decisions.json");
        let name = decisions.to_str().expect("the name is UTF-8");
        host.job(program, ranks)
            .variable("TRADEWIND_DECISIONS", name)
            .variable("TRADEWIND_MPI_ONLY", "")
    }
}

/// The calls of a program where no table decides.
fn calls_by_rule(host: Host, ranks: u32) -> [(u64, u64); 2] {
    let job = host.job("blocking", ranks).variable("TRADEWIND_MPI_ONLY", "");
    let finished = job.preloaded().expect_success();
    ["MPI_Allreduce", "MPI_Iallreduce"].map(|name| finished.calls(name))
}

fn a_table_selects_calls() {
    let host = Host::of_debian().unwrap_or_else(|| Host::all(Family::Mpich)[0]);
    let mut table = Table::measured(host);
    let calls = |table: &Table, ranks| {
        let finished = table.job(host, "blocking", ranks).preloaded().expect_success();
        let calls = ["MPI_Allreduce", "MPI_Iallreduce"].map(|name| finished.calls(name));
        (calls, finished)
    };
    table.set(&["Allreduce", "Iallreduce"], [0.5, 0.5, 1.5]);
    let (taken, finished) = calls(&table, 2);
    assert_eq!(taken, [(40, 20), (60, 0)], "{finished:?}");
    assert!(finished.errors.contains("not faster 20"), "{finished:?}");
    // The table has no jobs of three ranks.
    let (taken, finished) = calls(&table, 3);
    assert_eq!(taken, calls_by_rule(host, 3), "{finished:?}");
    // A choice of the user's comes first.
    let job = table.job(host, "blocking", 2).variable("TRADEWIND_MPI_ONLY", "ibarrier");
    let finished = job.preloaded().expect_success();
    assert_eq!(finished.calls("MPI_Allreduce"), (0, 60), "{finished:?}");
    assert_eq!(finished.calls("MPI_Iallreduce"), (0, 60), "{finished:?}");
    // Short calls are left by their number of elements.
    table.set(&["Allreduce", "Iallreduce"], [1.5, 0.5, 0.5]);
    let (taken, finished) = calls(&table, 2);
    assert_eq!(taken, [(40, 20), (0, 60)], "{finished:?}");
    assert!(finished.errors.contains("not faster 20"), "{finished:?}");
    // Tables of older versions have no times of nonblocking calls where a rank is late.
    let rows = table.content["content"]["rows"].as_array_mut().expect("a table has rows");
    for size in rows.iter_mut().flat_map(|row| row["sizes"].as_array_mut().expect("a list")) {
        size.as_object_mut().expect("a size has fields").remove("late");
    }
    table.write(&table.content.to_string());
    let (taken, finished) = calls(&table, 2);
    assert_eq!(taken, [(40, 20), calls_by_rule(host, 2)[1]], "{finished:?}");
}

fn reports_name_the_times_of_the_library() {
    let host = Host::of_debian().unwrap_or_else(|| Host::all(Family::Mpich)[0]);
    let mut table = Table::measured(host);
    table.set(&["Allreduce", "Iallreduce"], [0.5, 0.5, 0.5]);
    let in_line = |finished: &Finished, name: &str, text: &str| {
        let mut lines = finished.errors.lines();
        let line = lines.find(|line| line.split_whitespace().nth(1) == Some(name));
        line.is_some_and(|line| line.contains(text))
    };
    let finished = table.job(host, "blocking", 2).preloaded().expect_success();
    for name in ["MPI_Allreduce", "MPI_Iallreduce"] {
        assert!(in_line(&finished, name, " 777.25 µs"), "{name}: {finished:?}");
    }
    // A choice of the user's replaces the decisions of the table, and not its times.
    let job = table.job(host, "blocking", 2).variable("TRADEWIND_MPI_ONLY", "iallreduce");
    let finished = job.preloaded().expect_success();
    assert!(in_line(&finished, "MPI_Iallreduce", " 777.25 µs"), "{finished:?}");
    assert!(!in_line(&finished, "MPI_Allreduce", "µs"), "{finished:?}");
    // The table has no jobs of three ranks.
    let job = table.job(host, "blocking", 3).variable("TRADEWIND_MPI_ONLY", "iallreduce");
    let finished = job.preloaded().expect_success();
    assert!(in_line(&finished, "MPI_Iallreduce", "not measured"), "{finished:?}");
    assert!(finished.errors.contains("`tradewind tune --mpi`"), "{finished:?}");
    // The measurement has exchanges on rings, and data without gaps.
    table.set(&["Ineighbor_alltoall", "Ibcast"], [0.5, 0.5, 0.5]);
    for (calls, text) in [("like", " 777.25 µs"), ("unlike", "not measured")] {
        let job = table.job(host, "unlike", 2).variable("TRADEWIND_MPI_ONLY", "nonblocking");
        let finished = job.argument(calls).preloaded().expect_success();
        for name in ["MPI_Ineighbor_alltoall", "MPI_Ibcast"] {
            assert!(in_line(&finished, name, text), "{calls} {name}: {finished:?}");
        }
    }
}

/// Ranks that wait in two libraries for each other end, and a line names what they are in.
fn mismatched_collectives_end(family: Family) {
    // The root of the broadcast gets no error, so its handler is none.
    let cases: [&[&str]; 5] = [
        &["allreduce", "return"],
        &["bcast"],
        &["ialltoall"],
        &["allreduce"],
        &["ialltoall", "return"],
    ];
    for (number, host) in Host::all(family).into_iter().enumerate() {
        let mut table = Table::measured(host);
        table.set(&["Allreduce", "Bcast", "Ialltoall"], [0.5, 0.5, 1.5]);
        for case in &cases[first_case(family, number, cases.len())..] {
            let job = table.job(host, "mismatched", 2);
            let finished = case.iter().fold(job, |job, word| job.argument(word)).preloaded();
            assert!(finished.in_time, "{case:?} with {host:?}: {finished:?}");
            assert_ne!(finished.status, Some(0), "{case:?} with {host:?}: {finished:?}");
            let names_both = "rank 1 is in a collective of another library";
            assert!(finished.errors.contains(names_both), "{host:?}: {finished:?}");
            // The rank that waits in tradewind gets an error, also in a nonblocking collective.
            let is_told = finished.errors.contains("tradewind: MPI_Ialltoall: ");
            assert_eq!(is_told, case[0] == "ialltoall", "{host:?}: {finished:?}");
        }
    }
}

fn every_name_is_taken() {
    for family in [Family::Mpich, Family::OpenMpi] {
        for host in Host::all(family) {
            let job = host.job("names", 2).variable("TRADEWIND_MPI_ONLY", "allreduce");
            let finished = job.preloaded().expect_success();
            let names = if finished.output == "4 names\n" { 4 } else { 2 };
            assert_eq!(finished.calls("MPI_Allreduce"), (names * 20, 0), "{host:?}: {finished:?}");
        }
    }
}

fn an_unusable_table_is_named_once() {
    let host = Host::all(Family::Mpich)[0];
    let mut table = Table::measured(host);
    table.set(&["Allreduce"], [0.5, 0.5, 0.5]);
    let with = |pointer: &str, value: Value| {
        let mut content = table.content.clone();
        *content.pointer_mut(pointer).expect("it is there") = value;
        content.to_string()
    };
    let unusable = [
        ("{".to_owned(), "damaged"),
        (with("/content/rows/0/sizes/0/ratio", "half".into()), "damaged"),
        (with("/content/rows", 7.into()), "damaged"),
        (with("/content/fingerprint/cores", 4711.into()), "was made on another machine"),
        (with("/format", "tradewind machine".into()), "is a `tradewind machine` file"),
        (with("/version", 99.into()), "from a newer tradewind"),
    ];
    let [by_rule, _] = calls_by_rule(host, 2);
    for (text, why) in unusable {
        table.write(&text);
        let finished = table.job(host, "blocking", 2).preloaded().expect_success();
        let lines = finished.errors.lines().filter(|line| line.contains("mpi.json"));
        let lines: Vec<&str> = lines.collect();
        assert!(lines.len() == 1 && lines[0].contains(why), "{why}: {finished:?}");
        assert_eq!(finished.calls("MPI_Allreduce"), by_rule, "{finished:?}");
    }
}
