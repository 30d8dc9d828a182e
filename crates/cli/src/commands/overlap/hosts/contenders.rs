//! The engines that are measured, each with a rank on every host.

use crate::failure::Failure;
use measure::hosts::{Contender, Row, Setting, sockets};
use std::net::UdpSocket;
use testbed::{Host, Testbed};

/// The port of the plain sockets.
const PORT: u16 = 5411;

/// What a message needs at least: plain sockets on the first two hosts.
pub(super) fn floor(testbed: &Testbed, setting: &Setting) -> Result<Vec<Row>, Failure> {
    let [one, other, ..] = testbed.hosts() else { return Ok(Vec::new()) };
    let bind = |host: &Host, peer: &Host| -> std::io::Result<UdpSocket> {
        let socket = host.run(|| UdpSocket::bind((host.address(), PORT)))?;
        socket.connect((peer.address(), PORT))?;
        Ok(socket)
    };
    let pair = [bind(one, other), bind(other, one)];
    let [Ok(here), Ok(there)] = pair else {
        let why = pair.into_iter().find_map(Result::err).unwrap_or_else(|| std::io::ErrorKind::Other.into());
        return Err(measure::Error::from(why).into());
    };
    Ok(sockets(&[here, there], setting)?)
}

/// All engines between hosts that this machine has.
pub(super) fn of(testbed: &Testbed) -> Result<Vec<Contender>, Failure> {
    let _ = testbed;
    Ok(Vec::new())
}
