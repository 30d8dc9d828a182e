//! The ranks' common decision where a call runs, with arguments and settings that differ between ranks:
//! correct programs have their results, and wrong ones end.

use crate::harness::{Host, families, first_case};
use testing::mpi::Family;

testing::tests![needs(Mpich):
    settings_of_one_rank_change_no_result,
];
families! {
    differences:
        mpich_has_its_results_whatever_differs,
        open_mpi_has_its_results_whatever_differs,
        intel_mpi_has_its_results_whatever_differs;
    divided:
        mpich_ends_divided_calls, open_mpi_ends_divided_calls, intel_mpi_ends_divided_calls;
}

/// What differs between the ranks of a correct program, as `decisions.c` names it, and calls of each
/// case that run on tradewind on all ranks.
const DIFFERENCES: [(&str, &[&str]); 16] = [
    ("chain_with_missing_neighbors", EXCHANGES),
    ("missing_neighbor_of_one_rank", EXCHANGES),
    ("ranks_without_neighbors", EXCHANGES),
    ("doubled_edges_and_edges_to_itself", EXCHANGES),
    ("edges_named_by_one_rank", EXCHANGES),
    ("small_dimensions", EXCHANGES),
    ("lengths_of_pairs", &["MPI_Ineighbor_alltoall", "MPI_Ineighbor_allgather"]),
    ("types_of_one_signature", &["MPI_Ibcast", "MPI_Igather", "MPI_Iallgather", "MPI_Iscatter"]),
    ("in_place_at_the_root", &["MPI_Igather", "MPI_Iscatter", "MPI_Ireduce"]),
    ("lengths_that_only_pairs_have", &["MPI_Ialltoallv", "MPI_Igatherv", "MPI_Iscatterv"]),
    ("operations_of_each_rank", &["MPI_Iallreduce", "MPI_Ireduce_scatter"]),
    ("forms_of_counts", &[]),
    ("ranks_that_are_left_out", &["MPI_Iallreduce"]),
    ("orders_of_starts", &[]),
    ("jump_out_of_the_library", &["MPI_Iallreduce"]),
    ("jump_out_of_a_wait", &["MPI_Iallreduce"]),
];

const EXCHANGES: &[&str] = &[
    "MPI_Ineighbor_alltoall",
    "MPI_Ineighbor_alltoallv",
    "MPI_Ineighbor_alltoallw",
    "MPI_Ineighbor_allgather",
    "MPI_Ineighbor_allgatherv",
];

/// Calls of a wrong argument on one rank, as `divided.c` names them.
const DIVIDED: [&str; 4] = ["start", "root", "type", "neighbors"];

/// Settings that the second rank alone has.
const SETTINGS: [(&str, &str); 9] = [
    ("TRADEWIND_MPI", "off"),
    ("TRADEWIND_MPI_ONLY", "ibarrier"),
    ("TRADEWIND_ENGINE", "caller"),
    ("TRADEWIND_ARENA_MIB", "16"),
    ("TRADEWIND_EAGER_BYTES", "64"),
    ("TRADEWIND_SINGLE_COPY", "0"),
    ("TRADEWIND_DECISIONS", "/no/such/file"),
    ("TRADEWIND_NODE", "another"),
    ("TRADEWIND_INTERNODE", "agent"),
];

/// All cases in one job with each library; odd and even numbers of ranks.
fn differences(family: Family) {
    for (host, ranks) in Host::with_each(family, &[3, 4]) {
        let finished = host.job("decisions", ranks).preloaded().expect_success();
        let names = DIFFERENCES.map(|(name, _)| name);
        assert_eq!(finished.output.lines().collect::<Vec<_>>(), names, "{finished:?}");
        for name in DIFFERENCES.iter().flat_map(|(_, calls)| *calls) {
            let (taken, left) = finished.calls(name);
            // Single ranks leave their calls.
            let leaves_some = ["MPI_Iallreduce", "MPI_Ibcast"].contains(name);
            assert!(taken > 0 && (left == 0 || leaves_some), "{name}, {host:?}: {finished:?}");
        }
    }
}

/// A line names the ranks on both sides. In a library that ends the job at the error there is none.
fn divided(family: Family) {
    for (number, host) in Host::all(family).into_iter().enumerate() {
        for case in &DIVIDED[first_case(family, number, DIVIDED.len())..] {
            let finished = host.job("divided", 3).argument(case).preloaded();
            assert!(finished.in_time, "{case} with {host:?}: {finished:?}");
            assert_ne!(finished.status, Some(0), "{case} with {host:?}: {finished:?}");
            let ends = family == Family::Intel && host.has_standard_abi();
            let is_named = finished.errors.contains("rank 0 is in a collective of another library");
            assert!(ends || is_named, "{case} with {host:?}: {finished:?}");
        }
    }
}

fn settings_of_one_rank_change_no_result() {
    for (name, value) in SETTINGS {
        let job =
            Host::all(Family::Mpich)[0].job("decisions", 3).with_setting_of_rank_1(name, value);
        let cases = ["lengths_of_pairs", "types_of_one_signature"];
        let job = cases.iter().fold(job, |job, case| job.argument(case));
        let finished = job.preloaded().expect_success();
        assert_eq!(finished.output.lines().collect::<Vec<_>>(), cases, "{name}: {finished:?}");
    }
}
