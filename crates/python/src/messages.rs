//! Messages between two ranks.

use crate::errors::exception;
use crate::interrupts::wait_in_slices;
use crate::memory::Memory;
use crate::request::Request;
use crate::started::{Started, Used};
use crate::status::Status;
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::Instant;
use tradewind::{Communicator, Source, Tag, interop};

fn source_of(source: Option<u32>) -> Source {
    source.map_or(Source::Any, Source::Rank)
}

fn tag_of(tag: Option<u32>) -> Tag {
    tag.map_or(Tag::Any, Tag::Is)
}

/// Starts an operation on the memory of a message.
///
/// # Safety
/// `start` keeps slices of the memory only in its result.
unsafe fn begin(
    communicator: Arc<Communicator>,
    memory: Memory,
    start: impl FnOnce(&'static Communicator, &Memory) -> tradewind::Result<Started>,
) -> PyResult<Request> {
    // SAFETY: the request keeps the communicator, and drops the operation that borrows it before.
    let borrowed = unsafe { &*Arc::as_ptr(&communicator) };
    let started = start(borrowed, &memory).map_err(|error| exception(&error))?;
    Ok(Request::new(started, Used::Message { _communicator: communicator, _memory: memory }))
}

pub(crate) fn start_send(
    communicator: Arc<Communicator>,
    data: &Bound<'_, PyAny>,
    to: u32,
    tag: u32,
    is_synchronous: bool,
) -> PyResult<Request> {
    // SAFETY: the slice is in the request.
    unsafe {
        begin(communicator, Memory::of(data)?, |communicator, memory| {
            let data = memory.slice();
            Ok(Started::Send(match is_synchronous {
                false => communicator.isend(data, to, tag)?,
                true => communicator.issend(data, to, tag)?,
            }))
        })
    }
}

pub(crate) fn post_recv(
    communicator: Arc<Communicator>,
    out: &Bound<'_, PyAny>,
    source: Option<u32>,
    tag: Option<u32>,
) -> PyResult<Request> {
    // SAFETY: the slice is in the request.
    unsafe {
        begin(communicator, Memory::of_output(out)?, |communicator, memory| {
            let buffer = memory.slice_mut();
            Ok(Started::Recv(communicator.irecv(buffer, source_of(source), tag_of(tag))?))
        })
    }
}

/// Describes the message that a receive with this source and tag would take now.
pub(crate) fn find(
    communicator: &Communicator,
    source: Option<u32>,
    tag: Option<u32>,
) -> PyResult<Option<Status>> {
    let found = communicator.iprobe(source_of(source), tag_of(tag));
    found.map(|found| found.map(Status::of)).map_err(|error| exception(&error))
}

/// Waits for a message that a receive with this source and tag would take, and describes it.
pub(crate) fn wait_for(
    communicator: &Communicator,
    py: Python<'_>,
    source: Option<u32>,
    tag: Option<u32>,
) -> PyResult<Status> {
    let has_core = interop::has_cores_for_all(communicator);
    let begun = Instant::now();
    let mut found = None;
    wait_in_slices(py, None, |slice| {
        let end = Instant::now() + slice;
        while Instant::now() < end {
            found = communicator.iprobe(source_of(source), tag_of(tag))?;
            if found.is_some() {
                return Ok(());
            }
            match interop::sleep_after(begun.elapsed(), has_core) {
                Some(time) => std::thread::sleep(time),
                None => std::thread::yield_now(),
            }
        }
        Err(tradewind::Error::Timeout { after: slice, waiting_for: Vec::new() })
    })?;
    match found {
        Some(status) => Ok(Status::of(status)),
        None => unreachable!("the wait ends with a message or an error"),
    }
}
