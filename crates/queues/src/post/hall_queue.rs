//! A port's queue in its process's hall: the receiving side of all lanes that lead to the port
//! through the hall.

use super::halls::Halls;
use super::inbox::Found;
use super::{Class, PostError, system};
use crate::lane::HallLane;
use crate::table::SourceTable;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// What a look at the queue finds.
pub(super) enum Seen {
    Found(Found),
    /// A lane has ended, which had this number.
    Ended(u32, Found),
}

#[derive(Debug)]
pub(super) struct HallQueue {
    halls: Arc<Halls>,
    sources: Arc<SourceTable>,
    port: usize,
    lanes: Vec<HallLane>,
    /// Some of the lanes wait for their last messages.
    is_anybody_leaving: bool,
    /// Where this inbox sleeps. The event is one for all inboxes of the process, so none may take
    /// it away from the others: each has a set in which every notification is an edge of its own.
    watch: Option<OwnedFd>,
}

impl HallQueue {
    pub(super) fn new(halls: &Arc<Halls>, sources: &Arc<SourceTable>, port: u16) -> HallQueue {
        let (halls, sources) = (Arc::clone(halls), Arc::clone(sources));
        HallQueue {
            halls,
            sources,
            port: port.into(),
            lanes: Vec::new(),
            is_anybody_leaving: false,
            watch: None,
        }
    }

    pub(super) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    pub(super) fn add(&mut self, lane: HallLane) {
        self.lanes.push(lane);
    }

    /// Whether the lane of this number leads here and has not ended.
    pub(super) fn has(&self, number: u32) -> bool {
        self.lanes.iter().any(|lane| lane.number() == number)
    }

    /// Looks which lanes the post office has said something of.
    pub(super) fn look_at_news(&mut self) {
        let hall = self.halls.own();
        for lane in &mut self.lanes {
            self.is_anybody_leaving |= lane.look_at_news(&hall, self.port);
        }
    }

    /// The next message, replies first, or the end of a lane.
    pub(super) fn look(&mut self, bytes: &mut Vec<u8>) -> Result<Option<Seen>, PostError> {
        if self.is_anybody_leaving
            && let Some(ended) = self.see_off()
        {
            return Ok(Some(ended));
        }
        let mut hall = self.halls.own();
        for class in [Class::Reply, Class::Request] {
            while let Some(message) = hall.try_recv(self.port, class)? {
                if self.is_anybody_leaving {
                    self.lanes.iter_mut().for_each(|lane| lane.count_message(class));
                }
                let header = message.header();
                if self.sources.accepts(header.source) {
                    bytes.clear();
                    bytes.extend_from_slice(message.data());
                    let (source, handler) = (header.source, header.handler);
                    return Ok(Some(Seen::Found(Found::Message { source, handler, class })));
                }
            }
        }
        Ok(None)
    }

    /// A lane whose last message has been received.
    #[cold]
    fn see_off(&mut self) -> Option<Seen> {
        let hall = self.halls.own();
        let ended = self.lanes.iter_mut().position(|lane| lane.is_drained(&hall, self.port));
        drop(hall);
        let lane = self.lanes.swap_remove(ended?);
        self.is_anybody_leaving = self.lanes.iter().any(HallLane::is_leaving);
        let number = lane.number();
        Some(Seen::Ended(number, Found::Lost(lane.into_error()?)))
    }

    /// Has senders notify the event from now on; gives whether something waits already.
    pub(super) fn announce_sleep(&mut self) -> Result<bool, PostError> {
        let watch = match &self.watch {
            Some(watch) => watch,
            None => {
                let watch = epoll::create(CreateFlags::CLOEXEC)
                    .map_err(system("make a set of descriptors"))?;
                let flags = EventFlags::IN | EventFlags::ET;
                epoll::add(&watch, self.halls.event(), EventData::new_u64(0), flags)
                    .map_err(system("watch the hall's event"))?;
                self.watch.insert(watch)
            }
        };
        // What was notified so far; after the request below, every notification shows.
        let mut edges = Vec::with_capacity(1);
        match epoll::wait(
            watch,
            rustix::buffer::spare_capacity(&mut edges),
            Some(&Timespec::default()),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(system("look at the hall's event")(error)),
        }
        let mut hall = self.halls.own();
        hall.request_arrival();
        Ok([Class::Reply, Class::Request]
            .into_iter()
            .any(|class| hall.needs_poll(self.port, class)))
    }

    /// Readable when something was notified since the last [announcement](Self::announce_sleep).
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }
}
