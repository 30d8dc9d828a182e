//! The experiment from end to end on threads; never how long anything takes.

use measure::Error;
use measure::experiments::overlap::{self, Case, Collective, OverlapRow, Progress};
use measure::harness::{JobShape, RowsOrigin, StepContext};
use std::sync::{Mutex, PoisonError};
use tradewind::{Communicator, EngineKind};

testing::tests![
    every_collective_is_measured_with_every_engine,
    peers_are_found_to_finish_unattended,
    algorithms_are_named_as_they_are_used,
    a_case_that_cannot_be_is_refused_before_anything_is_measured,
];

/// A case on one rank of a job of threads that share so many cores.
fn measure_case(
    world: &Communicator,
    cores: u32,
    engine: EngineKind,
    case: &Case,
) -> Result<Vec<OverlapRow>, Error> {
    let ranks = world.size();
    let shape = JobShape { ranks, engine, cores: Vec::new(), shared_cores: cores, nodes: None };
    let origin = RowsOrigin { experiment: "overlap".to_owned(), link: None };
    let here =
        StepContext { world, shape: &shape, service: None, directory: None, origin: &origin };
    let progress = match engine {
        EngineKind::Caller => Progress::Caller,
        EngineKind::Peers => Progress::Peers,
    };
    let rows = overlap::measure(&here, progress, case, 3)?;
    assert!(rows.iter().all(|row| row.check().is_ok() && row.ranks == ranks), "{rows:?}");
    Ok(OverlapRow::all(&rows).into_iter().map(|(row, _)| row).collect())
}

/// The rows that all ranks get.
fn measure(ranks: u32, cores: u32, engine: EngineKind, cases: &[Case]) -> Vec<OverlapRow> {
    let _cores = crate::cores();
    let rows = Mutex::new(Vec::new());
    let outcome = tradewind::local_with(ranks, engine, |world| {
        for case in cases {
            let row = measure_case(&world, cores, engine, case);
            let row = row.expect("the case can be measured").remove(0);
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
    let with_data = Collective::ALL.iter().copied().filter(|collective| collective.has_data());
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
    let cases: Vec<Case> = Collective::ALL.iter().copied().map(case).collect();
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
        let usual = Case::new(Collective::Allreduce, 8);
        for case in [
            Case { bytes: 9, ..usual },
            Case { bytes: overlap::MOST_BYTES + 8, ..usual },
            Case { repetitions: Some(0), ..usual },
            Case { computation_us: Some(0.0), ..usual },
            Case { collective: Collective::Barrier, ..usual },
        ] {
            let refused = measure_case(&world, 1, EngineKind::Peers, &case);
            let error = refused.expect_err("refused");
            assert!(matches!(error, Error::Bytes { .. } | Error::Argument { .. }), "{error}");
        }
        Ok(())
    });
    outcome.expect("a job of one rank");
}
