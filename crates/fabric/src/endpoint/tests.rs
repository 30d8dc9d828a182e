//! An endpoint of a provider that fails, which those over sockets do not.

use super::*;
use crate::abi::{CompletionOps, CompletionQueue, ConnectionOps, EndpointFid, Fid, FidOps};
use crate::abi::{Fabric, FabricAttributes, Info, MessageOps};
use crate::library::Functions;
use std::ffi::{c_char, c_int};

unsafe extern "C" fn version() -> u32 {
    0
}

unsafe extern "C" fn get_info(
    _: u32,
    _: *const c_char,
    _: *const c_char,
    _: u64,
    _: *const Info,
    _: *mut *mut Info,
) -> c_int {
    -libc::ENODATA
}

unsafe extern "C" fn free_info(_: *mut Info) {}

unsafe extern "C" fn duplicate_info(_: *const Info) -> *mut Info {
    ptr::null_mut()
}

unsafe extern "C" fn open_fabric(
    _: *mut FabricAttributes,
    _: *mut *mut Fabric,
    _: *mut c_void,
) -> c_int {
    -libc::ENODATA
}

unsafe extern "C" fn close(_: *mut Fid) -> c_int {
    0
}

unsafe extern "C" fn refuse_to_close(_: *mut Fid) -> c_int {
    -libc::EBUSY
}

unsafe extern "C" fn bind(_: *mut Fid, _: *mut Fid, _: u64) -> c_int {
    0
}

unsafe extern "C" fn control(_: *mut Fid, _: c_int, _: *mut c_void) -> c_int {
    0
}

unsafe extern "C" fn name(_: *mut Fid, _: *mut c_void, length: *mut usize) -> c_int {
    // SAFETY: the caller passes a place for the length.
    unsafe { *length = 0 };
    0
}

unsafe extern "C" fn receive(
    _: *mut EndpointFid,
    _: *mut c_void,
    _: usize,
    _: *mut c_void,
    _: u64,
    _: *mut c_void,
) -> isize {
    0
}

unsafe extern "C" fn send(
    _: *mut EndpointFid,
    _: *const c_void,
    _: usize,
    _: *mut c_void,
    _: u64,
    _: *mut c_void,
) -> isize {
    0
}

unsafe extern "C" fn inject(_: *mut EndpointFid, _: *const c_void, _: usize, _: u64) -> isize {
    0
}

unsafe extern "C" fn read(_: *mut CompletionQueue, _: *mut c_void, _: usize) -> isize {
    abi::EAVAIL
}

/// The failure of an injected message.
unsafe extern "C" fn read_error(_: *mut CompletionQueue, entry: *mut ErrorEntry, _: u64) -> isize {
    // SAFETY: the caller passes a place for one entry.
    unsafe {
        (*entry).op_context = ptr::null_mut();
        (*entry).err = libc::EHOSTUNREACH;
    }
    1
}

/// Opens an endpoint of one send and one receive. What the pointers lead to is never freed.
fn endpoint(close_endpoint: unsafe extern "C" fn(*mut Fid) -> c_int) -> Endpoint {
    fn leak<T>(value: T) -> *mut T {
        Box::into_raw(Box::new(value))
    }
    let functions = Functions { version, get_info, free_info, duplicate_info, open_fabric };
    let fid = |close| {
        let ops = leak(FidOps { size: size_of::<FidOps>(), close, bind, control });
        Fid { fclass: 0, context: ptr::null_mut(), ops }
    };
    let queue = leak(CompletionQueue {
        fid: fid(close),
        ops: leak(CompletionOps { size: 0, read, readfrom: ptr::null(), readerr: read_error }),
    });
    let unused = [ptr::null(); 2];
    let messages = MessageOps {
        size: 0,
        recv: receive,
        unused_receives: unused,
        send,
        unused_sends: unused,
        inject,
    };
    let endpoint = leak(EndpointFid {
        fid: fid(close_endpoint),
        ops: ptr::null(),
        cm: leak(ConnectionOps { size: 0, setname: ptr::null(), getname: name }),
        msg: leak(messages),
        rma: ptr::null(),
    });
    let objects = Objects::with_endpoint(functions, endpoint, queue);
    let arena = Arena::new(2, 4096).expect("memory");
    Endpoint::with_objects(objects, arena, 1, 2, 0).expect("nothing fails yet")
}

#[test]
fn the_failure_of_an_injected_message_is_an_event() {
    let mut endpoint = endpoint(close);
    let mut events = Vec::new();
    endpoint.poll(&mut events).expect("the provider works");
    let Some(Event::InjectFailed { why }) = events.first() else { panic!("{events:?}") };
    assert!(why.contains("host"), "{why}");
    assert!(endpoint.take_buffer().is_some() && endpoint.take_buffer().is_none());
}

#[test]
#[should_panic(expected = "another endpoint")]
fn the_buffer_of_another_endpoint_is_refused() {
    let (mut own, mut other) = (endpoint(close), endpoint(close));
    let buffer = other.take_buffer().expect("it is free");
    own.bytes_mut(&buffer).fill(1);
}

#[test]
#[should_panic(expected = "another endpoint")]
fn a_message_of_another_endpoint_is_refused() {
    let own = endpoint(close);
    let other = endpoint(close);
    let message = Received { endpoint: other.id, number: 1, length: 8 };
    own.received(&message);
}

#[test]
fn memory_stays_while_the_provider_keeps_the_endpoint() {
    let endpoint = endpoint(refuse_to_close);
    let start = endpoint.arena.as_ptr();
    let bytes = endpoint.arena.len();
    drop(endpoint);
    // SAFETY: the call fails if the pages are not mapped, and changes none.
    assert_eq!(unsafe { libc::msync(start.cast(), bytes, libc::MS_ASYNC) }, 0);
}
