//! Memory that all ranks share, on one node and between nodes: coherent pages over messages.
//!
//! Each page has a home, the rank of its number modulo the number of ranks. The home has the page's
//! data while no rank may write, and a list of the ranks with a copy. Any number of ranks may read a
//! page, or one may write it: before the home grants one of them, it recalls the copies that forbid
//! that, and waits for their answers. All ranks therefore see all accesses in one order that agrees
//! with the order of each rank (Lamport: "How to Make a Multiprocessor Computer That Correctly
//! Executes Multiprocess Programs", IEEE Transactions on Computers 28(9), 1979). The service
//! processors of StarT-Voyager move cache lines in the same way (Ang, Chiou, Rudolph, Arvind 1996,
//! section 5.2).
//!
//! Two threads serve each rank. That of its home pages waits for answers of caches; that of its cache
//! waits for nothing, so no ring of ranks waits for each other.
//!
//! ```sh
//! cargo build --release -p tradewind --example shared_memory
//! cargo run --release -- run -n 4 -- target/release/examples/shared_memory
//! ```

use std::collections::{BTreeSet, HashMap};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use tradewind::{Communicator, Error, Job, Result, Source, Tag};

/// Words of a page.
pub(crate) const PAGE_WORDS: u64 = 512;

/// Tags: of messages to the home of a page, to a cache, and of a cache's answer to a recall.
const HOME: u32 = 1;
const CACHE: u32 = 2;
const ANSWER: u32 = 3;

/// First words of messages. The second is the number of a page, and its data follow.
const READ: u64 = 1;
const WRITE: u64 = 2;
const RECALL_WRITE: u64 = 3;
const RECALL_READ: u64 = 4;
const STOP: u64 = 5;

/// Numbers that are searched for primes, and those of one portion of work.
const NUMBERS: u64 = 200_000;
const PORTION: u64 = 1000;

fn main() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let (primes, fetched) = count_primes(world, NUMBERS)?;
    println!("rank {}: {primes} primes below {NUMBERS}, {fetched} pages fetched", world.rank());
    Ok(())
}

/// Counts primes: a shared word is the next portion of work, a page for each rank has its results.
/// Returns the number of primes, and of pages that this rank has fetched.
pub(crate) fn count_primes(world: &Communicator, numbers: u64) -> Result<(usize, u64)> {
    let size = u64::from(world.size());
    share(world, |memory| {
        let mut own = 0;
        loop {
            let first = memory.update(0, |next| next + PORTION)?;
            if first >= numbers {
                break;
            }
            let portion = first..(first + PORTION).min(numbers);
            own += portion.filter(|number| is_prime(*number)).count();
        }
        memory.write(PAGE_WORDS * (1 + u64::from(world.rank())), own as u64)?;
        world.barrier()?;
        let results = (1..=size).map(|page| memory.read(PAGE_WORDS * page));
        Ok((results.sum::<Result<u64>>()? as usize, memory.fetched))
    })
}

fn is_prime(number: u64) -> bool {
    let mut divisors = (2..).take_while(|divisor| divisor * divisor <= number);
    number > 1 && !divisors.any(|divisor| number.is_multiple_of(divisor))
}

/// Shares a memory of zeros among all ranks while `body` runs. All ranks call it; it returns when the
/// bodies of all ranks have ended.
pub(crate) fn share<R>(
    world: &Communicator,
    body: impl FnOnce(&mut SharedMemory<'_>) -> Result<R>,
) -> Result<R> {
    // Messages of the program match none of these.
    let node = Node { world: world.dup()?, cache: Mutex::default(), changed: Condvar::new() };
    std::thread::scope(|scope| {
        let threads = [
            scope.spawn(|| node.serve(Node::serve_home)),
            scope.spawn(|| node.serve(Node::serve_cache)),
        ];
        let stop = Stop(&node);
        let result = body(&mut SharedMemory { node: &node, fetched: 0 });
        let ended = node.world.barrier();
        drop(stop);
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        // The threads of the other ranks receive from any rank, so an earlier end of this one would
        // be an error there.
        ended.and_then(|()| node.world.barrier()).and(result)
    })
}

/// One rank's view of the memory.
pub(crate) struct SharedMemory<'a> {
    node: &'a Node,
    /// Pages that had to be fetched.
    fetched: u64,
}

impl SharedMemory<'_> {
    /// Reads a word.
    pub(crate) fn read(&mut self, at: u64) -> Result<u64> {
        self.access(at, READ, |word| *word)
    }

    /// Writes a word.
    pub(crate) fn write(&mut self, at: u64, value: u64) -> Result<()> {
        self.access(at, WRITE, |word| *word = value)
    }

    /// Replaces a word by a function of it, and returns what it was. No other access comes between.
    pub(crate) fn update(&mut self, at: u64, new: impl FnOnce(u64) -> u64) -> Result<u64> {
        self.access(at, WRITE, |word| std::mem::replace(word, new(*word)))
    }

    fn access<R>(&mut self, at: u64, right: u64, act: impl FnOnce(&mut u64) -> R) -> Result<R> {
        let page = at / PAGE_WORDS;
        let place = (at % PAGE_WORDS) as usize;
        let node = self.node;
        let mut cache = node.lock();
        loop {
            if cache.has_failed {
                return Err(Error::Broken);
            }
            let copy = cache.pages.entry(page).or_default();
            if copy.right >= right {
                let result = act(&mut copy.words[place]);
                copy.request = Request::None;
                if let Some((recall, home)) = copy.recall.take() {
                    node.answer(copy, recall, home)?;
                }
                return Ok(result);
            }
            if copy.request == Request::None {
                copy.request = Request::Sent;
                self.fetched += 1;
                node.world.send(&[right, page], node.home_of(page), HOME)?;
            }
            cache = node.changed.wait(cache).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A copy of a page.
#[derive(Default)]
struct Copy {
    words: Vec<u64>,
    /// 0, [`READ`] or [`WRITE`].
    right: u64,
    request: Request,
    /// A recall, and its sender, that waits for the access of a granted request: otherwise ranks could
    /// take a page from each other for ever without an access.
    recall: Option<(u64, u32)>,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Request {
    #[default]
    None,
    Sent,
    Granted,
}

#[derive(Default)]
struct Cache {
    pages: HashMap<u64, Copy>,
    /// A thread of this rank has failed: no request is answered any more.
    has_failed: bool,
}

/// A page at its home. Its words are out of date while a rank may write.
#[derive(Default)]
struct HomePage {
    words: Vec<u64>,
    writer: Option<u32>,
    readers: BTreeSet<u32>,
}

/// A rank's part of the memory.
struct Node {
    world: Communicator,
    cache: Mutex<Cache>,
    /// A copy was granted.
    changed: Condvar,
}

/// Ends the threads of a rank when it is dropped, also while the body panics.
struct Stop<'a>(&'a Node);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        let own = self.0.world.rank();
        for tag in [HOME, CACHE] {
            if let Err(error) = self.0.world.send(&[STOP, 0], own, tag) {
                log_failure(&error);
            }
        }
    }
}

fn log_failure(error: &Error) {
    eprintln!("shared memory: {error}");
}

impl Node {
    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn home_of(&self, page: u64) -> u32 {
        (page % u64::from(self.world.size())) as u32
    }

    /// Runs a thread of this rank, and ends the accesses if it fails.
    fn serve(&self, run: impl FnOnce(&Node) -> Result<()>) -> Result<()> {
        run(self).inspect_err(|_| {
            self.lock().has_failed = true;
            self.changed.notify_all();
        })
    }

    /// Receives a message of this tag: its sender, its first two words, and data.
    fn next(&self, tag: u32) -> Result<(u32, u64, u64, Vec<u64>)> {
        let message = self.world.mprobe(Source::Any, Tag::Is(tag))?;
        let from = message.status().source();
        let mut words = message.recv_vec::<u64>()?;
        let data = words.split_off(words.len().min(2));
        let word = |place: usize| words.get(place).copied().unwrap_or(STOP);
        Ok((from, word(0), word(1), data))
    }

    /// Serves requests for the pages that are at home here, one after the other.
    fn serve_home(&self) -> Result<()> {
        let mut pages: HashMap<u64, HomePage> = HashMap::new();
        loop {
            let (from, right, page, _) = self.next(HOME)?;
            if right == STOP {
                return Ok(());
            }
            let home = pages.entry(page).or_default();
            home.words.resize(PAGE_WORDS as usize, 0);
            // A writer keeps a copy if the request is to read only.
            let recall = if right == READ { RECALL_WRITE } else { RECALL_READ };
            let writer = home.writer.take().into_iter();
            let readers = std::mem::take(&mut home.readers);
            if let Some(writer) = writer.clone().next() {
                home.words = self.recall(&[writer], recall, page)?;
            }
            home.readers = match right {
                READ => readers.into_iter().chain(writer).chain([from]).collect(),
                _ => {
                    let others: Vec<u32> =
                        readers.into_iter().filter(|other| *other != from).collect();
                    self.recall(&others, recall, page)?;
                    BTreeSet::new()
                }
            };
            home.writer = (right == WRITE).then_some(from);
            let grant = [&[right, page], &home.words[..]].concat();
            self.world.send(&grant, from, CACHE)?;
        }
    }

    /// Recalls a page from caches, and returns the data of the last answer.
    fn recall(&self, caches: &[u32], recall: u64, page: u64) -> Result<Vec<u64>> {
        for cache in caches {
            self.world.send(&[recall, page], *cache, CACHE)?;
        }
        let mut data = Vec::new();
        for cache in caches {
            data = self.world.mprobe(*cache, ANSWER)?.recv_vec()?;
        }
        Ok(data)
    }

    /// Serves the cache: grants and recalls of its pages, in the order in which each home sends them.
    fn serve_cache(&self) -> Result<()> {
        loop {
            let (from, kind, page, words) = self.next(CACHE)?;
            let mut cache = self.lock();
            let copy = cache.pages.entry(page).or_default();
            match kind {
                READ | WRITE => {
                    (copy.words, copy.right, copy.request) = (words, kind, Request::Granted);
                    self.changed.notify_all();
                }
                RECALL_READ | RECALL_WRITE if copy.request == Request::Granted => {
                    copy.recall = Some((kind, from));
                }
                RECALL_READ | RECALL_WRITE => self.answer(copy, kind, from)?,
                _ => return Ok(()),
            }
        }
    }

    /// Returns the right to write, or also that to read, with the data that the home lacks.
    fn answer(&self, copy: &mut Copy, recall: u64, home: u32) -> Result<()> {
        let is_changed = copy.right == WRITE;
        copy.right = if recall == RECALL_WRITE { READ } else { 0 };
        self.world.send(if is_changed { &copy.words } else { &[] }, home, ANSWER)
    }
}
