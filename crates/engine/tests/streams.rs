//! Long blocking collectives in pieces, also among more ranks than this machine may have cores for.

use engine::Error;
use engine::call::{Call, CallKind};
use engine::group::Group;
use engine::meeting::{Blocks, Edge, Label, Meeting, Pattern};
use engine::node::{EngineKind, JobOptions, Node};
use engine::streams::Given;
use std::sync::Arc;

/// Block lengths: little more than a cell holds, a piece and a rest, and more than a ring of many
/// ranks holds.
const BLOCKS: [usize; 3] = [5000, 33_001, 300_000];

/// Runs on so many ranks, each of which takes itself to have a core.
fn ranks(count: u32, body: impl Fn(&Arc<Group>) -> Result<(), Error> + Sync) {
    let options = JobOptions::new(count, EngineKind::Peers)
        .map(|options| JobOptions { cores: 16, ..options });
    let node = options.and_then(|options| Node::create(&options)).expect("a node");
    let members: Vec<_> = (0..count).map(|rank| node.join(rank).expect("a member")).collect();
    std::thread::scope(|scope| {
        let body = &body;
        let run = |member| scope.spawn(move || body(&Group::world(Arc::new(member))?));
        let threads: Vec<_> = members.into_iter().map(run).collect();
        for thread in threads {
            thread.join().expect("no rank panics").expect("no rank fails");
        }
    });
}

/// What stands at a place of the block from one rank to another.
fn byte(from: u32, to: u32, at: usize) -> u8 {
    (at as u8).wrapping_mul(13) ^ (from as u8) << 4 ^ to as u8
}

fn block(from: u32, to: u32, length: usize) -> impl Iterator<Item = u8> {
    (0..length).map(move |at| byte(from, to, at))
}

fn stream(
    group: &Group,
    pattern: Pattern,
    kind: CallKind,
    bytes: usize,
    input: Given<'_>,
    memory: &mut [u8],
) -> Result<(), Error> {
    let meeting = Meeting::new(pattern, bytes as u64, Call::new(kind, bytes as u64, 0));
    assert!(group.streams(&meeting), "{pattern:?} of {bytes} bytes");
    group.stream(&meeting, input, memory).expect("there is memory for streams")
}

#[test]
fn blocks_reach_whom_they_are_for_among_any_number_of_ranks() {
    for count in [2, 3, 5, 8] {
        ranks(count, |group| {
            let me = group.rank();
            let all = || 0..count;
            for length in BLOCKS {
                let whole = length * count as usize;
                let mine: Vec<u8> = all().flat_map(|to| block(me, to, length)).collect();
                let expected: Vec<u8> = all().flat_map(|from| block(from, me, length)).collect();
                let mut got = vec![0; whole];
                stream(
                    group,
                    Pattern::Exchange,
                    CallKind::Alltoall,
                    whole,
                    Given::Apart(&mine),
                    &mut got,
                )?;
                assert!(got == expected, "exchange, {count} ranks, {length} bytes a block");
                let mut both = mine.clone();
                stream(
                    group,
                    Pattern::Exchange,
                    CallKind::Alltoall,
                    whole,
                    Given::InOutput(0..whole),
                    &mut both,
                )?;
                assert!(both == expected, "in place, {count} ranks, {length} bytes a block");
                for root in all() {
                    let is_root = me == root;
                    let own: Vec<u8> = block(me, root, length).collect();
                    let mut gathered = vec![0; if is_root { whole } else { 0 }];
                    let pattern = Pattern::GatherTo { root };
                    stream(
                        group,
                        pattern,
                        CallKind::Gather,
                        length,
                        Given::Apart(&own),
                        &mut gathered,
                    )?;
                    assert!(
                        !is_root
                            || gathered
                                .iter()
                                .copied()
                                .eq(all().flat_map(|from| block(from, root, length)))
                    );
                    let given: &[u8] = if is_root { &mine } else { &[] };
                    let mut part = vec![0; length];
                    let pattern = Pattern::Scatter { root };
                    stream(
                        group,
                        pattern,
                        CallKind::Scatter,
                        whole,
                        Given::Apart(given),
                        &mut part,
                    )?;
                    assert!(
                        part.iter().copied().eq(block(root, me, length)),
                        "scatter, {count} ranks, root {root}"
                    );
                }
            }
            Ok(())
        });
    }
}

#[test]
fn a_mismatch_in_the_first_stream_leaves_ranks_able_to_agree() {
    ranks(2, |group| {
        let call = Call::new(CallKind::Bcast, 100_000, 0);
        let outcome = if group.rank() == 0 {
            let barrier = Meeting::new(Pattern::Barrier, 0, Call::new(CallKind::Barrier, 0, 0));
            group.meet_and_wait(&barrier, &[], &mut []).map_err(Error::from)
        } else {
            let meeting = Meeting::new(Pattern::Broadcast { root: 0 }, 100_000, call);
            group
                .stream(&meeting, Given::Apart(&[]), &mut vec![0; 100_000])
                .expect("there is memory for streams")
        };
        assert!(matches!(outcome, Err(Error::Mismatch { .. })), "{outcome:?}");
        // Their next streams are those of the same calls again.
        let mut memory = vec![0; 100_000];
        let meeting = Meeting::new(Pattern::Broadcast { root: 0 }, 100_000, call);
        let (given, into): (Vec<u8>, &mut [u8]) =
            if group.rank() == 0 { (vec![5; 100_000], &mut []) } else { (Vec::new(), &mut memory) };
        group.stream(&meeting, Given::Apart(&given), into).expect("there is memory for streams")?;
        assert!(group.rank() == 0 || memory.iter().all(|byte| *byte == 5));
        Ok(())
    });
}

#[test]
fn neighbours_whose_tags_differ_find_out() {
    let outcomes = std::sync::Mutex::new(Vec::new());
    ranks(2, |group| {
        let (me, other) = (group.rank(), 1 - group.rank());
        // Both send with tag 1; rank 1 expects tag 2.
        let labels = Some(Arc::from([Label::new(other, 1)]));
        let sources = Arc::from([Some(Edge { rank: other, tag: 1 + me, number: 0 })]);
        let blocks = Blocks::between_neighbors([50_000], [50_000], sources, labels);
        let call = Call::new(CallKind::NeighborAlltoall, 50_000, 0);
        let meeting =
            Meeting { blocks: Some(Arc::new(blocks)), ..Meeting::new(Pattern::Neighbors, 0, call) };
        assert!(group.streams(&meeting));
        let outcome = group.stream(&meeting, Given::Apart(&[1; 50_000]), &mut vec![0; 50_000]);
        outcomes
            .lock()
            .expect("no rank panics")
            .push((me, outcome.expect("there is memory for streams")));
        Ok(())
    });
    let outcomes = outcomes.into_inner().expect("no rank panics");
    let (_, of_rank_1) = outcomes.iter().find(|(rank, _)| *rank == 1).expect("it has come back");
    assert!(matches!(of_rank_1, Err(Error::NoEdge { from: 0, to: 1, .. })), "{of_rank_1:?}");
}
