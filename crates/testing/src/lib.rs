//! Test support for the crates of this workspace.
//!
//! * A runner for integration tests ([`run`], [`tests!`], [`parts!`]): tests that need an absent
//!   tool or right count as ignored, with the reason and the command that installs it.
//! * [`conformance`]: one suite for every engine.
//! * [`fabric`]: the libfabric libraries of this machine, and an emulation of adapters.
//! * [`mechanism`]: one suite for every mechanism that carries messages.
//! * [`mpi`]: the MPI libraries of this machine.
//! * [`mutate`]: damage of bytes and of shared memory.
//! * [`relay`]: nodes joined by a switch that loses, duplicates, reorders and damages frames.
//! * [`traffic`]: messages that check the network between virtual nodes.
//!
//! # Integration tests
//!
//! A crate has one integration-test binary, `tests/it/main.rs`, without libtest:
//!
//! ```toml
//! [[test]]
//! name = "it"
//! harness = false
//!
//! [dev-dependencies]
//! testing.workspace = true
//! ```
//!
//! ```no_run
//! mod jobs {
//!     testing::tests![sizes_are_checked];
//!     testing::tests![needs(Nodes, Mpiexec): a_killed_rank_is_named];
//!     testing::tests![slow("minutes: 10^8 messages"): a_long_run];
//!     testing::parts![child];
//!
//!     fn sizes_are_checked() {}
//!     fn a_killed_rank_is_named() {
//!         let child = testing::part("jobs::child").spawn();
//!     }
//!     fn a_long_run() {}
//!     fn child() {}
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     testing::run()
//! }
//! ```
//!
//! Tests are plain functions, without `#[test]`; so are functions in `proptest!`. A function that
//! is not registered is a dead-code warning. The command line is libtest's: a filter, `--exact`,
//! `--skip`, `--list`, `--nocapture`, `--test-threads`, `--ignored`, `--include-ignored`. Names are
//! module paths without the name of the binary. Each test runs on a thread of its own, so changes
//! to a thread's affinity or rights end with the test.
//!
//! Output is not captured. The message of a panic appears in the list of failures; without
//! `--nocapture`, a panic that a test catches prints nothing.

pub mod conformance;
mod entry;
pub mod fabric;
mod forbidden;
pub mod mechanism;
pub mod mpi;
pub mod mutate;
mod need;
mod part;
pub mod relay;
mod runner;
pub mod traffic;

pub use forbidden::{forbid, forbid_process_memory};
pub use need::{Need, allocators, python};
pub use part::{part, part_by};
pub use runner::{run, run_in_processes, run_on_threads};

#[doc(hidden)]
pub mod registry {
    //! Contents of the macros.
    pub use crate::entry::Part;
    pub use crate::entry::Test;
    pub use inventory;
}

/// Registers functions as tests.
///
/// * `tests![a, b]`: tests that run everywhere.
/// * `tests![needs(Nodes, Clang): a, b]`: tests that need tools or rights ([`Need`]). Where one is
///   missing, they are ignored; with `TRADEWIND_REQUIRE_TOOLS=1` they fail.
/// * `tests![slow("minutes"): a]`: tests that run only with `--ignored` or `--include-ignored`.
///
/// `slow` and `needs` can be combined, in this order: `tests![slow("minutes") needs(Nodes): a]`.
#[macro_export]
macro_rules! tests {
    ($(slow($slow:literal))? $(needs($($need:ident),+ $(,)?))? : $($test:ident),+ $(,)?) => {
        $crate::tests!(@each [$($slow)?] [$($($need)+)?] $($test)+);
    };
    (@each $slow:tt $needs:tt $($test:ident)+) => {
        $($crate::tests!(@one $slow $needs $test);)+
    };
    (@one [$($slow:literal)?] [$($need:ident)*] $test:ident) => {
        $crate::registry::inventory::submit! {
            $crate::registry::Test {
                path: concat!(module_path!(), "::", stringify!($test)),
                run: $test,
                needs: &[$($crate::Need::$need),*],
                slow: &[$($slow)?],
            }
        }
    };
    ($($test:ident),+ $(,)?) => {
        $crate::tests!(@each [] [] $($test)+);
    };
}

/// Registers functions that tests run as processes of their own, see [`part`].
#[macro_export]
macro_rules! parts {
    ($($part:ident),+ $(,)?) => {
        $($crate::registry::inventory::submit! {
            $crate::registry::Part {
                path: concat!(module_path!(), "::", stringify!($part)),
                run: $part,
            }
        })+
    };
}
