//! Jobs of real processes on several hosts, which are network namespaces, started by hydra, MPICH's `mpiexec`.

mod harness;
mod rank;

use harness::{Hydra, Said};
use testbed::{Options, Testbed};

/// Two hosts; none where the machine lacks what it takes, which is said.
macro_rules! hosts {
    ($count:expr) => {{
        if !harness::has_hydra() {
            return testbed::say_skipped(&"mpiexec.hydra is not in PATH: install mpich");
        }
        testbed::or_skip!(Testbed::new($count, Options::default()))
    }};
}

#[test]
fn ranks_on_several_hosts_find_each_other_by_both_versions_of_pmi() {
    let testbed = hosts!(2);
    for version in ["1", "2"] {
        let said = Hydra::new(&testbed, &[2, 2]).variable("TRADEWIND_PMI", version).program("collectives").run();
        let expected: Vec<Said> =
            (0..4).map(|rank| Said::new(rank, "4 ranks on 2 hosts, 2 here, all is right")).collect();
        assert_eq!(said, expected, "PMI-{version}");
    }
}

#[test]
fn hosts_may_be_many_and_have_different_numbers_of_ranks() {
    let testbed = hosts!(4);
    let said = Hydra::new(&testbed, &[1, 3, 1, 2]).program("collectives").run();
    assert_eq!(said.len(), 7, "{said:?}");
    for Said { rank, words } in said {
        let here = [1, 3, 3, 3, 1, 2, 2][rank as usize];
        assert_eq!(words, format!("7 ranks on 4 hosts, {here} here, all is right"));
    }
}

#[test]
fn ranks_whose_launcher_knows_several_names_of_one_host_are_on_one_host() {
    let testbed = hosts!(1);
    let said = Hydra::new(&testbed, &[1, 1]).all_on_one().program("collectives").run();
    let expected: Vec<Said> = (0..2).map(|rank| Said::new(rank, "2 ranks on 1 hosts, 2 here, all is right")).collect();
    assert_eq!(said, expected);
}

#[test]
fn a_rank_that_is_killed_is_named_on_every_host() {
    let testbed = hosts!(2);
    let said = Hydra::new(&testbed, &[2, 2]).option("-disable-auto-cleanup").program("rank-2-dies").run();
    let expected: Vec<Said> = [0, 1, 3].map(|rank| Said::new(rank, "rank 2 failed")).to_vec();
    assert_eq!(said, expected);
}

#[test]
fn a_host_that_vanishes_is_named() {
    let testbed = hosts!(2);
    let mut job = Hydra::new(&testbed, &[2, 1]).option("-disable-auto-cleanup").program("waits").start();
    job.hear(&[Said::new(0, "goes on"), Said::new(1, "goes on"), Said::new(2, "goes on")]);
    testbed.unplug(1).expect("a cable can be pulled");
    job.hear(&[Said::new(0, "host 1 is unreachable"), Said::new(1, "host 1 is unreachable")]);
}

#[test]
fn without_an_address_the_way_out_is_named() {
    let testbed = hosts!(2);
    let said = Hydra::new(&testbed, &[1, 1]).variable("TRADEWIND_INTERFACE", "ib7").program("joins").run();
    assert!(!said.is_empty());
    for Said { words, .. } in said {
        assert!(words.contains("no address of \"ib7\"") && words.contains("TRADEWIND_INTERFACE"), "{words}");
    }
}
