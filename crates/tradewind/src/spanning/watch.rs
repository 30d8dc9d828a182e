//! Who is gone, for engines that cannot know: a program in the kernel hears nothing of processes.
//!
//! The general engine does. So a rank that has waited for a while has that engine run a schedule
//! which waits for messages from every other rank, which nobody sends: it ends when one of them, or
//! a node, is gone. It has a communicator's number of its own, so the other ranks need not take
//! part, and nothing travels.

use super::Span;
use crate::error::Result;
use goal::compile::compile;
use goal::graph::{Blocks, Graph};
use network::carrier::{Carrier, Context, Error, Ticket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A rank that is gone may have done its part before: what it has started the kernel carries
/// through. So much time all others have to do theirs before it is blamed.
const GRACE: Duration = Duration::from_secs(2);
/// The same for a rank that has left in order. It may have left because of a node that is about to
/// be found unreachable, which is then the cause that the others want to hear of.
const GRACE_OF_LEAVERS: Duration = Duration::from_secs(20);
/// How long a look takes.
const GLANCE: Duration = Duration::from_micros(100);
/// Numbers of communicators from here on belong to watches.
const WATCHES: u32 = 1 << 31;

/// Runs that end when somebody is gone.
#[derive(Debug)]
pub(super) struct Watch {
    carrier: Arc<dyn Carrier>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The run that watches those who are left.
    ticket: Option<Ticket>,
    /// Who has left in order, and when that was noticed.
    leavers: Vec<(u32, Instant, Error)>,
    /// What else was noticed, and when.
    noticed: Option<(Instant, Error)>,
}

impl Watch {
    /// Begins to watch the other ranks of a communicator.
    pub(super) fn begin(span: &Span, carrier: &Arc<dyn Carrier>) -> Result<Self> {
        let ticket = Some(start(span, carrier, &[])?);
        let state = Mutex::new(State { ticket, leavers: Vec::new(), noticed: None });
        Ok(Watch { carrier: Arc::clone(carrier), state })
    }

    /// Why a run that is not complete never will be; `awaited` are the ranks of the job whose
    /// messages it waits for.
    pub(super) fn verdict(&self, span: &Span, awaited: impl FnOnce() -> Vec<u32>) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // To wait is also to see whether the node service, in which the run is, is still there.
        let ended = |ticket: &Ticket| self.carrier.wait(*ticket, Some(Instant::now() + GLANCE));
        let ended =
            state.ticket.as_ref().map(ended).transpose().map_err(|error| span.explain(error))?;
        if let Some(ticket) = state.ticket.filter(|_| ended == Some(true)) {
            state.ticket = None;
            // It has ended, and not because somebody sent something.
            match self.carrier.fetch(ticket, &mut []).err() {
                Some(error @ Error::RankFailed { rank, .. }) if error.has_left() => {
                    state.leavers.push((rank, Instant::now(), error));
                    let leavers: Vec<u32> = state.leavers.iter().map(|(rank, ..)| *rank).collect();
                    state.ticket = Some(start(span, &self.carrier, &leavers)?);
                }
                error => state.noticed = error.map(|error| (Instant::now(), error)),
            }
        }
        if let Some((when, error)) = &state.noticed
            && (matches!(error, Error::NodeUnreachable { .. }) || when.elapsed() >= GRACE)
        {
            return Err(span.explain(error.clone()));
        }
        let overdue =
            state.leavers.iter().filter(|(_, when, _)| when.elapsed() >= GRACE_OF_LEAVERS);
        let overdue: Vec<&(u32, Instant, Error)> = overdue.collect();
        if overdue.is_empty() {
            return Ok(());
        }
        let awaited = awaited();
        let blamed = overdue.into_iter().find(|(rank, ..)| awaited.contains(rank));
        blamed.map_or(Ok(()), |(.., error)| Err(span.explain(error.clone())))
    }
}

/// Starts a run that waits for all other ranks but those that have left.
fn start(span: &Span, carrier: &Arc<dyn Carrier>, leavers: &[u32]) -> Result<Ticket> {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let here = span.context.members[span.rank() as usize];
    let members: Arc<[u32]> =
        span.context.members.iter().copied().filter(|rank| !leavers.contains(rank)).collect();
    let rank = members.iter().position(|rank| *rank == here).unwrap_or(0) as u32;
    let mut graph = Graph::new(rank, members.len() as u32);
    for other in (0..members.len() as u32).filter(|other| *other != rank) {
        graph.receive(Blocks::none(), other, 0);
    }
    // Different from that of every watch of every rank; what other ranks do with the number is
    // never compared.
    let count = STARTED.fetch_add(1, Ordering::Relaxed) & 0xffff;
    let context = Context { number: WATCHES | (here & 0x7fff) << 16 | count, members, rank };
    let failed = |error| span.explain(error);
    let prepared = carrier.prepare(&context, &compile(&graph)?, 0).map_err(failed)?;
    let started = carrier.start(prepared, 0, &[]).map_err(failed);
    carrier.release(prepared);
    started
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(ticket) = self.state.get_mut().unwrap_or_else(PoisonError::into_inner).ticket {
            self.carrier.forget(ticket);
        }
    }
}
