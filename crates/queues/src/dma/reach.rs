//! Whether one end can touch the private memory of the other: found out once, by a real transfer.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use super::DirectPath;
use super::error::NoDirectPath;
use super::layout::{Place, other};
use super::process_memory::{self, Refusal};
use crate::channel::End;
use crate::sync::{AtomicU64, Ordering};

/// What one end knows about reaching the other.
#[derive(Debug)]
pub(super) struct Reach {
    end: End,
    /// A word that the other end reads to see whether it reads the right memory.
    token: Box<AtomicU64>,
    known: Option<Result<u32, NoDirectPath>>,
}

impl Reach {
    /// Shows the other end where this one's memory can be reached. To be called by who has taken
    /// the end.
    pub(super) fn new(place: &Place, end: End) -> Self {
        // The standard library's hash keys are random; nothing more is needed to tell two processes
        // apart.
        let token = RandomState::new().build_hasher().finish();
        let reach = Reach { end, token: Box::new(AtomicU64::new(token)), known: None };
        let shown = place.reach(end);
        // Relaxed: the address publishes it.
        shown.token.store(token, Ordering::Relaxed);
        // Release: pairs with the Acquire in `probe`.
        shown.address.store(&raw const *reach.token as u64, Ordering::Release);
        reach
    }

    /// The number of the process at the other end if its memory can be touched. Tried when the
    /// other end was opened.
    pub(super) fn find_out(&mut self, place: &Place) -> Result<u32, NoDirectPath> {
        if let Some(known) = &self.known {
            return known.clone();
        }
        let found = self.probe(place);
        if !matches!(found, Err(NoDirectPath::Unknown)) {
            // Release: pairs with the Acquire in `other_can`; it publishes nothing but itself.
            place
                .reach(self.end)
                .verdict
                .store(if found.is_ok() { 1 } else { 2 }, Ordering::Release);
            self.known = Some(found.clone());
        }
        found
    }

    fn probe(&self, place: &Place) -> Result<u32, NoDirectPath> {
        let process = place.mark(other(self.end)).holder().pid();
        let shown = place.reach(other(self.end));
        // Acquire: pairs with the Release in `new`. Relaxed: the address published it.
        let (address, token) =
            (shown.address.load(Ordering::Acquire), shown.token.load(Ordering::Relaxed));
        if process == 0 || address == 0 {
            return Err(NoDirectPath::Unknown);
        }
        let mut read = [0; 8];
        match process_memory::read(process, address, &mut read) {
            Ok(()) if u64::from_ne_bytes(read) == token => Ok(process),
            Ok(()) | Err(Refusal::NoProcess | Refusal::NotMapped { .. }) => {
                Err(NoDirectPath::OtherNamespace { process })
            }
            Err(Refusal::Forbidden(error) | Refusal::Failed(error)) => {
                Err(NoDirectPath::Forbidden { process, reason: error.to_string() })
            }
        }
    }

    /// Whether the other end has found out that it can touch this one's memory.
    pub(super) fn other_can(&self, place: &Place) -> bool {
        // Acquire: pairs with the Release in `find_out`.
        place.reach(other(self.end)).verdict.load(Ordering::Acquire) == 1
    }

    /// What is known about the direct path, for people and programs that choose.
    pub(super) fn direct_path(&mut self, place: &Place) -> DirectPath {
        let here = self.find_out(place).map(|_| ());
        DirectPath { here, there: self.other_can(place) }
    }
}
