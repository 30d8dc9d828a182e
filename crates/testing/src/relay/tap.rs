//! Network interface with its other end in this process: frames that the kernel sends are read from
//! a descriptor; frames that are written to it arrive at the kernel.

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use std::ffi::c_int;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use virtual_nodes::{Error, Node};

/// `struct ifreq` of the kernel, as `TUNSETIFF` reads it.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: u16,
    padding: [u8; 22],
}

const _: () = assert!(size_of::<InterfaceRequest>() == 40);

/// `IFF_TAP | IFF_NO_PI`: whole Ethernet frames without a header of the driver.
const TAP_WITHOUT_HEADER: u16 = 0x0002 | 0x1000;
const ATTACH: Opcode = opcode::write::<c_int>(b'T', 202);
const SET_CARRIER: Opcode = opcode::write::<c_int>(b'T', 226);

/// TAP interface, which lasts as long as this object.
#[derive(Debug)]
pub(super) struct Tap {
    descriptor: OwnedFd,
}

impl Tap {
    /// Creates the interface of a node. Without checksum offload the kernel completes the checksums
    /// of the frames it sends.
    pub(super) fn new(node: &Node) -> Result<Self, Error> {
        let what = "opening /dev/net/tun";
        let interface = node.interface().as_bytes();
        let mut request =
            InterfaceRequest { name: [0; 16], flags: TAP_WITHOUT_HEADER, padding: [0; 22] };
        request.name[..interface.len()].copy_from_slice(interface);
        node.run(|| {
            let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let descriptor =
                open("/dev/net/tun", flags, Mode::empty()).map_err(|errno| match errno {
                    Errno::NOENT | Errno::NODEV | Errno::NXIO => Error::Feature {
                        what,
                        way_out: "the relay needs a kernel with CONFIG_TUN and its device",
                    },
                    errno => Error::with_right(what, "CAP_NET_ADMIN")(errno),
                })?;
            // SAFETY: TUNSETIFF reads and writes one `ifreq`; the layout is asserted above.
            let attach = unsafe { Updater::<ATTACH, InterfaceRequest>::new(&mut request) };
            // SAFETY: the call creates an interface and touches no other memory of the process.
            unsafe { ioctl(&descriptor, attach) }
                .map_err(Error::with_right("making a TAP interface", "CAP_NET_ADMIN"))?;
            Ok(Tap { descriptor })
        })
    }

    /// Raises or drops the carrier of the interface.
    pub(super) fn set_carrier(&self, carrier: bool) -> Result<(), Error> {
        let mut value = c_int::from(carrier);
        // SAFETY: TUNSETCARRIER reads one int.
        let set = unsafe { Updater::<SET_CARRIER, c_int>::new(&mut value) };
        // SAFETY: the call changes only the state of the interface.
        unsafe { ioctl(&self.descriptor, set) }
            .map_err(Error::with_right("pulling a cable", "CAP_NET_ADMIN"))
    }

    /// Reads the next frame that the node has sent; `None` if there is none.
    pub(super) fn receive(&self, buffer: &mut [u8]) -> Option<usize> {
        rustix::io::read(&self.descriptor, buffer).ok()
    }

    /// Delivers a frame to the node. The kernel drops it if the interface is down, as with a cable.
    pub(super) fn send(&self, frame: &[u8]) {
        let _ = rustix::io::write(&self.descriptor, frame);
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
