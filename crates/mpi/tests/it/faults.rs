//! Programs that err, and systems that refuse what tradewind needs: no job hangs, and a correct
//! program does the same as without the library.

use crate::harness::{Finished, Host, families};
use testing::mpi::Family;

families! {
    mismatches:
        mpich_ends_after_mismatches,
        open_mpi_ends_after_mismatches,
        intel_mpi_ends_after_mismatches;
    wrong_arguments:
        mpich_reports_wrong_arguments,
        open_mpi_reports_wrong_arguments,
        intel_mpi_reports_wrong_arguments;
    failures_in_arrays:
        mpich_reports_failures_in_arrays,
        open_mpi_reports_failures_in_arrays,
        intel_mpi_reports_failures_in_arrays;
    functions_at_the_end:
        mpich_calls_functions_at_the_end,
        open_mpi_calls_functions_at_the_end,
        intel_mpi_calls_functions_at_the_end;
    active_collectives:
        mpich_ends_with_active_collectives,
        open_mpi_ends_with_active_collectives,
        intel_mpi_ends_with_active_collectives;
    refused_system_calls:
        refused_system_calls_change_no_result_of_mpich,
        refused_system_calls_change_no_result_of_open_mpi,
        refused_system_calls_change_no_result_of_intel_mpi;
}

/// Lines that a program has printed, which arrive in any order.
fn lines(finished: &Finished) -> Vec<&str> {
    let mut lines: Vec<&str> = finished.output.lines().collect();
    lines.sort_unstable();
    lines
}

/// Returns whether a library returns errors to programs that ask for it. In the standard ABI of Intel
/// MPI 2021.18 an error ends the job, whatever the error handler is.
fn returns_errors(host: Host, family: Family) -> bool {
    family != Family::Intel || !host.has_standard_abi()
}

fn that_return_errors(family: Family) -> impl Iterator<Item = Host> {
    Host::all(family).into_iter().filter(move |host| returns_errors(*host, family))
}

/// Every rank goes on after an error or a result.
fn mismatches(family: Family) {
    for host in that_return_errors(family) {
        let finished = host.job("mismatches", 3).preloaded().expect_success();
        assert_eq!(lines(&finished).len(), 9, "{finished:?}");
        let names_both = "2 of 3 ranks are in bcast #1, rank 0 is in barrier #1";
        assert!(finished.errors.contains(names_both), "{finished:?}");
    }
}

fn wrong_arguments(family: Family) {
    for host in that_return_errors(family) {
        let plain = host.job("invalid", 2).plain().expect_success();
        let preloaded = host.job("invalid", 2).preloaded().expect_success();
        assert_eq!(lines(&preloaded), lines(&plain), "{host:?}: {preloaded:?}");
        assert!(preloaded.calls("MPI_Iallreduce").0 >= 20, "{preloaded:?}");
    }
}

fn failures_in_arrays(family: Family) {
    for host in that_return_errors(family) {
        let finished = host.job("failures", 3).preloaded().expect_success();
        assert_eq!(finished.calls("MPI_Iallreduce"), (18, 0), "{host:?}: {finished:?}");
    }
}

fn functions_at_the_end(family: Family) {
    let taken = |finished: &Finished| finished.calls("MPI_Iallreduce").0;
    for host in Host::all(family) {
        let job = || host.job("callbacks", 2);
        let without = job().preloaded().expect_success();
        assert_eq!(lines(&without), ["rank 0 called", "rank 1 called"], "{without:?}");
        assert!(taken(&without) > 0, "{without:?}");
        // Collectives that the error handler of a call starts that is left are decided like all others.
        if returns_errors(host, family) {
            let with = job().argument("handler").preloaded().expect_success();
            assert_eq!(taken(&with), taken(&without) + 2, "{with:?}");
        }
    }
}

/// MPI forbids what the program does; the job must end, with any status.
fn active_collectives(family: Family) {
    for (host, form) in Host::with_each(family, &["all", "one", "free", "exit", "exits"]) {
        let finished = host.job("abandoned", 2).argument(form).preloaded();
        assert!(finished.in_time, "{form} with {host:?}: {finished:?}");
    }
}

/// A correct program has its results with each of these system calls refused, on tradewind or in the
/// MPI library.
fn refused_system_calls(family: Family) {
    let sets: [&'static [libc::c_long]; 5] = [
        &[libc::SYS_process_vm_readv, libc::SYS_process_vm_writev],
        &[libc::SYS_ptrace, libc::SYS_pidfd_getfd],
        &[libc::SYS_pidfd_open],
        &[libc::SYS_membarrier],
        &[libc::SYS_memfd_create],
    ];
    // What is refused matters to tradewind, which has the same threads in every library.
    let program = if family == Family::Mpich { "threads" } else { "settings" };
    for calls in sets {
        // The filter ends with the thread; the job inherits it.
        let job = std::thread::spawn(move || {
            testing::forbid(calls);
            Host::all(family)[0].job(program, 2).preloaded()
        });
        let finished = job.join().expect("the job runs").expect_success();
        let is_left = finished.errors.contains("nothing runs on tradewind");
        let is_taken = finished.calls("MPI_Iallreduce").0 > 0;
        assert!(is_taken != is_left, "{calls:?}: {finished:?}");
    }
}
