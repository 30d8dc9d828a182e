//! A process's side of its conversation with the post office, shared by everything the process has
//! from there.

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

/// How long an asker sleeps before it looks whether another thread has taken its answer from the
/// socket.
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
    /// Ends of lanes that this process does not have any more, of which the post office has not
    /// been told.
    closings: VecDeque<(u32, Dropped)>,
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

    /// How many descriptors to watch, this one last: not the socket of a post office that has gone,
    /// it is always ready.
    pub(crate) fn watchable(&self, others: usize) -> usize {
        others + usize::from(!self.is_lost())
    }

    /// Takes in everything that the post office has said so far, and tells it what it was not told
    /// yet. Never waits.
    pub(crate) fn hear(&self) {
        if self.is_lost() {
            return;
        }
        // Held all the time, so that what is said first is noted first.
        let mut heard = self.heard();
        self.take_in(&mut heard);
        // Who does not read is told later.
        let _ = self.tell_closings(&mut heard);
    }

    fn take_in(&self, heard: &mut Heard) {
        while !self.is_lost() {
            match self.connection.receive_message(Some(Duration::ZERO)) {
                Ok(message) => match Said::decode(&message.bytes) {
                    Some(said) => heard.note(said, message.descriptors),
                    None => self.lost.store(true, Ordering::Relaxed),
                },
                Err(BrokerError::TimedOut { .. }) => return,
                // Too many open files here. Of a lane it has to be known, so that the post office
                // does not keep it.
                Err(BrokerError::Truncated { bytes, .. }) => {
                    if let Some(said @ (Said::Answer(_, Answer::Lane(_)) | Said::Notice(_))) =
                        Said::decode(&bytes)
                    {
                        heard.note(said, Vec::new());
                    }
                }
                Err(_) => self.lost.store(true, Ordering::Relaxed),
            }
        }
    }

    /// Tells of the ends that are not there any more, as long as the post office reads.
    fn tell_closings(&self, heard: &mut Heard) -> Result<(), BrokerError> {
        while let Some(&(lane, dropped)) = heard.closings.front() {
            self.connection.send_message(&Request::CloseLane { lane, dropped }.encode(0), &[])?;
            heard.closings.pop_front();
        }
        Ok(())
    }

    /// Asks and waits for the answer, until `deadline`. `action` completes "the post office refuses
    /// to …".
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
        let told = self.tell(request, number, &[], deadline);
        let outcome = told.and_then(|()| self.wait_for_answer(number, started, deadline));
        let late = self.heard().answers.remove(&number).flatten();
        match (outcome, late) {
            (Ok((Answer::Refused(refusal), _)), _) => {
                Err(PostError::Refused { action: action(), refusal })
            }
            (Err(error), Some((Answer::Lane(offer), _))) => {
                self.forget_lane(offer.lane, Dropped::SenderGoesOn, true);
                Err(error)
            }
            (outcome, _) => outcome,
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
        match poll(
            &mut [PollFd::new(&self.connection, flags)],
            Timespec::try_from(limit).ok().as_ref(),
        ) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(system("wait for the post office")(error)),
        }
    }

    /// Says something; waits a while for a post office that does not read, until `deadline` at
    /// most.
    fn tell(
        &self,
        request: &Request,
        number: u32,
        descriptors: &[BorrowedFd<'_>],
        deadline: Instant,
    ) -> Result<(), PostError> {
        let bytes = request.encode(number);
        let started = Instant::now();
        let deadline = deadline.min(started + PATIENCE);
        loop {
            match self.try_to_tell(&bytes, descriptors) {
                Ok(()) => return Ok(()),
                Err(BrokerError::NotReading) if Instant::now() < deadline => {
                    // It hears nobody who lets its own messages pile up.
                    self.hear();
                    let left = deadline.saturating_duration_since(Instant::now());
                    self.watch(PollFlags::OUT, left.min(SLICE))?;
                }
                Err(BrokerError::NotReading) => {
                    return Err(PostError::NoAnswer { waited: started.elapsed() });
                }
                Err(BrokerError::Closed) => return Err(PostError::PostGone),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Says something after everything that was to be said before: a lane can be opened where one
    /// was closed.
    fn try_to_tell(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), BrokerError> {
        self.tell_closings(&mut self.heard())?;
        self.connection.send_message(bytes, descriptors)
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
        heard
            .closings
            .extend(arrivals.into_iter().map(|arrival| (arrival.offer.lane, Dropped::Receiver)));
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
        self.tell(
            &Request::HandOver { lane, position },
            0,
            &[memory, socket],
            Instant::now() + PATIENCE,
        )
    }

    /// An end of a lane has been dropped. Never waits: the post office is told when it reads. If it
    /// never hears it, it notices when this process ends.
    pub(crate) fn forget_lane(&self, lane: u32, dropped: Dropped, tell: bool) {
        let mut heard = self.heard();
        heard.lanes.remove(&(lane, dropped.is_receiver()));
        if tell && !self.is_lost() {
            heard.closings.push_back((lane, dropped));
            let _ = self.tell_closings(&mut heard);
        }
    }

    /// Sleeps until the post office says something, until `deadline` at most, and not long: another
    /// thread may take from the socket what it says.
    pub(crate) fn wait_for_news(&self, deadline: Option<Instant>) -> Result<(), PostError> {
        let left =
            deadline.map_or(NEWS, |deadline| deadline.saturating_duration_since(Instant::now()));
        self.watch(PollFlags::IN, left.min(NEWS))?;
        self.hear();
        Ok(())
    }
}

impl Heard {
    fn note(&mut self, said: Said, descriptors: Vec<OwnedFd>) {
        match said {
            Said::Answer(number, answer) => {
                match (self.answers.get_mut(&number), &answer) {
                    // Nobody waits for it any more, and nothing was sent over it.
                    (None, Answer::Lane(offer)) => {
                        self.closings.push_back((offer.lane, Dropped::SenderGoesOn))
                    }
                    (None, _) => {}
                    (Some(place), _) => {
                        if let Answer::Lane(offer) = &answer {
                            self.lanes.insert((offer.lane, false), News::default());
                        }
                        *place = Some((answer, descriptors));
                    }
                }
            }
            Said::Notice(Notice::LaneOpened { port, position, after, offer }) => {
                if self.deaf.contains(&port) {
                    return self.closings.push_back((offer.lane, Dropped::Receiver));
                }
                self.lanes.insert((offer.lane, true), News::default());
                self.arrivals.entry(port).or_default().push_back(Arrival {
                    position,
                    after,
                    offer,
                    descriptors,
                });
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

/// A lane's parts, if both descriptors have come; if not, the lane is given back.
pub(crate) fn parts(
    control: &Control,
    offer: LaneOffer,
    dropped: Dropped,
    descriptors: Vec<OwnedFd>,
) -> Result<LaneParts, PostError> {
    match <[OwnedFd; 2]>::try_from(descriptors) {
        Ok([memory, socket]) => Ok(LaneParts { offer, memory, socket }),
        Err(_) => {
            control.forget_lane(offer.lane, dropped, true);
            Err(BrokerError::Truncated { missing: "descriptors", bytes: Vec::new() }.into())
        }
    }
}

impl AsFd for Control {
    /// Readable when the post office has said something that nobody has heard.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::Carrier;
    use super::*;
    use crate::lane::Partner;
    use crate::name::{QueueName, SourceName};
    use crate::post::Class;
    use shm::broker::{Broker, connect, unguessable_name};

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A conversation, and the post office's side of it.
    fn conversation() -> (Control, Connection) {
        let broker = Broker::bind(&unguessable_name("tradewind-test").expect("random bytes"))
            .expect("a new name");
        let connection = connect(broker.name(), PATIENCE).expect("it listens");
        let office = broker.accept().expect("it can").expect("somebody has knocked");
        (Control::new(connection), office)
    }

    fn offer(lane: u32) -> Answer {
        let partner = Partner { job: "job".to_owned(), process: 1, pid: 1 };
        let source = SourceName::new(3).expect("small");
        let carrier = Carrier::Ring { lines: 256 };
        Answer::Lane(LaneOffer { lane, carrier, class: Class::Request, source, partner })
    }

    /// Asks for a lane; nobody answers before it gives up.
    fn ask_in_vain(control: &Control) {
        let name = QueueName::new(3).expect("small");
        let request = Request::OpenLane { port: 0, name, class: Class::Request, alone: true };
        let answer = control.ask(String::new, &request, Instant::now());
        assert!(matches!(answer, Err(PostError::NoAnswer { .. })), "{answer:?}");
    }

    fn heard_by(office: &Connection) -> (u32, Request) {
        let message = office.receive_message(Some(PATIENCE)).expect("something was said");
        Request::decode(&message.bytes).expect("a request")
    }

    #[test]
    fn a_lane_that_comes_too_late_is_given_back() {
        let (control, office) = conversation();
        ask_in_vain(&control);
        let (question, _) = heard_by(&office);
        office.send_message(&offer(7).encode(question), &[]).expect("it reads");
        control.hear();
        let given_back = Request::CloseLane { lane: 7, dropped: Dropped::SenderGoesOn };
        assert_eq!(heard_by(&office), (0, given_back));
        assert!(!control.has_notice((7, false)) && control.heard().lanes.is_empty());
    }

    #[test]
    fn who_drops_an_end_does_not_wait_for_an_office_that_does_not_read() {
        let (control, office) = conversation();
        let dropped = Dropped::Sender;
        let full = (0..).find(|&lane| {
            control.forget_lane(lane, dropped, true);
            !control.heard().closings.is_empty()
        });
        let last = full.expect("it reads nothing") + 3;
        (last - 2..=last).for_each(|lane| control.forget_lane(lane, dropped, true));
        // What was said before comes first.
        ask_in_vain(&control);
        for lane in 0..=last {
            assert_eq!(heard_by(&office), (0, Request::CloseLane { lane, dropped }));
            control.hear();
        }
        ask_in_vain(&control);
        assert!(matches!(heard_by(&office).1, Request::OpenLane { .. }));
    }
}
