//! The execution of a rank's runs by one of its threads.

use super::background_need::{self, BackgroundNeed};
use super::losses::Losses;
use super::messages::Messages;
use super::messages::send_credit::frame_bytes;
use super::run::DirectRun;
use super::submissions::{Submissions, Submitted};
use crate::backend::LostRank;
use crate::error::Error;
use crate::node_map::NodeMap;
use crate::runs::clock::{now, until};
use crate::runs::run::Run;
use crate::runs::run_context::RunKey;
use crate::runs::run_table::{EndedRun, RunTable};
use crate::transport::frame::Frame;
use crate::transport::{Arrival, Transport};
use queues::remote_waits::{Drive, Driven};
use shm::published_wait::{self, Wait};
use shm::wait::INTERNODE_POLLING;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of polls without yielding. Ranks may share their core.
const EAGER_POLLS: u32 = 2;

/// The runs of one rank, and its connections.
#[derive(Debug)]
pub(super) struct DirectEngine {
    rank: u32,
    table: RunTable,
    /// Runs under way.
    runs: HashMap<RunKey, Arc<DirectRun>>,
    submissions: Arc<Submissions>,
    arrivals: Vec<Arrival>,
    losses: Arc<Losses>,
    messages: Arc<Messages>,
    /// Ranks with messages in the queues of their connections.
    queued: Vec<Queued>,
    /// True if something has happened to messages that the thread with the engine does not know.
    has_news: bool,
    /// True if a connection has ended that no caller has been notified of.
    has_new_loss: bool,
}

/// Messages in the queue of a rank's connection.
#[derive(Debug)]
struct Queued {
    to: u32,
    /// At least as many bytes as they have there.
    bytes: u64,
    /// Length of the queue when it was last looked at.
    length: u64,
}

/// Returns a time of the clock that the turns read.
fn on_clock(time: Instant) -> u64 {
    let left = time.saturating_duration_since(Instant::now());
    now().saturating_add(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX))
}

impl DirectEngine {
    /// The engine of the transport's node, which has one rank.
    pub(super) fn new(
        nodes: NodeMap,
        transport: Box<dyn Transport>,
        submissions: Arc<Submissions>,
    ) -> Self {
        let messages = Arc::new(Messages::new(transport.nodes()));
        let rank = transport.node();
        let mut table = RunTable::new(nodes, transport);
        // The agents report the exits.
        table.context.has_exit_reports = false;
        DirectEngine {
            rank,
            table,
            runs: HashMap::new(),
            submissions,
            losses: Arc::new(Losses::default()),
            messages,
            queued: Vec::new(),
            has_news: false,
            arrivals: Vec::new(),
            has_new_loss: false,
        }
    }

    /// Returns the parts that are shared with threads that do not have the engine.
    pub(super) fn shared(&self) -> (Arc<Submissions>, Arc<Losses>, Arc<Messages>) {
        let DirectEngine { submissions, losses, messages, .. } = self;
        (Arc::clone(submissions), Arc::clone(losses), Arc::clone(messages))
    }

    /// Processes what has arrived and what was passed. Returns true if there was anything.
    pub(super) fn turn(&mut self) -> bool {
        self.table.context.now = now();
        let had_arrivals = !self.arrivals.is_empty();
        let mut had_messages = false;
        // Arrivals before starts: a run that starts now finds its messages among the unexpected
        // ones.
        for arrival in self.arrivals.drain(..) {
            match arrival {
                Arrival::Frame { node, frame } => match self.table.handle_frame(node, frame) {
                    Some(Frame::Messages { source, records }) if source == node => {
                        self.messages.received.add(node, records);
                        had_messages = true;
                    }
                    // Agents alone send other frames that are for no run.
                    _ => {}
                },
                Arrival::InPlace { node, location, eager } => {
                    self.table.receive_in_place(node, location, eager);
                }
                Arrival::Unreadable { node, route, eager } => {
                    self.table.receive_unreadable(node, route, eager);
                }
                // It fails no run: the rank may have left after its part.
                Arrival::NodeLost { node, why } => {
                    self.table.lose(node);
                    let lost = LostRank { rank: node, why };
                    self.losses.add(lost.clone());
                    self.messages.received.lose(lost);
                    had_messages = true;
                    self.has_new_loss = true;
                }
                Arrival::Connected { .. } | Arrival::Notified(_) => {}
            }
        }
        let submitted = self.submissions.take();
        let had_events = had_arrivals || !submitted.is_empty();
        let Submitted { started, messages, ended } = submitted;
        started.into_iter().for_each(|run| self.start(run));
        for numbers in ended {
            // No check: a rank that counts its own communicators makes no more ranges than it has.
            self.table.end_communicators(self.rank, numbers);
        }
        messages.into_iter().for_each(|(to, records)| self.send(to, records));
        self.table.advance();
        self.end_runs();
        had_messages |= self.has_found_space();
        if had_messages {
            self.has_news = true;
            self.messages.received.notify();
        }
        had_events
    }

    /// Appends a frame of records to the queue of a rank.
    fn send(&mut self, to: u32, records: Vec<u8>) {
        let bytes = frame_bytes(records.len());
        let source = self.table.transport().node();
        self.table.transport().send(to, Frame::Messages { source, records });
        match self.queued.iter_mut().find(|queued| queued.to == to) {
            Some(queued) => queued.bytes += bytes,
            None => self.queued.push(Queued { to, bytes, length: 0 }),
        }
    }

    /// Notes which messages have left the queues of their connections. Returns true if a thread
    /// waits for space there.
    fn has_found_space(&mut self) -> bool {
        if self.queued.is_empty() {
            return false;
        }
        let DirectEngine { queued, table, messages, .. } = self;
        let mut has_left = false;
        queued.retain_mut(|Queued { to, bytes, length }| {
            let before = std::mem::replace(length, table.transport().queued(*to));
            if *length < before {
                messages.send_credit.note_progress(*to);
            }
            // The queue may also have bytes of collectives. Those before the messages delay them.
            // As long as there are many behind them, messages that have left still count, never
            // fewer than are there.
            let left = (*bytes).min(*length);
            if left < *bytes {
                messages.send_credit.sent(*to, *bytes - left);
                has_left = true;
            }
            *bytes = left;
            left > 0
        });
        // Perhaps too little: the thread then requests it once more.
        has_left && messages.send_credit.take_request()
    }

    fn start(&mut self, run: Arc<DirectRun>) {
        if let Err(error) = self.table.count_start(run.key) {
            return run.finish(None, false, Err(error));
        }
        let prepared = run.prepare();
        let schedule = Arc::clone(run.registered());
        let key = run.key;
        // Before the table starts it: the run may end there, and `end_runs` takes it from here.
        self.runs.insert(key, run);
        self.table.start(key, schedule, prepared);
    }

    /// Hands the results of runs that have ended to their callers.
    fn end_runs(&mut self) {
        if self.table.ended.is_empty() {
            return;
        }
        let mut ended = std::mem::take(&mut self.table.ended);
        for run in ended.drain(..) {
            let has_results = run.has_results();
            let EndedRun { key, interpreter, outcome, .. } = run;
            if let Some(run) = self.runs.remove(&key) {
                run.finish(interpreter, has_results, outcome);
            }
        }
        self.table.ended = ended;
        self.submissions.notify_change();
    }

    /// Starts what was passed, of which `run` is one. Takes what has arrived if its messages are
    /// short: a rank that is killed with unread messages resets its connections, and what it has
    /// sent is lost as far as it has not left the system. Long messages wait for the outputs of
    /// the call that waits.
    pub(super) fn begin(&mut self, run: &DirectRun) {
        self.turn();
        if run.schedule.exchanged <= background_need::SHORT {
            // If the system refuses to read, the next wait reports that.
            let _ = self.advance();
        }
    }

    /// Ranges of a buffer that a run still reads.
    pub(super) fn unread(&self, run: &DirectRun, buffer: usize) -> Vec<Range<usize>> {
        let run = self.table.runs.get(&run.key).into_iter();
        let ranges = run.flat_map(|run| run.interpreter.unread(buffer));
        ranges.map(|range| range.start as usize..range.end as usize).collect()
    }

    /// Processes what has arrived and what was started, with one look at the connections.
    ///
    /// # Errors
    /// If the system refuses to read.
    pub(super) fn advance(&mut self) -> Result<(), Error> {
        let polled = self.table.poll(&mut self.arrivals);
        self.turn();
        polled
    }

    /// Processes what was started and what has arrived, without waiting. Returns true if something
    /// had arrived.
    ///
    /// # Errors
    /// If the system refuses to read.
    pub(super) fn poll(&mut self) -> Result<bool, Error> {
        self.turn();
        self.table.wait(Some(Duration::ZERO), &mut self.arrivals)?;
        Ok(self.turn())
    }

    /// The same until nothing arrives, or another thread needs the engine.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub(super) fn poll_all(&mut self) -> Result<(), Error> {
        while self.poll()? && !self.submissions.is_interrupted() {}
        Ok(())
    }

    /// Executes runs until this one has ended; false if the deadline has passed, a connection has
    /// ended, or another thread needs the engine. Frames that the kernel has not taken are left.
    ///
    /// # Errors
    /// If the system refuses to read.
    pub(super) fn drive(
        &mut self,
        run: &DirectRun,
        deadline: Option<Instant>,
    ) -> Result<bool, Error> {
        let mut idle = 0u32;
        let mut idle_since = None;
        let mut published = None;
        let end = deadline.map(on_clock);
        let mut turns = 0u64;
        loop {
            idle = if self.turn() { 0 } else { idle.saturating_add(1) };
            if run.has_ended() {
                return Ok(true);
            }
            if self.has_new_loss || self.submissions.is_interrupted() || self.is_over(end, turns) {
                return Ok(false);
            }
            turns += 1;
            // The rest of a long message is on its way, perhaps from a rank on this core.
            if self.table.has_transferred() {
                idle_since = None;
            }
            if let Some(time) = self.poll_unless_idle(idle, &mut idle_since, INTERNODE_POLLING)? {
                if published.is_none() {
                    published = published_wait::publish(Wait::BetweenNodes);
                }
                let limit = deadline.map(|deadline| deadline.saturating_duration_since(time));
                self.sleep(limit, self.submissions.notifications())?;
            }
        }
    }

    /// Takes what arrives and sends what is passed, until `poll` returns true. It is called first,
    /// and whenever there is news of messages or a notification.
    ///
    /// # Errors
    /// If the system refuses to read.
    pub(super) fn drive_messages(
        &mut self,
        drive: &Drive,
        poll: &mut dyn FnMut() -> bool,
    ) -> Result<Driven, Error> {
        let mut idle = 0u32;
        let mut idle_since = None;
        let mut polling = drive.polling;
        let mut notified = None;
        let mut losses = self.losses.count();
        let end = drive.until.map(on_clock);
        let mut turns = 0u64;
        loop {
            idle = if self.turn() { 0 } else { idle.saturating_add(1) };
            // Before the poll: one behind it keeps the thread from sleeping.
            let notifications = self.submissions.notifications();
            let has_news = std::mem::take(&mut self.has_news);
            if has_news || notified != Some(notifications) || drive.polls_always {
                notified = Some(notifications);
                if poll() {
                    return Ok(Driven::Complete);
                }
            }
            let before = std::mem::replace(&mut losses, self.losses.count());
            // The caller checks the ranks that it waits for.
            if self.submissions.is_interrupted() || losses != before || self.is_over(end, turns) {
                return Ok(Driven::Idle);
            }
            turns += 1;
            if self.table.has_transferred() {
                idle_since = None;
                polling = INTERNODE_POLLING;
            }
            if let Some(time) = self.poll_unless_idle(idle, &mut idle_since, polling)? {
                if !drive.sleeps {
                    return Ok(Driven::Idle);
                }
                let limit = drive.until.map(|until| until.saturating_duration_since(time));
                self.sleep(limit, notifications)?;
            }
        }
    }

    /// Polls the connections in a turn of a wait. Instead returns the time if nothing has happened
    /// during `polling`: the thread may sleep then.
    #[inline]
    fn poll_unless_idle(
        &mut self,
        idle: u32,
        idle_since: &mut Option<Instant>,
        polling: Duration,
    ) -> Result<Option<Instant>, Error> {
        // The first polls find most messages. They read no clock.
        if idle < EAGER_POLLS {
            *idle_since = None;
        } else {
            let time = Instant::now();
            let since = *idle_since.get_or_insert(time);
            if time.saturating_duration_since(since) >= polling {
                return Ok(Some(time));
            }
            // With more ranks than cores the awaited rank may run on this one.
            std::thread::yield_now();
        }
        self.table.poll(&mut self.arrivals)?;
        Ok(None)
    }

    /// Returns true if a time of the clock is over. Every turn reads the clock, so a wait ends in
    /// time also while something arrives all the time. The first turns look at the connections in
    /// any case: a loop of waits without time receives.
    fn is_over(&self, end: Option<u64>, turns: u64) -> bool {
        turns >= u64::from(EAGER_POLLS) && end.is_some_and(|end| self.table.context.now >= end)
    }

    /// Sleeps until something arrives, another thread submits something, a computation ends, or the
    /// time is over; not at all if there have been more `notifications`.
    fn sleep(&mut self, limit: Option<Duration>, notifications: u64) -> Result<(), Error> {
        let timeout = if self.submissions.prepare_sleep(notifications) {
            self.next_timer().map(until).into_iter().chain(limit).min()
        } else {
            Some(Duration::ZERO)
        };
        let slept = self.table.wait(timeout, &mut self.arrivals);
        self.submissions.end_sleep();
        slept
    }

    /// Returns what must advance without a call of the rank. Everything must if there is something
    /// left to send, a computation ends, or more may arrive than the `held` bytes that a connection
    /// holds. A run in the buffers of a call is executed by that call, which also
    /// sends what is queued.
    pub(super) fn background_need(&self, held: u64) -> BackgroundNeed {
        let mut exchanged = 0u64;
        let mut has_in_place = false;
        let mut needs_looks = false;
        for run in self.runs.values() {
            has_in_place |= run.is_in_place;
            if !run.is_in_place {
                exchanged = exchanged.saturating_add(run.schedule.exchanged);
                needs_looks |= !run.schedule.is_blocking;
            }
        }
        // Between turns both tables have the same runs. No key is looked up unless one is in place.
        let is_in_place =
            |key| has_in_place && self.runs.get(key).is_some_and(|run| run.is_in_place);
        if exchanged > held
            || self.next_timer().is_some()
            || self.table.runs.iter().any(|(key, run)| run.has_unsent() && !is_in_place(key))
            || (!has_in_place && self.table.has_queued())
        {
            BackgroundNeed::Always
        } else if needs_looks || self.messages.is_open() {
            BackgroundNeed::Looks
        } else {
            BackgroundNeed::Nothing
        }
    }

    /// Time at which the next computation ends, in nanoseconds of the engine's clock.
    pub(super) fn next_timer(&self) -> Option<u64> {
        self.table.context.timers.next()
    }

    /// Ends a run before its end, because its caller leaves: for all ranks, unless they have
    /// everything that they need from here.
    pub(super) fn cancel(&mut self, run: &DirectRun) {
        // The run may not have been taken from the submissions yet.
        self.turn();
        if self.table.runs.get(&run.key).is_some_and(Run::has_unsent) {
            let rank = run.key.rank;
            let why = format!("rank {rank} of the job has left this collective after an error");
            self.table.finish(run.key, Err(Error::Operation(why)));
        } else {
            let why = "this rank has left the collective".into();
            self.table.withdraw(run.key, Error::Operation(why));
        }
        self.turn();
    }

    /// Ranks that a run waits for at this moment.
    pub(super) fn waiting_for(&self, run: &DirectRun) -> Vec<u32> {
        let ranks = self.table.runs.get(&run.key).map(Run::waiting_for);
        ranks.into_iter().flatten().collect()
    }

    /// Sends the ranks that a run waits for a sign of it.
    pub(super) fn announce_wait(&mut self, run: &DirectRun) {
        self.table.announce_wait(run.key);
        self.turn();
    }

    /// Returns true if a connection has ended since the last call.
    pub(super) fn take_new_loss(&mut self) -> bool {
        std::mem::take(&mut self.has_new_loss)
    }

    /// Returns true if there are messages for a run that has not started.
    pub(super) fn has_unexpected(&self, key: RunKey) -> bool {
        self.table.has_unexpected(key)
    }

    /// Runs with messages that have not been handed to the transport, and the ranks of the job that
    /// each waits for.
    pub(super) fn unsent(&self) -> Vec<(RunKey, Vec<u32>)> {
        let unsent = self.table.runs.iter().filter(|(_, run)| run.has_unsent());
        unsent.map(|(key, run)| (*key, run.waiting_for().into_iter().collect())).collect()
    }

    /// Returns true if the kernel of another rank has not acknowledged everything.
    pub(super) fn has_unacknowledged(&self) -> bool {
        let is_awaited = |rank| !self.messages.send_credit.is_given_up(rank);
        self.table.has_unacknowledged(is_awaited)
    }
}
