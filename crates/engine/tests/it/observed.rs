//! A job that an observer reads while its ranks wait, and memory that is no job.

use engine::Error;
use engine::communicator::Communicator;
use engine::flat::{FlatCollective, Pattern};
use engine::node::observed::{JobObserver, ObservedCollective, ObservedJob};
use engine::node::{EngineKind, JobOptions, Node};
use engine::signature::{CallKind, Signature};
use shm::segment::{Offset, Segment, SegmentReader};
use shm::sync::{AtomicU64, Ordering};
use std::sync::Arc;

fn barrier() -> FlatCollective {
    FlatCollective::new(Pattern::Barrier, 0, Signature::new(CallKind::Barrier, 0, 0))
}

fn options(ranks: u32) -> JobOptions {
    JobOptions { arena_bytes: 1 << 20, ..JobOptions::new(ranks, EngineKind::Peers) }
}

fn reader(segment: &Segment) -> SegmentReader {
    let file = segment.for_reading().expect("/proc is mounted");
    SegmentReader::from_fd(file).expect("it has a size")
}

/// Observes until the condition holds.
fn observe_until(observer: &JobObserver, is_met: impl Fn(&ObservedJob) -> bool) -> ObservedJob {
    loop {
        let job = observer.observe();
        if is_met(&job) {
            return job;
        }
        std::thread::yield_now();
    }
}

fn kind_of(collective: &ObservedCollective) -> Option<CallKind> {
    collective.call.map(|call| call.kind)
}

#[test]
fn collectives_and_the_ranks_that_they_miss_are_observed() -> Result<(), Error> {
    let node = Node::create(&options(3))?;
    let observer = JobObserver::open(reader(node.segment()))?;
    assert_eq!((observer.engine(), observer.observe().ranks.len()), (EngineKind::Peers, 3));
    assert!(observer.observe().ranks.iter().all(|rank| !rank.has_joined && rank.process == 0));
    let members = [node.join(0)?, node.join(1)?, node.join(2)?];
    // Threads as ranks publish no waits; tests of the command observe those of processes.
    let worlds = members.map(|member| Communicator::world(Arc::new(member)));
    let [first, second, third] = worlds;
    let (first, second, third) = (first?, second?, third?);
    let job = observer.observe();
    assert!(job.collectives.is_empty());
    assert_eq!(job.ranks[0].process, std::process::id());

    let run = |world: &Arc<Communicator>| world.run_flat(&barrier(), &[], &mut []);
    std::thread::scope(|scope| -> Result<(), Error> {
        let waiting = scope.spawn(|| run(&first));
        let job = observe_until(&observer, |job| !job.collectives.is_empty());
        let [collective] = &job.collectives[..] else { panic!("{job:?}") };
        assert_eq!((&collective.started[..], &collective.missing[..]), (&[0][..], &[1, 2][..]));
        assert_eq!(kind_of(collective), Some(CallKind::Barrier));
        assert!(collective.is_world);
        let others = [scope.spawn(|| run(&second)), scope.spawn(|| run(&third))];
        for rank in [waiting].into_iter().chain(others) {
            rank.join().expect("no panic")?;
        }
        Ok(())
    })?;
    let job = observer.observe();
    assert!(job.collectives.is_empty() && job.ranks.iter().all(|rank| rank.waits.is_empty()));
    assert!(job.ranks.iter().all(|rank| rank.has_joined && rank.exit.is_none()));
    drop(third);
    assert!(observer.observe().ranks[2].exit.is_some());
    Ok(())
}

#[test]
fn other_memory_is_no_job() {
    let segment = Segment::create(1 << 20, shm::segment::Backing::Memory).expect("memory");
    assert!(matches!(JobObserver::open(reader(&segment)), Err(Error::NotAJob)));
    let node = Node::create(&options(2)).expect("memory");
    let words: &[AtomicU64] = node.segment().slice_at(Offset(0), 8).expect("in the segment");
    for word in &words[..2] {
        let valid = word.swap(7, Ordering::Relaxed);
        assert!(matches!(JobObserver::open(reader(node.segment())), Err(Error::NotAJob)));
        word.store(valid, Ordering::Relaxed);
    }
    assert!(JobObserver::open(reader(node.segment())).is_ok());
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Whatever the ranks write behind the header, the observer neither panics nor allocates more
    /// than the job's size suggests.
    #[test]
    fn any_words_are_observed(
        seed: u64,
        small: bool,
        ranks in proptest::sample::select(vec![1_u32, 3, 64, 600]),
    ) {
        let node = Node::create(&options(ranks)).expect("memory");
        let observer = JobObserver::open(reader(node.segment())).expect("a job");
        let words: &[AtomicU64] =
            node.segment().slice_at(Offset(4096), 65536).expect("in the segment");
        let mut state = seed | 1;
        for word in words {
            // Xorshift (Marsaglia 2003).
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.store(if small { state % 9 } else { state }, Ordering::Relaxed);
        }
        let job = observer.observe();
        assert_eq!(job.ranks.len(), ranks as usize);
        assert!(job.collectives.len() <= 64 * (8 + 4 * ranks as usize));
        for rank in 0..ranks {
            assert!(observer.queues(rank).len() <= 128);
        }
    }
}
