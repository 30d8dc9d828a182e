//! A process's side of its conversation with the post office, shared by everything the process has from there.

use super::protocol::{Answer, Closing, Dropped, LaneOffer, Notice, Request, Said};
use super::{PostError, system};
use crate::lane::LaneParts;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;
use shm::broker::{BrokerError, Connection};
use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long an asker sleeps before it looks whether another thread has taken its answer from the socket.
const SLICE: Duration = Duration::from_millis(10);

/// How long a sender sleeps that waits for news of a lane.
const NEWS: Duration = Duration::from_millis(100);

/// How long to wait for a post office that does not read.
const PATIENCE: Duration = Duration::from_secs(10);

/// A lane that another process has opened to a port of this one.
#[derive(Debug)]
pub(crate) struct Arrival {
    /// Where to begin reading.
    pub(crate) position: u64,
    /// The lane whose messages come first, or 0.
    pub(crate) after: u32,
    pub(crate) offer: LaneOffer,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// An end of a lane: its number, and whether it is the receiving one.
type LaneEnd = (u32, bool);

/// What the post office has said of a lane.
#[derive(Debug, Default)]
struct News {
    closing: Option<Closing>,
    is_to_move: bool,
}

#[derive(Debug, Default)]
struct Heard {
    /// The questions that are open, with their answers.
    answers: HashMap<u32, Option<(Answer, Vec<OwnedFd>)>>,
    arrivals: HashMap<u16, VecDeque<Arrival>>,
    /// Ports at which nobody receives any more.
    deaf: HashSet<u16>,
    /// Lanes that somebody has opened to one of these.
    unwanted: Vec<u32>,
    /// The ends of lanes that this process has.
    lanes: HashMap<LaneEnd, News>,
    /// How many notices have concerned one of them.
    notices: u64,
}

/// The conversation.
#[derive(Debug)]
pub(crate) struct Control {
    connection: Connection,
    heard: Mutex<Heard>,
    next_question: AtomicU32,
    /// The post office has gone.
    lost: AtomicBool,
}

impl Control {
    pub(crate) fn new(connection: Connection) -> Control {
        let lost = AtomicBool::new(false);
        Control { connection, heard: Mutex::default(), next_question: AtomicU32::new(1), lost }
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        // Nothing that holds it leaves a half-done change behind.
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_lost(&self) -> bool {
        // Relaxed: says nothing about other memory.
        self.lost.load(Ordering::Relaxed)
    }

    /// How many descriptors to watch, this one last: not the socket of a post office that has gone, it is always ready.
    pub(crate) fn watchable(&self, others: usize) -> usize {
        others + usize::from(!self.is_lost())
    }

    /// Takes in everything that the post office has said so far. Never waits.
    pub(crate) fn hear(&self) {
        if self.is_lost() {
            return;
        }
        self.take_in();
        let unwanted = std::mem::take(&mut self.heard().unwanted);
        unwanted.into_iter().for_each(|lane| self.forget_lane(lane, Dropped::Receiver, true));
    }

    fn take_in(&self) {
        // Held all the time, so that what is said first is noted first.
        let mut heard = self.heard();
        loop {
            match self.connection.receive_message(Some(Duration::ZERO)) {
                Ok(message) => match Said::decode(&message.bytes) {
                    Some(said) => heard.note(said, message.descriptors),
                    None => self.lost.store(true, Ordering::Relaxed),
                },
                Err(BrokerError::TimedOut { .. }) => return,
                // Too many open files here: what was said is lost, but not the post office.
                Err(BrokerError::Truncated { .. }) => {}
                Err(_) => self.lost.store(true, Ordering::Relaxed),
            }
            if self.is_lost() {
                return;
            }
        }
    }

    /// Asks and waits for the answer. `action` completes "the post office refuses to …".
    pub(crate) fn ask(
        &self,
        action: impl FnOnce() -> String,
        request: &Request,
        deadline: Instant,
    ) -> Result<(Answer, Vec<OwnedFd>), PostError> {
        let started = Instant::now();
        // Relaxed: numbers only have to differ.
        let number = self.next_question.fetch_add(1, Ordering::Relaxed);
        self.heard().answers.insert(number, None);
        let outcome = self.tell(request, number, &[]).and_then(|()| self.wait_for_answer(number, started, deadline));
        let late = self.heard().answers.remove(&number);
        match (outcome?, late) {
            ((Answer::Refused(refusal), _), _) => Err(PostError::Refused { action: action(), refusal }),
            (answer, _) => Ok(answer),
        }
    }

    fn wait_for_answer(
        &self,
        number: u32,
        started: Instant,
        deadline: Instant,
    ) -> Result<(Answer, Vec<OwnedFd>), PostError> {
        loop {
            self.hear();
            if let Some(answer) = self.heard().answers.get_mut(&number).and_then(Option::take) {
                return Ok(answer);
            }
            if self.is_lost() {
                return Err(PostError::PostGone);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(PostError::NoAnswer { waited: started.elapsed() });
            }
            self.watch(PollFlags::IN, left.min(SLICE))?;
        }
    }

    fn watch(&self, flags: PollFlags, limit: Duration) -> Result<(), PostError> {
        match poll(&mut [PollFd::new(&self.connection, flags)], Timespec::try_from(limit).ok().as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(system("wait for the post office")(error)),
        }
    }

    /// Says something; waits a while for a post office that does not read.
    fn tell(&self, request: &Request, number: u32, descriptors: &[BorrowedFd<'_>]) -> Result<(), PostError> {
        let bytes = request.encode(number);
        let started = Instant::now();
        loop {
            match self.connection.send_message(&bytes, descriptors) {
                Ok(()) => return Ok(()),
                Err(BrokerError::NotReading) if started.elapsed() < PATIENCE => {
                    // It hears nobody who lets its own messages pile up.
                    self.hear();
                    self.watch(PollFlags::OUT, SLICE)?;
                }
                Err(BrokerError::NotReading) => return Err(PostError::NoAnswer { waited: started.elapsed() }),
                Err(BrokerError::Closed) => return Err(PostError::PostGone),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The next lane that somebody has opened to this port, as far as heard.
    pub(crate) fn take_arrival(&self, port: u16) -> Option<Arrival> {
        self.heard().arrivals.get_mut(&port)?.pop_front()
    }

    /// How many lanes have come to a port and have not been taken.
    pub(crate) fn arrivals(&self, port: u16) -> usize {
        self.hear();
        self.heard().arrivals.get(&port).map_or(0, VecDeque::len)
    }

    /// Nobody receives at this port any more.
    pub(crate) fn close_port(&self, port: u16) {
        let mut heard = self.heard();
        heard.deaf.insert(port);
        let arrivals = heard.arrivals.remove(&port).unwrap_or_default();
        heard.unwanted.extend(arrivals.into_iter().map(|arrival| arrival.offer.lane));
        drop(heard);
        self.hear();
    }

    /// Changes when there is something to know about one of the lanes.
    pub(crate) fn notices(&self) -> u64 {
        self.heard().notices
    }

    /// Whether there is anything to know about a lane.
    pub(crate) fn has_notice(&self, end: LaneEnd) -> bool {
        self.heard().lanes.get(&end).is_some_and(|news| news.closing.is_some() || news.is_to_move)
    }

    /// Why the post office has closed a lane, if it has.
    pub(crate) fn closing(&self, end: LaneEnd) -> Option<Closing> {
        self.heard().lanes.get(&end)?.closing
    }

    /// Whether the receiving end of a lane is to go to another process.
    pub(crate) fn is_to_move(&self, lane: u32) -> bool {
        self.heard().lanes.get(&(lane, true)).is_some_and(|news| news.is_to_move)
    }

    /// Gives the receiving end of a lane back.
    pub(crate) fn hand_over(
        &self,
        lane: u32,
        position: u64,
        memory: BorrowedFd<'_>,
        socket: BorrowedFd<'_>,
    ) -> Result<(), PostError> {
        self.tell(&Request::HandOver { lane, position }, 0, &[memory, socket])
    }

    /// An end of a lane has been dropped.
    pub(crate) fn forget_lane(&self, lane: u32, dropped: Dropped, tell: bool) {
        self.heard().lanes.remove(&(lane, dropped.is_receiver()));
        if tell && !self.is_lost() {
            // If the post office does not hear it, it notices when this process ends.
            let _ = self.tell(&Request::CloseLane { lane, dropped }, 0, &[]);
        }
    }

    /// Sleeps until the post office says something, until `deadline` at most, and not long: another thread may take from the
    /// socket what it says.
    pub(crate) fn wait_for_news(&self, deadline: Option<Instant>) -> Result<(), PostError> {
        let left = deadline.map_or(NEWS, |deadline| deadline.saturating_duration_since(Instant::now()));
        self.watch(PollFlags::IN, left.min(NEWS))?;
        self.hear();
        Ok(())
    }
}

impl Heard {
    fn note(&mut self, said: Said, descriptors: Vec<OwnedFd>) {
        match said {
            Said::Answer(number, answer) => {
                if let Answer::Lane(offer) = &answer {
                    self.lanes.insert((offer.lane, false), News::default());
                }
                // Nobody may wait for it any more.
                if let Some(place) = self.answers.get_mut(&number) {
                    *place = Some((answer, descriptors));
                }
            }
            Said::Notice(Notice::LaneOpened { port, position, after, offer }) => {
                if self.deaf.contains(&port) {
                    return self.unwanted.push(offer.lane);
                }
                self.lanes.insert((offer.lane, true), News::default());
                self.arrivals.entry(port).or_default().push_back(Arrival { position, after, offer, descriptors });
            }
            Said::Notice(Notice::LaneClosed { lane, why }) => {
                // The end whose drop is the reason is not there any more.
                for end in [(lane, false), (lane, true)] {
                    if let Some(news) = self.lanes.get_mut(&end) {
                        news.closing = Some(why);
                        self.notices += 1;
                    }
                }
            }
            Said::Notice(Notice::MoveLane { lane }) => {
                if let Some(news) = self.lanes.get_mut(&(lane, true)) {
                    news.is_to_move = true;
                    self.notices += 1;
                }
            }
        }
    }
}

/// A lane's parts, if both descriptors have come.
pub(crate) fn parts(offer: LaneOffer, descriptors: Vec<OwnedFd>) -> Option<LaneParts> {
    let [memory, socket] = <[OwnedFd; 2]>::try_from(descriptors).ok()?;
    Some(LaneParts { offer, memory, socket })
}

impl AsFd for Control {
    /// Readable when the post office has said something that nobody has heard.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
