//! Signatures and keys of all kinds of calls.

use super::*;
use crate::reduction::Op;
use crate::selection::choice::ChoiceReason;
use collectives::Algorithm;
use std::collections::HashSet;

const RANKS: u32 = 4;

/// Calls of every collective by a rank: two lengths, all kinds of blocks, two roots, and
/// built-in and user-defined operations.
fn calls(rank: u32, counts: &Counts) -> Vec<Call<'_>> {
    let mut calls = Vec::new();
    for collective in Collective::ALL.iter().copied() {
        use Collective::{Allgather, Alltoall, Gather, ReduceScatter, Scatter};
        let roots = if collective.has_root() { vec![Some(0), Some(1)] } else { vec![None] };
        for root in roots {
            let all = (root == Some(rank)).then_some(counts);
            let mut blocks = vec![Blocks::Equal(8), Blocks::Equal(1753)];
            match collective {
                Allgather | ReduceScatter => blocks.push(Blocks::Known(counts)),
                Gather | Scatter => {
                    blocks.push(Blocks::Own { bytes: counts.block(rank), all });
                }
                Alltoall => blocks.push(Blocks::OfPairs { sent: counts, received: counts }),
                _ => {}
            }
            for blocks in blocks {
                let form = CallForm::Nonblocking;
                let call = Call::new((rank, RANKS), collective, form, root, blocks);
                if !collective.is_reduction() {
                    calls.push(call);
                    continue;
                }
                let known = [
                    (Op::Sum, DataType::U8),
                    (Op::Sum, DataType::F64),
                    (Op::Maximum, DataType::U8),
                ];
                let known = known.map(|(op, data_type)| BuiltInReduction { op, data_type });
                calls.extend(known.map(|known| call.with_reduction(known)));
                calls.push(call.transport_of_fold());
            }
        }
    }
    calls
}

#[test]
fn ranks_agree_on_signatures_and_no_two_calls_share_a_key() {
    let counts = Counts { bytes: [8, 0, 1753, 8].into_iter().collect(), total: 1769 };
    let of_ranks: Vec<_> = (0..RANKS).map(|rank| calls(rank, &counts)).collect();
    let mut keys = HashSet::new();
    for (number, call) in of_ranks[0].iter().enumerate() {
        for algorithm in call.collective.algorithms().iter().copied() {
            let why = ChoiceReason::Open;
            let choice = SelectedAlgorithm::new(call.form, call.collective, algorithm, why);
            let signature = call.signature(&choice);
            for other in of_ranks.iter().map(|calls| &calls[number]) {
                assert_eq!(other.signature(&choice), signature, "{call:?}, {other:?}");
            }
            // Without the digest, which is too short to tell calls apart.
            let exact = Signature { digest: 0, ..signature };
            let key = choice.link_key(exact, call.arguments(), Vec::new());
            assert!(keys.insert(key), "another call has the key of {call:?} by {algorithm}");
        }
    }
}

#[test]
fn a_user_defined_operation_matches_no_built_in_one() {
    let form = CallForm::Nonblocking;
    let signature = |call: &Call<'_>| {
        let why = ChoiceReason::Open;
        let algorithm = Algorithm::Flat;
        call.signature(&SelectedAlgorithm::new(form, call.collective, algorithm, why))
    };
    let match_at = |bytes: &u64| {
        let blocks = Blocks::Equal(*bytes);
        let call = Call::new((0, RANKS), Collective::Reduce, form, Some(0), blocks);
        let sum = BuiltInReduction { op: Op::Sum, data_type: DataType::U8 };
        signature(&call.with_reduction(sum)) == signature(&call.transport_of_fold())
    };
    // Digests of 15 bits are equal by chance, if rarely.
    let matches = (0..3000).filter(match_at).count();
    assert!(matches <= 3, "{matches} of 3000 lengths match");
}
