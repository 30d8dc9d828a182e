//! The experiment from end to end on threads; never how long anything takes.

use measure::experiments::overlap::{Case, Collective, Experiment, OverlapRow, Progress, Setting};
use measure::harness::processor_time::RankKind;
use measure::{Error, experiments::overlap};
use std::sync::{Mutex, PoisonError};
use tradewind::EngineKind;

testing::tests![
    every_collective_is_measured_with_every_engine,
    peers_are_found_to_finish_unattended,
    algorithms_are_named_as_they_are_used,
    a_case_that_cannot_be_is_refused_before_anything_is_measured,
];

/// The rows that all ranks get.
fn measure(ranks: u32, cores: u32, engine: EngineKind, cases: &[Case]) -> Vec<OverlapRow> {
    let _cores = crate::cores();
    let rows = Mutex::new(Vec::new());
    let outcome = tradewind::local_with(ranks, engine, |world| {
        let setting = Setting {
            progress: Progress::OnNode(engine),
            rank_kind: RankKind::Thread,
            cores,
            service: Some(std::process::id()).filter(|_| world.rank() == 0),
            adds_interrupts: world.rank() == 0,
            has_common_clock: true,
            seed: 3,
        };
        let experiment = Experiment::new(&world, setting).expect("the ranks agree on a rate");
        for case in cases {
            let mut announced = Vec::new();
            let row = experiment
                .measure(case, |plan| announced.push(*plan))
                .expect("the case can be measured");
            assert_eq!(announced.len(), 1, "a plan is announced once");
            assert_eq!(announced[0].repetitions, row.repetitions);
            rows.lock().unwrap_or_else(PoisonError::into_inner).push(row);
        }
        Ok(())
    });
    outcome.expect("a job of threads");
    let all = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(all.len(), cases.len() * ranks as usize);
    all
}

fn assert_meaningful(row: &OverlapRow, ranks: u32, engine: EngineKind, case: &Case) {
    assert_eq!(
        (row.op, row.bytes, row.ranks, row.engine.name()),
        (case.collective, case.bytes, ranks, engine.name())
    );
    assert_eq!(Some(row.repetitions), case.repetitions);
    assert!(row.alone_us > 0.0 && row.compute_us > 0.0 && row.total_us > 0.0, "{row:?}");
    assert!(row.p10_us <= row.exposed_us && row.exposed_us <= row.p90_us, "{row:?}");
    assert!(
        (0.0..=100.0).contains(&row.overlap) && (0.0..=1.0).contains(&row.unattended),
        "{row:?}"
    );
    assert!(row.stolen_us.is_finite() && !row.algorithm.is_empty(), "{row:?}");
}

fn every_collective_is_measured_with_every_engine() {
    let case = |collective, bytes| Case {
        repetitions: Some(3),
        computation_us: Some(30.0),
        ..Case::new(collective, bytes)
    };
    let with_data = Collective::ALL.into_iter().filter(|collective| collective.has_data());
    let mut cases: Vec<Case> =
        with_data.flat_map(|collective| [case(collective, 8), case(collective, 4096)]).collect();
    cases.push(case(Collective::Barrier, 0));
    for (ranks, cores) in [(1, 1), (2, 2), (4, 2), (5, 1)] {
        for engine in [EngineKind::Caller, EngineKind::Peers] {
            let rows = measure(ranks, cores, engine, &cases);
            for case in &cases {
                let of_case: Vec<&OverlapRow> = rows
                    .iter()
                    .filter(|row| (row.op, row.bytes) == (case.collective, case.bytes))
                    .collect();
                assert!(of_case.iter().all(|row| *row == of_case[0]), "all ranks see the same row");
                assert_meaningful(of_case[0], ranks, engine, case);
            }
        }
    }
}

fn peers_are_found_to_finish_unattended() {
    // No timing: only looks after all ranks have started count, and by then the last starter has
    // finished it for all.
    let case = |collective: Collective| Case {
        repetitions: Some(20),
        computation_us: Some(50.0),
        ..Case::new(collective, if collective.has_data() { 64 } else { 0 })
    };
    let cases: Vec<Case> = Collective::ALL.into_iter().map(case).collect();
    for row in measure(4, 2, EngineKind::Peers, &cases) {
        assert_eq!(row.unattended, 1.0, "{row:?}");
    }
}

fn algorithms_are_named_as_they_are_used() {
    let case = |collective: Collective, bytes| Case {
        repetitions: Some(1),
        ..Case::new(collective, bytes)
    };
    let cases = [
        case(Collective::Barrier, 0),
        case(Collective::Alltoall, 8),
        case(Collective::Alltoall, 1024),
    ];
    let names = |engine| {
        let rows = measure(1, 1, engine, &cases);
        rows.iter().map(|row| row.algorithm.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(EngineKind::Peers), ["join", "join", "join"]);
    assert_eq!(names(EngineKind::Caller)[0], "dissemination");
    assert_ne!(
        names(EngineKind::Caller)[1],
        names(EngineKind::Caller)[2],
        "few rounds, then few bytes"
    );
}

fn a_case_that_cannot_be_is_refused_before_anything_is_measured() {
    let outcome = tradewind::local(1, |world| {
        let setting = Setting {
            progress: Progress::OnNode(EngineKind::Peers),
            rank_kind: RankKind::Thread,
            cores: 1,
            service: None,
            adds_interrupts: true,
            has_common_clock: true,
            seed: 0,
        };
        let experiment = Experiment::new(&world, setting).expect("one rank agrees with itself");
        let usual = Case::new(Collective::Allreduce, 8);
        for case in [
            Case { bytes: 9, ..usual },
            Case { bytes: overlap::MOST_BYTES + 8, ..usual },
            Case { repetitions: Some(0), ..usual },
            Case { computation_us: Some(0.0), ..usual },
            Case { collective: Collective::Barrier, ..usual },
        ] {
            let error =
                experiment.measure(&case, |_| panic!("{case:?} has no plan")).expect_err("refused");
            assert!(matches!(error, Error::Bytes { .. } | Error::Argument { .. }), "{error}");
        }
        Ok(())
    });
    outcome.expect("a job of one rank");
}
