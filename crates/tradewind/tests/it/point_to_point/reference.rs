//! Random messages beside a plain reference: for each receive, in the order of posting, the first
//! message of its source that it accepts and that no earlier receive has taken.

use std::collections::VecDeque;
use tradewind::{Communicator, Error, RecvRequest, Result, SendRequest, Source, Status, Tag};

/// Messages of a fast run, over all rounds.
const MESSAGES: u64 = 24_000;

/// The variable that sets another number.
const VARIABLE: &str = "TRADEWIND_TEST_MESSAGES";

const TAGS: u32 = 3;

/// The wildcards of all receives of a communicator. They do not differ within it, so that no receive
/// takes the message that another one needs.
const KINDS: [(bool, bool); 4] = [(true, true), (false, true), (true, false), (false, false)];

/// Receives that are posted at once.
const WINDOW: usize = 12;

/// A splitmix64 sequence (Steele, Lea, Flood 2014, figure 16).
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// A message, as sender and receiver compute it from the seed of the round.
#[derive(Clone, Debug)]
struct Planned {
    tag: u32,
    words: usize,
    /// Differs between all messages of a round.
    number: u64,
    is_synchronous: bool,
}

impl Planned {
    fn contents(&self) -> Vec<u64> {
        (0..self.words as u64).map(|place| self.number ^ place << 40).collect()
    }
}

/// The messages from one rank to another on one communicator, in order.
fn plan(seed: u64, from: u32, to: u32, kind: usize, count: u64) -> Vec<Planned> {
    let pair = u64::from(from) << 24 | u64::from(to) << 8 | kind as u64;
    let mut random = Random(seed ^ pair << 20);
    let message = |place| {
        // Mostly short, some of several lines, few that are offered.
        let words = match random.below(100) {
            0..60 => 1 + random.below(5),
            60..90 => 1 + random.below(100),
            90..98 => random.below(2000),
            _ => random.below(20_000),
        } as usize;
        Planned {
            tag: random.below(TAGS.into()) as u32,
            words,
            number: pair << 16 | place,
            is_synchronous: random.below(10) == 0,
        }
    };
    (0..count).map(message).collect()
}

/// One receive with its buffer.
type Posted<'a> = (usize, usize, RecvRequest<'a>);

/// What a receive has found.
struct Found {
    pattern: (Source, Tag),
    status: Status,
    contents: Vec<u64>,
}

/// The messages of one round to and from this rank.
struct Round<'a> {
    worlds: &'a [Communicator],
    seed: u64,
    /// Messages of each pair on each communicator.
    count: u64,
}

impl Round<'_> {
    fn send_all(&self) -> Result<()> {
        let rank = self.worlds[0].rank();
        let mut random = Random(self.seed ^ u64::from(rank) << 50);
        let mut plans: Vec<(usize, u32, VecDeque<Planned>)> = Vec::new();
        for kind in 0..KINDS.len() {
            for to in 0..self.worlds[0].size() {
                plans.push((kind, to, plan(self.seed, rank, to, kind, self.count).into()));
            }
        }
        let mut order = Vec::new();
        while !plans.is_empty() {
            let chosen = random.below(plans.len() as u64) as usize;
            let (kind, to, left) = &mut plans[chosen];
            match left.pop_front() {
                Some(message) => order.push((*kind, *to, message.contents(), message)),
                None => drop(plans.swap_remove(chosen)),
            }
        }
        let mut requests: Vec<SendRequest<'_>> = Vec::new();
        for (kind, to, contents, message) in &order {
            let world = &self.worlds[*kind];
            if message.is_synchronous {
                requests.push(world.issend(contents, *to, message.tag)?);
            } else if contents.len() > 1000
                || random.below(2) > 0
                || !world.try_send(contents, *to, message.tag)?
            {
                requests.push(world.isend(contents, *to, message.tag)?);
            }
            if requests.len() > 40 {
                let one = random.below(requests.len() as u64) as usize;
                if requests[one].test()? {
                    drop(requests.swap_remove(one));
                }
            }
        }
        requests.into_iter().try_for_each(SendRequest::wait)
    }

    /// The patterns of all receives on one communicator, in a random order.
    fn patterns(&self, kind: usize, random: &mut Random) -> Vec<(Source, Tag)> {
        let (any_source, any_tag) = KINDS[kind];
        let rank = self.worlds[kind].rank();
        let mut patterns = Vec::new();
        for from in 0..self.worlds[kind].size() {
            for message in plan(self.seed, from, rank, kind, self.count) {
                let source = if any_source { Source::Any } else { Source::Rank(from) };
                let tag = if any_tag { Tag::Any } else { Tag::Is(message.tag) };
                patterns.push((source, tag));
            }
        }
        for place in (1..patterns.len()).rev() {
            patterns.swap(place, random.below(place as u64 + 1) as usize);
        }
        patterns
    }

    fn receive_all(&self) -> Result<()> {
        let mut random = Random(self.seed ^ 0xabcd);
        let patterns: Vec<Vec<_>> =
            (0..KINDS.len()).map(|kind| self.patterns(kind, &mut random)).collect();
        let mut buffers: Vec<Vec<Vec<u64>>> =
            patterns.iter().map(|all| vec![vec![0; 20_000]; all.len().min(WINDOW)]).collect();
        let mut found: Vec<Vec<Option<Found>>> =
            patterns.iter().map(|all| all.iter().map(|_| None).collect()).collect();
        let mut next = [0; KINDS.len()];
        while next.iter().zip(&patterns).any(|(next, all)| *next < all.len()) {
            let first = next;
            let mut posted: Vec<Posted<'_>> = Vec::new();
            let mut free: Vec<_> = buffers.iter_mut().map(|some| some.iter_mut()).collect();
            loop {
                let kind = random.below(KINDS.len() as u64) as usize;
                let Some(&(source, tag)) = patterns[kind].get(next[kind]) else { break };
                let Some(buffer) = free[kind].next() else { break };
                let request = self.worlds[kind].irecv(buffer, source, tag)?;
                posted.push((kind, next[kind], request));
                next[kind] += 1;
            }
            while !posted.is_empty() {
                let one = random.below(posted.len() as u64) as usize;
                if random.below(3) > 0 && !posted[one].2.test()? {
                    continue;
                }
                let (kind, place, mut request) = posted.swap_remove(one);
                request.wait_timeout(std::time::Duration::from_secs(60))?;
                let Some(status) = request.status() else { return Err(Error::Broken) };
                drop(request);
                let pattern = patterns[kind][place];
                found[kind][place] = Some(Found { pattern, status, contents: Vec::new() });
            }
            drop((posted, free));
            for (kind, first) in first.into_iter().enumerate() {
                for (found, buffer) in found[kind][first..next[kind]].iter_mut().zip(&buffers[kind])
                {
                    let Some(found) = found else { return Err(Error::Broken) };
                    let count = found.status.count::<u64>().unwrap_or(0);
                    found.contents = buffer[..count].to_vec();
                }
            }
        }
        for (kind, found) in found.into_iter().enumerate() {
            self.compare(kind, found.into_iter().flatten().collect());
        }
        Ok(())
    }

    /// Compares the receives of a communicator, in the order of posting, with the reference.
    fn compare(&self, kind: usize, found: Vec<Found>) {
        let rank = self.worlds[kind].rank();
        let mut left: Vec<VecDeque<Planned>> = (0..self.worlds[kind].size())
            .map(|from| plan(self.seed, from, rank, kind, self.count).into())
            .collect();
        for Found { pattern: (source, tag), status, contents } in found {
            assert!(source == Source::Any || source == Source::Rank(status.source()));
            let of_source = &mut left[status.source() as usize];
            let accepted = |message: &Planned| tag == Tag::Any || tag == Tag::Is(message.tag);
            let place = of_source.iter().position(accepted).expect("a message that was sent");
            let expected = of_source.remove(place).expect("just found");
            assert_eq!(status.tag(), expected.tag);
            assert_eq!(status.count::<u64>(), Some(expected.words));
            assert!(contents == expected.contents(), "message {:x} is wrong", expected.number);
        }
        assert!(left.iter().all(VecDeque::is_empty), "messages are lost");
    }
}

pub(super) fn run() {
    let messages = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok());
    let mut left: u64 = messages.unwrap_or(MESSAGES);
    for (seed, ranks) in [1_u32, 2, 3, 2, 4, 2].into_iter().enumerate().cycle() {
        if left == 0 {
            break;
        }
        let pairs = u64::from(ranks * ranks) * KINDS.len() as u64;
        let count = (left / pairs).clamp(1, 100);
        run_round(ranks, seed as u64 ^ left, count);
        left = left.saturating_sub(count * pairs);
    }
}

/// Every rank sends in one thread and receives in another one.
pub(super) fn run_round(ranks: u32, seed: u64, count: u64) {
    super::everywhere(ranks, |world| exchange(&world, seed, count)).expect("the job succeeds");
}

pub(super) fn exchange(world: &Communicator, seed: u64, count: u64) -> Result<()> {
    let worlds: Vec<Communicator> = KINDS.iter().map(|_| world.dup()).collect::<Result<_>>()?;
    let round = Round { worlds: &worlds, seed, count };
    std::thread::scope(|scope| {
        let sends = scope.spawn(|| round.send_all());
        round.receive_all()?;
        sends.join().expect("no panic")
    })?;
    world.barrier()
}
