//! Random messages beside a plain reference: for each receive, in the order of posting, the first
//! message of its source that it accepts and that no earlier receive has taken.

use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tradewind::{
    Communicator, Error, Message, RecvRequest, Result, SendRequest, Source, Status, Tag, local,
    local_nodes,
};

/// Messages of a fast run on one node, and as many on two.
const MESSAGES: u64 = 24_000;

/// The variable that sets another number.
const VARIABLE: &str = "TRADEWIND_TEST_MESSAGES";

/// Ends the wait of a broken test.
const LIMIT: Duration = Duration::from_secs(60);

const TAGS: u32 = 3;

/// The wildcards of all receives of a communicator: any source, any tag. They do not differ within
/// it, so that no receive takes the message that another one needs.
const KINDS: [(bool, bool); 4] = [(true, true), (false, true), (true, false), (false, false)];

/// Receives that are posted at once for a stream.
const WINDOW: usize = 8;

/// Longest message, in words.
const MOST_WORDS: usize = 20_000;

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

/// Messages of a communicator whose order a receive can observe: all of them, or those of one tag
/// where every receive names its tag. One thread sends them, and one receives them.
#[derive(Clone, Copy)]
struct Stream {
    kind: usize,
    tag: Option<u32>,
}

impl Stream {
    fn all() -> impl Iterator<Item = Stream> {
        KINDS.iter().enumerate().flat_map(|(kind, (_, any_tag))| {
            let tags = if *any_tag { 0..1 } else { 0..TAGS };
            tags.map(move |tag| Stream { kind, tag: (!any_tag).then_some(tag) })
        })
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

/// What a receive has found.
struct Found {
    pattern: (Source, Tag),
    status: Status,
    contents: Vec<u64>,
}

/// One receive with its buffer: its place in the order of posting.
type Posted<'a> = (usize, RecvRequest<'a>);

/// The messages of one round to and from this rank.
struct Round<'a> {
    worlds: &'a [Communicator],
    seed: u64,
    /// Messages of each pair on each communicator.
    count: u64,
}

impl Round<'_> {
    fn rank(&self) -> u32 {
        self.worlds[0].rank()
    }

    fn ranks(&self) -> u32 {
        self.worlds[0].size()
    }

    /// The messages of a stream from one rank to another, in order.
    fn plan(&self, from: u32, to: u32, Stream { kind, tag }: Stream) -> VecDeque<Planned> {
        let pair = u64::from(from) << 24 | u64::from(to) << 8 | kind as u64;
        let mut random = Random(self.seed ^ pair << 20);
        let message = |place| {
            // Mostly short, some of several lines, few that are offered.
            let words = match random.below(100) {
                0..60 => 1 + random.below(5),
                60..90 => 1 + random.below(100),
                90..98 => random.below(2000),
                _ => random.below(MOST_WORDS as u64),
            } as usize;
            Planned {
                tag: random.below(TAGS.into()) as u32,
                words,
                number: pair << 16 | place,
                is_synchronous: random.below(10) == 0,
            }
        };
        let all = (0..self.count).map(message);
        all.filter(|message| tag.is_none_or(|tag| tag == message.tag)).collect()
    }

    /// Sends all messages of some streams, in a random order of streams and receivers.
    fn send_all(&self, streams: &[Stream], mut random: Random) -> Result<()> {
        let mut plans = Vec::new();
        for stream in streams {
            for to in 0..self.ranks() {
                plans.push((stream.kind, to, self.plan(self.rank(), to, *stream)));
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

    /// The patterns of all receives of a stream, in a random order.
    fn patterns(&self, stream: Stream, random: &mut Random) -> Vec<(Source, Tag)> {
        let (any_source, any_tag) = KINDS[stream.kind];
        let mut patterns = Vec::new();
        for from in 0..self.ranks() {
            for message in self.plan(from, self.rank(), stream) {
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

    /// Receives all messages of some streams, a window of each at a time, and compares them.
    fn receive_all(&self, streams: &[Stream], mut random: Random) -> Result<()> {
        let mut receives: Vec<_> = streams
            .iter()
            .map(|stream| Receives::new(self, *stream, self.patterns(*stream, &mut random)))
            .collect();
        while !receives.iter().all(Receives::is_over) {
            receives.iter_mut().try_for_each(|one| one.receive_window(&mut random))?;
        }
        receives.into_iter().for_each(Receives::compare);
        Ok(())
    }
}

/// The receives of a stream.
struct Receives<'a> {
    round: &'a Round<'a>,
    stream: Stream,
    patterns: Vec<(Source, Tag)>,
    buffers: Vec<Vec<u64>>,
    /// In the order of posting.
    found: Vec<Found>,
}

impl<'a> Receives<'a> {
    fn new(round: &'a Round<'a>, stream: Stream, patterns: Vec<(Source, Tag)>) -> Self {
        let buffers = vec![vec![0; MOST_WORDS]; WINDOW.min(patterns.len())];
        Receives { round, stream, patterns, buffers, found: Vec::new() }
    }

    fn is_over(&self) -> bool {
        self.found.len() == self.patterns.len()
    }

    /// Posts some receives, or takes one message by a probe, and waits for them in any order.
    fn receive_window(&mut self, random: &mut Random) -> Result<()> {
        let world = &self.round.worlds[self.stream.kind];
        let first = self.found.len();
        let Some(&pattern) = self.patterns.get(first) else { return Ok(()) };
        if random.below(10) == 0 {
            let message = probe(world, pattern)?;
            let status = message.status();
            self.found.push(Found { pattern, status, contents: message.recv_vec()? });
            return Ok(());
        }
        let most = 1 + random.below(WINDOW as u64) as usize;
        let mut posted: Vec<Posted<'_>> = Vec::new();
        for (place, buffer) in self.buffers.iter_mut().enumerate().take(most) {
            let Some(&(source, tag)) = self.patterns.get(first + place) else { break };
            posted.push((place, world.irecv(buffer, source, tag)?));
        }
        let mut statuses = vec![None; posted.len()];
        while !posted.is_empty() {
            let one = random.below(posted.len() as u64) as usize;
            if random.below(3) > 0 && !posted[one].1.test()? {
                continue;
            }
            let (place, mut request) = posted.swap_remove(one);
            request.wait_timeout(LIMIT)?;
            statuses[place] = request.status();
        }
        drop(posted);
        for (place, status) in statuses.into_iter().enumerate() {
            let Some(status) = status else { return Err(Error::Broken) };
            let count = status.count::<u64>().unwrap_or(0);
            let contents = self.buffers[place][..count].to_vec();
            self.found.push(Found { pattern: self.patterns[first + place], status, contents });
        }
        Ok(())
    }

    /// Compares the receives with the reference: each message of the stream is found once.
    fn compare(self) {
        let Receives { round, stream, found, .. } = self;
        let mut left: Vec<VecDeque<Planned>> =
            (0..round.ranks()).map(|from| round.plan(from, round.rank(), stream)).collect();
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

/// Takes the next message that a receive would take.
fn probe(world: &Communicator, (source, tag): (Source, Tag)) -> Result<Message<'_>> {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(message) = world.improbe(source, tag)? {
            return Ok(message);
        }
        assert!(Instant::now() < end, "no message from {source:?} with {tag:?}");
        std::thread::yield_now();
    }
}

/// Exchanges so many messages, of all ranks together, on one node and then on two.
pub(super) fn run() {
    let messages = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok());
    let mut left: u64 = messages.unwrap_or(MESSAGES);
    for (seed, ranks) in [1_u32, 2, 3, 2, 4, 2].into_iter().enumerate().cycle() {
        if left == 0 {
            break;
        }
        let pairs = u64::from(ranks * ranks) * KINDS.len() as u64;
        let count = (left / pairs).clamp(1, 100);
        let seed = seed as u64 ^ left;
        local(ranks, |world| exchange(&world, seed, count)).expect("the job succeeds");
        // One rank on each node, one beside two others, two on each.
        let nodes = [ranks / 2, ranks - ranks / 2];
        let nodes = if ranks == 1 { &nodes[1..] } else { &nodes[..] };
        local_nodes(nodes, |world| exchange(&world, seed, count)).expect("the job succeeds");
        left = left.saturating_sub(count * pairs);
    }
}

/// Exchanges random messages between all ranks, in one to three threads of each rank that send and
/// as many that receive.
pub(super) fn exchange(world: &Communicator, seed: u64, count: u64) -> Result<()> {
    let worlds: Vec<Communicator> = KINDS.iter().map(|_| world.dup()).collect::<Result<_>>()?;
    let round = &Round { worlds: &worlds, seed, count };
    let threads = 1 + (seed ^ u64::from(world.rank())) % 3;
    // Of other streams than those that the thread of the same number sends.
    let streams: Vec<Stream> = Stream::all().collect();
    let dealt = |thread: u64, by: u64| -> Vec<Stream> {
        let mine = streams.iter().zip(0_u64..);
        mine.filter(|(_, place)| place / by % threads == thread).map(|(one, _)| *one).collect()
    };
    std::thread::scope(|scope| {
        let of_thread = |thread: u64| Random(seed ^ u64::from(world.rank()) << 50 ^ thread << 40);
        let mut running = Vec::new();
        for thread in 0..threads {
            let (sent, received) = (dealt(thread, 1), dealt(thread, 2));
            running.push(scope.spawn(move || round.send_all(&sent, of_thread(thread))));
            let random = of_thread(thread + threads);
            running.push(scope.spawn(move || round.receive_all(&received, random)));
        }
        running.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    world.barrier()
}
