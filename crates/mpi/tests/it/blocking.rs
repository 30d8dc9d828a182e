//! Blocking collectives: all of them here, and those that a measured table selects.

use crate::harness::Host;
use crate::programs::COLLECTIVES;
use std::path::Path;
use testing::mpi::Family;

testing::tests![needs(Mpich):
    mpich_has_every_blocking_collective,
    blocking_calls_drive_messages,
    a_table_selects_blocking_calls,
    without_a_table_blocking_calls_are_left,
    a_damaged_table_is_named_once,
];
testing::tests![needs(OpenMpi): open_mpi_has_every_blocking_collective];
testing::tests![needs(Mpich, IntelMpi): intel_mpi_has_every_blocking_collective];

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
    for host in Host::all(family) {
        for ranks in [2, 3] {
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
}

fn mpich_has_every_blocking_collective() {
    compare_with_library(Family::Mpich);
}

fn open_mpi_has_every_blocking_collective() {
    compare_with_library(Family::OpenMpi);
}

fn intel_mpi_has_every_blocking_collective() {
    compare_with_library(Family::Intel);
}

fn blocking_calls_drive_messages() {
    for host in Host::all(Family::Mpich) {
        for only in ["all", "barrier"] {
            let job = host.job("progress", 3).variable("TRADEWIND_MPI_ONLY", only);
            let finished = job.preloaded().expect_success();
            assert_eq!(finished.calls("MPI_Barrier"), (3, 0), "{finished:?}");
        }
    }
}

/// Measures a table in a second, in which not all calls have their turn, and makes its first row one
/// of an allreduce with these ratios at 8 B, 1 KiB and 64 KiB.
fn measure(host: Host, table: &Path, ratios: [f64; 3]) {
    let file = table.to_str().expect("the name is UTF-8");
    host.job("tune", 2).argument(file).preloaded().expect_success();
    let text = std::fs::read_to_string(table).expect("it was written");
    let mut content: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let rows = content["content"]["rows"].as_array_mut().expect("a table has rows");
    assert!(!rows.is_empty(), "{text}");
    for size in rows.iter().flat_map(|row| row["sizes"].as_array().expect("a list")) {
        assert!(size["library"].as_f64().is_some_and(|time| time > 0.0), "{size}");
        assert!(size["tradewind"].as_f64().is_some_and(|time| time > 0.0), "{size}");
    }
    let mut lengths = [8, 1024, 1 << 16].into_iter();
    let sizes = ratios.map(|ratio| {
        let bytes = lengths.next().expect("there are three");
        let mut size = rows[0]["sizes"][0].clone();
        size["bytes"] = bytes.into();
        (size["ratio"], size["upper"]) = (ratio.into(), ratio.into());
        size
    });
    rows[0]["collective"] = "Allreduce".into();
    rows[0]["sizes"] = sizes.to_vec().into();
    std::fs::write(table, content.to_string()).expect("there is room");
}

fn a_table_selects_blocking_calls() {
    let host = Host::of_debian().unwrap_or_else(|| Host::all(Family::Mpich)[0]);
    let directory = tempfile::tempdir().expect("there is room");
    let table = directory.path().join("mpi.json");
    measure(host, &table, [0.5, 0.5, 1.5]);
    let decisions = directory.path().join("decisions.json");
    let job = |ranks| {
        let job = host.job("blocking", ranks);
        job.variable("TRADEWIND_DECISIONS", decisions.to_str().expect("the name is UTF-8"))
    };
    let finished = job(2).preloaded().expect_success();
    assert_eq!(finished.calls("MPI_Allreduce"), (40, 20), "{finished:?}");
    assert_eq!(finished.calls("MPI_Iallreduce"), (60, 0), "{finished:?}");
    assert!(finished.errors.contains("not faster 20"), "{finished:?}");
    // The table has no jobs of three ranks.
    let finished = job(3).preloaded().expect_success();
    assert_eq!(finished.calls("MPI_Allreduce"), (0, 90), "{finished:?}");
    // A choice of the user's comes first.
    let finished = job(2).variable("TRADEWIND_MPI_ONLY", "ibarrier").preloaded().expect_success();
    assert_eq!(finished.calls("MPI_Allreduce"), (0, 60), "{finished:?}");
    // Short calls are left by their number of elements.
    measure(host, &table, [1.5, 0.5, 0.5]);
    let finished = job(2).preloaded().expect_success();
    assert_eq!(finished.calls("MPI_Allreduce"), (40, 20), "{finished:?}");
    assert!(finished.errors.contains("not faster 20"), "{finished:?}");
}

fn without_a_table_blocking_calls_are_left() {
    let finished = Host::all(Family::Mpich)[0].job("blocking", 2).preloaded().expect_success();
    assert_eq!(finished.calls("MPI_Allreduce"), (0, 60), "{finished:?}");
    assert!(finished.errors.contains("no table 60"), "{finished:?}");
}

fn a_damaged_table_is_named_once() {
    let directory = tempfile::tempdir().expect("there is room");
    let table = directory.path().join("mpi.json");
    std::fs::write(&table, "{").expect("there is room");
    let decisions = directory.path().join("decisions.json");
    let job = Host::all(Family::Mpich)[0].job("blocking", 2);
    let job = job.variable("TRADEWIND_DECISIONS", decisions.to_str().expect("the name is UTF-8"));
    let finished = job.preloaded().expect_success();
    let lines = finished.errors.lines().filter(|line| line.contains("mpi.json"));
    assert_eq!(lines.count(), 1, "{finished:?}");
    assert_eq!(finished.calls("MPI_Allreduce"), (0, 60), "{finished:?}");
}
