//! A network interface whose cable ends in this process: what the kernel sends is read from a
//! descriptor, what is written there has arrived.

use crate::error::Error;
use crate::namespace::Namespace;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use std::ffi::c_int;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// `struct ifreq` of the kernel, as `TUNSETIFF` reads it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

/// Whole Ethernet frames, with nothing before them.
const TAP_WITHOUT_HEADER: u16 = 0x0002 | 0x1000;
const ATTACH: Opcode = opcode::write::<c_int>(b'T', 202);
const SET_CARRIER: Opcode = opcode::write::<c_int>(b'T', 226);

/// The interface lasts as long as this does.
#[derive(Debug)]
pub(crate) struct Tap {
    descriptor: OwnedFd,
}

impl Tap {
    /// Makes an interface in a namespace. It has no checksum offload: the kernel completes what it
    /// hands over.
    pub(crate) fn new(namespace: &Namespace, interface: &str) -> Result<Self, Error> {
        let what = "opening /dev/net/tun";
        let mut request =
            InterfaceRequest { name: [0; 16], flags: TAP_WITHOUT_HEADER, rest: [0; 22] };
        request.name[..interface.len()].copy_from_slice(interface.as_bytes());
        namespace.run(|| {
            let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let descriptor =
                open("/dev/net/tun", flags, Mode::empty()).map_err(|errno| match errno {
                    Errno::NOENT | Errno::NODEV | Errno::NXIO => Error::Feature {
                        what,
                        way_out: "the relay needs a kernel with CONFIG_TUN and its device",
                    },
                    errno => Error::of(what, "CAP_NET_ADMIN")(errno),
                })?;
            // SAFETY: TUNSETIFF reads and writes a struct ifreq, of which InterfaceRequest has the
            // size and, of the fields that it looks at, the places.
            let attach = unsafe { Updater::<ATTACH, InterfaceRequest>::new(&mut request) };
            // SAFETY: it only attaches an interface to this new descriptor.
            unsafe { ioctl(&descriptor, attach) }
                .map_err(Error::of("making a TAP interface", "CAP_NET_ADMIN"))?;
            Ok(Tap { descriptor })
        })
    }

    /// Whether the interface has a carrier.
    pub(crate) fn set_carrier(&self, carrier: bool) -> Result<(), Error> {
        let mut value = c_int::from(carrier);
        // SAFETY: TUNSETCARRIER reads one int.
        let set = unsafe { Updater::<SET_CARRIER, c_int>::new(&mut value) };
        // SAFETY: it changes nothing but the state of the interface.
        unsafe { ioctl(&self.descriptor, set) }
            .map_err(Error::of("pulling a cable", "CAP_NET_ADMIN"))
    }

    /// The next frame that the node has sent; `None` if there is none now.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Option<usize> {
        rustix::io::read(&self.descriptor, buffer).ok()
    }

    /// Lets a frame arrive at the node. One whose interface is down does not hear it, as with a
    /// cable.
    pub(crate) fn send(&self, frame: &[u8]) {
        let _ = rustix::io::write(&self.descriptor, frame);
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

const _: () = assert!(size_of::<InterfaceRequest>() == 40);
