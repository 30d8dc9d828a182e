//! Requests of messages and collectives that are waited for together, beside random messages of other
//! threads.

use super::bytes;
use super::reference;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use tradewind::{
    Communicator, Op, Pending, RecvRequest, Request, Result, SendRequest, Source, local,
    local_nodes, test_any, test_some, wait_any, wait_some,
};

testing::tests![requests_of_all_kinds_complete_once_under_traffic];

/// Rounds that are under way at once, and their number.
const WINDOW: usize = 3;
const ROUNDS: usize = 60;

/// Short, of several records, and beyond what is sent without a request.
const LENGTHS: [usize; 6] = [8, 300, 20_000, 70_000, 1 << 20, 4 << 20];

fn length_of(round: usize) -> usize {
    LENGTHS[if round.is_multiple_of(10) { round / 10 % 6 } else { round % 4 }]
}

/// Buffers of one round.
#[derive(Clone)]
struct Buffers {
    own: [u64; 3],
    sum: [u64; 3],
    broadcast: Vec<u8>,
    named: Vec<u8>,
    from_any: Vec<u8>,
    sent: Vec<u8>,
}

/// Operations of one round.
struct Round<'a> {
    sum: Request<'a, ((), ())>,
    broadcast: Request<'a, ()>,
    receives: [RecvRequest<'a>; 2],
    sends: [SendRequest<'a>; 2],
}

impl<'a> Round<'a> {
    const OPERATIONS: usize = 6;

    fn start(world: &'a Communicator, round: usize, buffers: &'a mut Buffers) -> Result<Self> {
        let Buffers { own, sum, broadcast, named, from_any, sent } = buffers;
        let (rank, size) = (world.rank(), world.size());
        let [before, next] = [(rank + size - 1) % size, (rank + 1) % size];
        let tag = round as u32;
        Ok(Round {
            receives: [
                world.irecv(named, before, 2 * tag)?,
                world.irecv(from_any, Source::Any, 2 * tag + 1)?,
            ],
            sum: world.iallreduce(&*own, sum, Op::Sum)?,
            broadcast: world.ibcast(broadcast, tag % size)?,
            sends: [world.isend(sent, next, 2 * tag)?, world.issend(sent, before, 2 * tag + 1)?],
        })
    }

    fn pending<'b>(&'b mut self) -> impl Iterator<Item = &'b mut dyn Pending> + use<'a, 'b> {
        let Round { sum, broadcast, receives, sends } = self;
        let collectives = [sum as &mut dyn Pending, broadcast];
        let receives = receives.iter_mut().map(|one| one as &mut dyn Pending);
        collectives
            .into_iter()
            .chain(receives)
            .chain(sends.iter_mut().map(|one| one as &mut dyn Pending))
    }
}

/// Runs all rounds, `WINDOW` at a time; completes their operations as they complete.
fn run_rounds(world: &Communicator) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    let [before, next] = [(rank + size - 1) % size, (rank + 1) % size];
    for first in (0..ROUNDS).step_by(WINDOW) {
        let buffers = |round| {
            let length = length_of(round);
            let root = round as u32 % size;
            let seed = if rank == root { round } else { 0 };
            Buffers {
                own: [u64::from(rank), round as u64, 1],
                sum: [0; 3],
                broadcast: bytes(seed, 5000),
                named: vec![0; length],
                from_any: vec![0; length + 1],
                sent: bytes(round + 100 * rank as usize, length),
            }
        };
        let mut kept: Vec<Buffers> = (first..first + WINDOW).map(buffers).collect();
        let mut rounds: Vec<Round<'_>> = Vec::new();
        for (buffers, round) in kept.iter_mut().zip(first..) {
            rounds.push(Round::start(world, round, buffers)?);
        }
        let mut pending: Vec<&mut dyn Pending> =
            rounds.iter_mut().flat_map(Round::pending).collect();
        let mut complete = 0;
        while !pending.is_empty() {
            // Tests and waits by turns, with the requests in another order each time.
            let middle = (first + complete) % pending.len();
            pending.rotate_left(middle);
            let found = match complete % 4 {
                0 => test_any(&mut pending)?.into_iter().collect(),
                1 => wait_any(&mut pending)?.into_iter().collect(),
                2 => test_some(&mut pending)?,
                _ => wait_some(&mut pending)?,
            };
            assert!(complete % 2 == 0 || !found.is_empty());
            if found.is_empty() {
                std::thread::yield_now();
            }
            complete += found.len();
            for one in found.into_iter().rev() {
                pending.remove(one);
            }
        }
        assert_eq!(complete, WINDOW * Round::OPERATIONS);
        for (round, number) in rounds.iter().zip(first..) {
            let [named, from_any] = &round.receives;
            let found = [named, from_any].map(|one| one.status().expect("complete"));
            assert_eq!(found.map(|status| status.source()), [before, next], "round {number}");
            let length = length_of(number) as u64;
            assert_eq!(found.map(|status| status.bytes()), [length; 2], "round {number}");
        }
        drop(rounds);
        for (buffers, round) in kept.iter().zip(first..) {
            let of = |other: u32| bytes(round + 100 * other as usize, length_of(round));
            let all = u64::from(size);
            assert_eq!(buffers.sum, [all * (all - 1) / 2, round as u64 * all, all]);
            assert!(buffers.broadcast == bytes(round, 5000), "round {round}");
            assert!(buffers.named == of(before), "round {round}");
            assert!(buffers.from_any[..length_of(round)] == of(next), "round {round}");
        }
    }
    Ok(())
}

fn exchange(world: Communicator) -> Result<()> {
    let beside = world.dup()?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let mut seed = 0;
            // All ranks end in the same round: each has one more when the last one is over.
            loop {
                reference::exchange(&beside, seed, 2)?;
                seed += 1;
                let mut are_over = [u32::from(is_over.load(Ordering::Relaxed))];
                let own = are_over;
                beside.allreduce(&own, &mut are_over, Op::Minimum)?;
                if are_over == [1] {
                    return Ok(());
                }
            }
        });
        let outcome = catch_unwind(AssertUnwindSafe(|| run_rounds(&world)));
        // Also behind a panic: the scope waits for the traffic, which waits for all ranks.
        is_over.store(true, Ordering::Relaxed);
        let outcome = outcome.unwrap_or_else(|panic| resume_unwind(panic));
        outcome.and(traffic.join().expect("no panic"))
    })
}

fn requests_of_all_kinds_complete_once_under_traffic() {
    local(3, exchange).expect("the job succeeds");
    for nodes in [&[1, 2][..], &[1, 1, 1]] {
        local_nodes(nodes, exchange).expect("the job succeeds");
    }
}
