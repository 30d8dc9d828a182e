//! Who is gone, for engines that cannot know: a program in the kernel hears nothing of processes.
//!
//! The general engine does. So a rank that has waited for a while has that engine run a schedule which waits for messages from
//! every other rank, which nobody sends: it ends when one of them, or a host, is gone. It has a communicator's number of its own,
//! so the other ranks need not take part, and nothing travels.

use super::Span;
use crate::error::Result;
use goal::compile::compile;
use goal::graph::{Blocks, Graph};
use network::carrier::{Carrier, Context, Error, Ticket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A rank that is gone may have done its part before: what it has started the kernel carries through. So much time all others
/// have to do theirs before it is blamed.
const GRACE: Duration = Duration::from_secs(2);
/// Numbers of communicators from here on belong to watches.
const WATCHES: u32 = 1 << 31;

/// A run that ends when somebody is gone.
#[derive(Debug)]
pub(super) struct Watch {
    carrier: Arc<dyn Carrier>,
    ticket: Ticket,
    /// What was noticed, and when.
    noticed: Mutex<Option<(Instant, Error)>>,
}

impl Watch {
    /// Begins to watch the other ranks of a communicator.
    pub(super) fn begin(span: &Span, carrier: &Arc<dyn Carrier>) -> Result<Self> {
        static BEGUN: AtomicU32 = AtomicU32::new(0);
        let (rank, ranks) = (span.rank(), span.ranks());
        let mut graph = Graph::new(rank, ranks);
        for other in (0..ranks).filter(|other| *other != rank) {
            graph.receive(Blocks::none(), other, 0);
        }
        // Different from that of every watch of every rank; what other ranks do with the number is never compared.
        let count = BEGUN.fetch_add(1, Ordering::Relaxed) & 0xffff;
        let number = WATCHES | (span.context.members[rank as usize] & 0x7fff) << 16 | count;
        let context = Context { number, ..span.context.clone() };
        let failed = |error| span.explain(error);
        let prepared = carrier.prepare(&context, &compile(&graph)?, 0).map_err(failed)?;
        let ticket = carrier.start(prepared, 0, &[]).map_err(failed)?;
        carrier.release(prepared);
        Ok(Watch { carrier: Arc::clone(carrier), ticket, noticed: Mutex::default() })
    }

    /// Why a run that is not complete never will be.
    pub(super) fn verdict(&self) -> Option<Error> {
        // Held throughout: the run is fetched once.
        let mut noticed = self.noticed.lock().unwrap_or_else(PoisonError::into_inner);
        if noticed.is_none() && self.carrier.is_complete(self.ticket) {
            // It has ended, and not because somebody sent something.
            let error = self.carrier.fetch(self.ticket, &mut []).err()?;
            *noticed = Some((Instant::now(), error));
        }
        let (when, error) = noticed.as_ref()?;
        let is_sure = matches!(error, Error::HostUnreachable { .. }) || when.elapsed() >= GRACE;
        is_sure.then(|| error.clone())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.noticed.get_mut().unwrap_or_else(PoisonError::into_inner).is_none() {
            self.carrier.forget(self.ticket);
        }
    }
}
