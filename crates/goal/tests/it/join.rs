//! Mismatched contributions and divisions by zero in joins. The conformance suite tests the results
//! of joins.

use goal::arithmetic::{Arithmetic, ArithmeticError, DataType};
use goal::graph::JoinMode;
use goal::join::{JoinError, JoinResult, combine};

const DIVIDE: JoinMode =
    JoinMode::Reduce { operation: Arithmetic::Divide, data_type: DataType::U8 };

#[test]
fn the_first_element_divided_by_zero_is_reported() {
    let contributions: [&[u8]; 3] = [&[9, 9, 9, 9], &[1, 1, 1, 0], &[1, 0, 3, 0]];
    let expected = JoinResult { bytes: vec![9, 0, 3, 0], divided_by_zero: Some(1) };
    assert_eq!(combine(DIVIDE, 2, &contributions), Ok(expected));
}

#[test]
fn mismatched_contributions_are_refused() {
    let length = |rank, expected, found| Err(JoinError::Length { rank, expected, found });
    assert_eq!(combine(DIVIDE, 0, &[&[1, 2], &[3]]), length(1, 2, 1));
    assert_eq!(combine(JoinMode::Gather, 1, &[&[1, 2], &[3]]), length(0, 1, 2));
    assert_eq!(combine(JoinMode::Exchange, 1, &[&[1, 2, 3], &[4, 5, 6]]), length(1, 2, 3));
    let absent = |rank| Err(JoinError::Absent { rank, ranks: 2 });
    assert_eq!(combine(JoinMode::Gather, 2, &[&[1], &[2]]), absent(2));
    assert_eq!(combine(JoinMode::Broadcast { root: 3 }, 0, &[&[1], &[2]]), absent(3));
    let broken = JoinMode::Reduce { operation: Arithmetic::Add, data_type: DataType::U16 };
    let not_whole = ArithmeticError::NotWholeElements { bytes: 3, data_type: DataType::U16 };
    assert_eq!(
        combine(broken, 0, &[&[1, 2, 3], &[4, 5, 6]]),
        Err(JoinError::Arithmetic(not_whole))
    );
}

#[test]
fn a_broadcast_uses_the_root_only() {
    let mode = JoinMode::Broadcast { root: 1 };
    for rank in 0..3 {
        let joined =
            combine(mode, rank, &[&[], &[7, 8], &[1, 2, 3]]).expect("the root contributes");
        assert_eq!(joined, JoinResult { bytes: vec![7, 8], divided_by_zero: None });
    }
}
