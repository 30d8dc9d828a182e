//! Programs in C with every MPI library: with the preload library they do the same as without, and
//! their calls run on tradewind.

use crate::harness::{Host, families};
use testing::mpi::Family;

testing::tests![needs(Mpich):
    starts_wait_for_memory,
    persistent_collectives_without_memory_are_left,
    the_standard_abi_precedes_symbols_of_others,
    a_library_may_be_loaded_after_the_first_call,
];
testing::tests![needs(MpichFortran): fortran_of_two_kinds];
testing::tests![needs(Mpich, OpenMpi):
    exceptions_pass_through,
    tools_see_every_call,
    ignored_arguments_of_large_forms_are_not_read,
];
families! {
    completion:
        mpich_completes_mixed_requests,
        open_mpi_completes_mixed_requests,
        intel_mpi_completes_mixed_requests;
    collectives:
        mpich_has_every_collective, open_mpi_has_every_collective, intel_mpi_has_every_collective;
    communicators:
        mpich_creates_communicators,
        open_mpi_creates_communicators,
        intel_mpi_creates_communicators;
    progress:
        mpich_makes_progress, open_mpi_makes_progress, intel_mpi_makes_progress;
    threads:
        mpich_has_threads, open_mpi_has_threads, intel_mpi_has_threads;
    persistent:
        mpich_has_persistent_collectives,
        open_mpi_has_persistent_collectives,
        intel_mpi_has_persistent_collectives;
    outstanding:
        mpich_has_thousands_of_outstanding_collectives,
        open_mpi_has_thousands_of_outstanding_collectives;
    growth:
        mpich_frees_what_ranks_that_lag_have_used, open_mpi_frees_what_ranks_that_lag_have_used;
}

/// Runs a program with all libraries of a family. `taken` are calls that must run on tradewind.
fn run(family: Family, program: &str, ranks: &[u32], taken: &[&str]) {
    for (host, ranks) in Host::with_each(family, ranks) {
        let finished = host.job(program, ranks).preloaded().expect_success();
        for name in taken {
            let (taken, _) = finished.calls(name);
            assert!(taken > 0, "{name} with {host:?}: {finished:?}");
        }
    }
}

fn outstanding(family: Family) {
    for (host, ranks) in Host::with_each(family, &[2, 4]) {
        let finished = host.job("outstanding", ranks).argument("2000").preloaded();
        let (taken, left) = finished.expect_success().calls("MPI_Iallreduce");
        // Four orders, five times.
        assert_eq!((taken, left), (20 * 1000 * u64::from(ranks), 0), "{host:?}");
    }
}

fn completion(family: Family) {
    run(family, "completion", &[2, 3], &["MPI_Ibarrier", "MPI_Iallreduce"]);
}

fn collectives(family: Family) {
    let taken = [
        "MPI_Ibcast",
        "MPI_Igather",
        "MPI_Igatherv",
        "MPI_Iscatter",
        "MPI_Iscatterv",
        "MPI_Iallgather",
        "MPI_Iallgatherv",
        "MPI_Ialltoall",
        "MPI_Ialltoallv",
        "MPI_Ialltoallw",
        "MPI_Ireduce",
        "MPI_Iallreduce",
        "MPI_Ireduce_scatter",
        "MPI_Ireduce_scatter_block",
        "MPI_Iscan",
        "MPI_Iexscan",
        "MPI_Ineighbor_allgather",
        "MPI_Ineighbor_allgatherv",
        "MPI_Ineighbor_alltoall",
        "MPI_Ineighbor_alltoallv",
        "MPI_Ineighbor_alltoallw",
    ];
    run(family, "collectives", &[2, 3], &taken);
}

fn communicators(family: Family) {
    for (host, ranks) in Host::with_each(family, &[2, 3]) {
        let finished = host.job("communicators", ranks).preloaded().expect_success();
        assert!(finished.calls("MPI_Iallreduce").0 > 0, "{host:?}: {finished:?}");
        // With two ranks the parts of a split are single ranks.
        assert_eq!(finished.calls("MPI_Ibcast").0 > 0, ranks == 3, "{host:?}: {finished:?}");
    }
}

fn progress(family: Family) {
    run(family, "progress", &[2, 3], &["MPI_Iallreduce", "MPI_Ialltoallv"]);
}

/// Rounds of create, use and free, which take seconds: with one library of the family.
fn growth(family: Family) {
    let finished = Host::all(family)[0].job("growth", 3).preloaded().expect_success();
    assert!(finished.calls("MPI_Iallgather").0 > 0, "{finished:?}");
}

fn starts_wait_for_memory() {
    for ranks in [2, 4] {
        let job = Host::all(Family::Mpich)[0].job("memory", ranks);
        let finished = job.variable("TRADEWIND_ARENA_MIB", "3").preloaded().expect_success();
        let (taken, left) = finished.calls("MPI_Iallreduce");
        assert!(taken > 0 && left == 0, "{finished:?}");
    }
}

fn persistent_collectives_without_memory_are_left() {
    let job = Host::all(Family::Mpich)[0].job("many_persistent", 2);
    let finished = job.variable("TRADEWIND_ARENA_MIB", "3").preloaded().expect_success();
    let (taken, left) = finished.calls("MPI_Allreduce_init");
    assert!(taken > 0 && left > 0 && taken + left == 400, "{finished:?}");
    assert!(finished.errors.contains(&format!("({} starts)", 3 * taken)), "{finished:?}");
    assert!(finished.errors.contains(&format!("memory {left}")), "{finished:?}");
}

/// Collectives that move data, without the prefix of their forms.
pub(crate) const COLLECTIVES: [&str; 21] = [
    "Bcast",
    "Gather",
    "Gatherv",
    "Scatter",
    "Scatterv",
    "Allgather",
    "Allgatherv",
    "Alltoall",
    "Alltoallv",
    "Alltoallw",
    "Reduce",
    "Allreduce",
    "Reduce_scatter",
    "Reduce_scatter_block",
    "Scan",
    "Exscan",
    "Neighbor_allgather",
    "Neighbor_allgatherv",
    "Neighbor_alltoall",
    "Neighbor_alltoallv",
    "Neighbor_alltoallw",
];

fn threads(family: Family) {
    // With a core for each rank, and with fewer.
    for (host, ranks) in Host::with_each(family, &[2, 4]) {
        let finished = host.job("threads", ranks).preloaded().expect_success();
        let calls = finished.calls("MPI_Iallreduce");
        let has_threads = !finished.output.contains("no threads");
        let taken = if has_threads { 3 * 200 * u64::from(ranks) } else { 0 };
        assert_eq!(calls, (taken, 0), "{finished:?}");
    }
}

fn persistent(family: Family) {
    for (host, ranks) in Host::with_each(family, &[2, 3]) {
        let every = host.job("persistent_collectives", ranks).preloaded().expect_success();
        let job = host.job("persistent", ranks);
        // An alltoall is left to the MPI library, also where both are started together.
        let only = "allreduce_init,barrier_init,bcast_init,iallreduce";
        let life = job.variable("TRADEWIND_MPI_ONLY", only).preloaded().expect_success();
        // Libraries before MPI 4 have none.
        if life.output.contains("no persistent collectives") {
            continue;
        }
        for name in COLLECTIVES {
            let (taken, _) = every.calls(&format!("MPI_{name}_init"));
            assert!(taken > 0, "{name} with {host:?}: {every:?}");
        }
        let starts = u64::from(ranks) * (200 + 42 + 5 + 10 * 60 + 10 + 5 + 1);
        let initializations = u64::from(ranks) * (3 + 60 + 100 + 2);
        assert_eq!(life.calls("MPI_Allreduce_init"), (initializations, 0), "{host:?}: {life:?}");
        assert!(life.errors.contains(&format!("({starts} starts)")), "{host:?}: {life:?}");
        assert_eq!(life.calls("MPI_Alltoall_init"), (0, u64::from(ranks)), "{life:?}");
    }
}

fn fortran_of_two_kinds() {
    let host = Host::with_fortran().expect("the need is fulfilled");
    for program in ["older", "modern"] {
        let finished = host.job(program, 2).preloaded().expect_success();
        assert_eq!(finished.calls("MPI_Iallreduce"), (4, 0), "{finished:?}");
        assert_eq!(finished.calls("MPI_Allreduce"), (0, 2), "{finished:?}");
        let job = host.job(program, 2).variable("TRADEWIND_MPI_ONLY", "all");
        let finished = job.preloaded().expect_success();
        assert_eq!(finished.calls("MPI_Iallreduce"), (4, 0), "{finished:?}");
        assert_eq!(finished.calls("MPI_Allreduce"), (2, 0), "{finished:?}");
        assert_eq!(finished.calls("MPI_Barrier"), (2, 0), "{finished:?}");
    }
}

/// A tool that is loaded before the library sees the calls of the program, and they run here.
fn tools_see_every_call() {
    for host in [Family::Mpich, Family::OpenMpi].into_iter().flat_map(Host::all) {
        let job = host.job("blocking", 2).variable("TRADEWIND_MPI_ONLY", "allreduce,iallreduce");
        let finished = job.preloaded_behind(&host.tool("tool")).expect_success();
        assert_eq!(finished.output, "30 starts, 30 waits, 30 blocking\n".repeat(2), "{finished:?}");
        assert_eq!(finished.calls("MPI_Iallreduce"), (60, 0), "{finished:?}");
        assert_eq!(finished.calls("MPI_Allreduce"), (60, 0), "{finished:?}");
    }
}

/// With all calls here, and with all of them left to the MPI library.
fn ignored_arguments_of_large_forms_are_not_read() {
    let of = |family| Host::with_each(family, &["all", "ibarrier"]);
    for (host, only) in [Family::Mpich, Family::OpenMpi].into_iter().flat_map(of) {
        let job = host.job("large_in_place", 3).variable("TRADEWIND_MPI_ONLY", only);
        let finished = job.preloaded().expect_success();
        let expected = if only == "all" { (3, 0) } else { (0, 3) };
        assert_eq!(finished.calls("MPI_Iallgatherv"), expected, "{host:?}: {finished:?}");
    }
}

fn the_standard_abi_precedes_symbols_of_others() {
    for host in Host::all(Family::Mpich).into_iter().filter(|host| host.has_standard_abi()) {
        let finished = host.job("report", 3).preloaded_behind(&host.tool("both_abis"));
        let finished = finished.expect_success();
        assert_eq!(finished.calls("MPI_Ibarrier"), (3, 0), "{finished:?}");
    }
}

fn a_library_may_be_loaded_after_the_first_call() {
    let host = Host::all(Family::Mpich)[0];
    let job = host.job_without_library("late", 2).argument("libmpi.so.12");
    let finished = job.argument("libmpich.so.12").preloaded().expect_success();
    assert_eq!(finished.calls("MPI_Ibarrier"), (2, 0), "{finished:?}");
}

fn exceptions_pass_through() {
    for family in [Family::Mpich, Family::OpenMpi] {
        for host in Host::all(family) {
            let finished = host.job("exceptions", 2).preloaded().expect_success();
            assert_eq!(finished.calls("MPI_Iallreduce"), (22, 0), "{finished:?}");
        }
    }
}
