//! A schedule between nodes, and its runs.

use super::Span;
use super::recording::Recording;
use crate::error::{Awaited, Error, Result};
use engine::call::Call;
use engine::lane::Argument;
use goal::graph::Access;
use goal::schedule::{BufferRecord, Kind, Schedule};
use network::carrier::{Carrier, Error as CarrierError, Exit, Prepared, Ticket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How often a rank that waits looks after what it has to do in communicators of its node, if there
/// ever was anything.
const GLANCE: Duration = Duration::from_millis(1);

/// How long a run has been waited for when the rank first asks whether anybody is gone, and how
/// long it is at most until it asks again: each time twice as long.
const LOOK_OUT: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(400)];

/// A rank that only looks whether a run is complete reads the clock every so often.
const LOOKS: u32 = 256;

/// A schedule that an engine between nodes has taken.
#[derive(Debug)]
pub(crate) struct Carried {
    span: Arc<Span>,
    carrier: Arc<dyn Carrier>,
    prepared: Prepared,
    call: Call,
    buffers: Vec<BufferRecord>,
    recording: Option<Recording>,
}

impl Drop for Carried {
    fn drop(&mut self) {
        self.carrier.release(self.prepared);
    }
}

impl Carried {
    pub(crate) fn prepare(
        span: &Arc<Span>,
        carrier: &Arc<dyn Carrier>,
        schedule: &Schedule,
        call: Call,
    ) -> Result<Arc<Self>> {
        // Counted whether it is taken or not: on all ranks alike.
        let program = span.programs.fetch_add(1, Ordering::Relaxed);
        if schedule.view().operations().iter().any(|record| record.kind() == Kind::Join) {
            return Err(Error::SeveralNodes { what: "joins of a schedule of one's own" });
        }
        let prepared = carrier
            .prepare(&span.context, schedule, call.stamp())
            .map_err(|error| span.explain(error))?;
        let recording = Recording::new(span, program, schedule, call);
        let (span, carrier, buffers) =
            (Arc::clone(span), Arc::clone(carrier), schedule.view().buffers().to_vec());
        Ok(Arc::new(Carried { span, carrier, prepared, call, buffers, recording }))
    }

    /// Starts a run with private buffers, one for each that the schedule has.
    pub(crate) fn start(self: &Arc<Self>, arguments: &[Argument<'_>]) -> Result<Flight> {
        if arguments.len() != self.buffers.len() {
            let (expected, found) = (self.buffers.len(), arguments.len());
            return Err(engine::Error::BufferCount { expected, found }.into());
        }
        for (buffer, (argument, record)) in arguments.iter().zip(&self.buffers).enumerate() {
            let found = if reads(record) { argument.data.len() as u64 } else { argument.length };
            if found != record.length {
                let expected = record.length;
                return Err(engine::Error::BufferLength { buffer, expected, found }.into());
            }
        }
        let given: Vec<&[u8]> = arguments.iter().map(|argument| argument.data).collect();
        self.start_bytes(&given)
    }

    /// Starts a run with these contents.
    pub(crate) fn start_bytes(self: &Arc<Self>, given: &[&[u8]]) -> Result<Flight> {
        let inputs: Vec<&[u8]> = given
            .iter()
            .zip(&self.buffers)
            .map(|(data, record)| if reads(record) { *data } else { &[] })
            .collect();
        // As in a group: the collectives of one communicator are started one after the other.
        let sequence = self.span.sequence.load(Ordering::Relaxed);
        self.span.sequence.store(sequence + 1, Ordering::Relaxed);
        let begun = self.recording.as_ref().map_or(0, |recording| recording.begun(sequence));
        match self.carrier.start(self.prepared, sequence, &inputs) {
            Ok(ticket) => Ok(Flight {
                carried: Arc::clone(self),
                ticket: Some(ticket),
                sequence,
                begun,
                looks: AtomicU32::new(0),
                look_out: OnceLock::new(),
            }),
            Err(error) => {
                // It has not taken place: the next one gets its number, as on all other ranks.
                self.span.sequence.store(sequence, Ordering::Relaxed);
                Err(self.span.explain(error))
            }
        }
    }
}

fn reads(record: &BufferRecord) -> bool {
    record.access != Access::Output as u32
}

fn writes(record: &BufferRecord) -> bool {
    record.access != Access::Input as u32
}

/// When a run is to be looked after again.
#[derive(Debug)]
struct LookOut {
    next: Instant,
    pause: Duration,
}

/// A run between nodes.
#[derive(Debug)]
pub(crate) struct Flight {
    carried: Arc<Carried>,
    /// None once it has been fetched.
    ticket: Option<Ticket>,
    sequence: u64,
    /// When it was started, if that is recorded.
    begun: u64,
    /// Since it was first found incomplete.
    looks: AtomicU32,
    look_out: OnceLock<Mutex<LookOut>>,
}

impl Flight {
    pub(crate) fn call(&self) -> Call {
        self.carried.call
    }

    pub(crate) fn ranks(&self) -> u32 {
        self.carried.span.ranks()
    }

    /// The engine that runs it.
    pub(crate) fn carrier(&self) -> &'static str {
        self.carried.carrier.name()
    }

    #[inline]
    pub(crate) fn is_complete(&self) -> bool {
        self.ticket.is_none_or(|ticket| self.carried.carrier.is_complete(ticket))
    }

    /// Whether it is complete; notices now and then that it never will be.
    #[inline]
    pub(crate) fn test(&self) -> Result<bool> {
        let is_complete = self.is_complete();
        // Threads that count at once may lose one another's count, which only delays the look-out.
        let looks = self.looks.load(Ordering::Relaxed).wrapping_add(u32::from(!is_complete));
        self.looks.store(looks, Ordering::Relaxed);
        if !is_complete && looks.is_multiple_of(LOOKS) {
            self.look_out()?;
        }
        Ok(is_complete)
    }

    /// When the next look-out is due.
    fn next_look_out(&self) -> MutexGuard<'_, LookOut> {
        let begin =
            || Mutex::new(LookOut { next: Instant::now() + LOOK_OUT[0], pause: LOOK_OUT[0] });
        self.look_out.get_or_init(begin).lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds out, if that is due, whether anybody is gone without whom it never is complete.
    #[cold]
    fn look_out(&self) -> Result<()> {
        let Some(ticket) = self.ticket else { return Ok(()) };
        let Carried { span, carrier, .. } = &*self.carried;
        let mut look_out = self.next_look_out();
        if Instant::now() < look_out.next {
            return Ok(());
        }
        look_out.pause = LOOK_OUT[1].min(2 * look_out.pause);
        look_out.next = Instant::now() + look_out.pause;
        drop(look_out);
        span.verdict(carrier, ticket)?;
        carrier.look_after(ticket).map_err(|error| span.explain(error))
    }

    pub(crate) fn wait(&self, limit: Option<Duration>) -> Result<()> {
        let Some(ticket) = self.ticket.filter(|_| !self.is_complete()) else { return Ok(()) };
        let Carried { span, carrier, .. } = &*self.carried;
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            // Others may wait for this rank in a communicator of this node before they come here.
            let glance = span.group.look_after_own_work()?.then(|| Instant::now() + GLANCE);
            let look_out = self.next_look_out().next;
            let until = [deadline, glance, Some(look_out)].into_iter().flatten().min();
            if carrier.wait(ticket, until).map_err(|error| span.explain(error))? {
                return Ok(());
            }
            self.look_out()?;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break;
            }
        }
        let mut awaited: Vec<u32> =
            carrier.awaited(ticket).into_iter().filter_map(|rank| span.rank_of(rank)).collect();
        awaited.sort_unstable();
        awaited.dedup();
        let waiting_for = awaited
            .into_iter()
            .filter_map(|rank| Some(Awaited { rank, node: span.node_of(rank)? }));
        Err(Error::NotComplete {
            after: limit.unwrap_or_default(),
            waiting_for: waiting_for.collect(),
        })
    }

    /// Copies the results to where they are wanted, by buffer. A second call does nothing.
    pub(crate) fn fetch(&mut self, outputs: &mut [&mut [u8]]) -> Result<()> {
        let Some(ticket) = self.ticket.take() else { return Ok(()) };
        let Carried { span, carrier, buffers, recording, .. } = &*self.carried;
        if let Some(recording) = recording {
            recording.ended(self.sequence, self.begun, &carrier.times(ticket));
        }
        let mut outputs = outputs.iter_mut();
        let mut wanted: Vec<&mut [u8]> = Vec::with_capacity(buffers.len());
        for record in buffers {
            match outputs.next() {
                Some(output) if writes(record) => wanted.push(output),
                _ => wanted.push(&mut []),
            }
        }
        carrier.fetch(ticket, &mut wanted).map_err(|error| span.explain(error))
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            if let Some(recording) = &self.carried.recording {
                recording.abandoned(self.sequence);
            }
            self.carried.carrier.forget(ticket);
        }
    }
}

impl Span {
    /// An engine's error in the words of the communicator: with its own ranks, and calls by name.
    pub(super) fn explain(&self, error: CarrierError) -> Error {
        match error {
            CarrierError::RankFailed { rank: member, how } => match self.rank_of(member) {
                Some(rank) => Error::Network(CarrierError::RankFailed { rank, how }),
                None => Error::Network(CarrierError::RankFailed {
                    rank: member,
                    how: Exit::Failed(format!("of the job {how}")),
                }),
            },
            CarrierError::DivisionByZero { rank, vertex, .. } => {
                engine::Error::DivisionByZero { rank, vertex }.into()
            }
            CarrierError::Mismatch { sequence, ours, rank, theirs } => {
                Error::DifferentCollectives {
                    sequence,
                    rank: self.rank(),
                    ours: Call::kind_of(ours).name(),
                    other: self.rank_of(rank).unwrap_or(rank),
                    theirs: Call::kind_of(theirs).name(),
                }
            }
            other => Error::Network(other),
        }
    }
}
