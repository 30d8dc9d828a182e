//! The engines that are measured, each with a rank on every host.

use crate::failure::Failure;
use measure::hosts::{Contender, Row, Setting, sockets};
use network::agent::{Limits, local_over};
use network::carrier::{Carrier, Error};
use network::hosts::Hosts;
use network::invitation::random_key;
use network::transport::Transport;
use network::transport::tcp::{Listener, Patience, Tcp};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
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
    Ok(vec![agent(testbed).map_err(measure::Error::from)?])
}

/// The agent engine over TCP.
fn agent(testbed: &Testbed) -> Result<Contender, Error> {
    let hosts = testbed.hosts();
    let listen = |host: &Host| host.run(|| Listener::bind((host.address(), 0)));
    let listeners = hosts.iter().map(listen).collect::<Result<Vec<_>, _>>()?;
    let addresses: Vec<SocketAddr> = listeners.iter().map(Listener::address).collect();
    let key = random_key()?;
    let transports = std::thread::scope(|scope| {
        let connect = |(host, listener): (&Host, Listener)| {
            let number = host.number() as u32;
            host.run(|| Tcp::connect(listener, number, &addresses, key, Patience::default()))
        };
        let connect = &connect;
        // All at once: each waits for all others.
        let threads: Vec<_> = hosts.iter().zip(listeners).map(|pair| scope.spawn(move || connect(pair))).collect();
        let all = threads.into_iter().map(|thread| match thread.join() {
            Ok(connected) => connected.map(|transport| Box::new(transport) as Box<dyn Transport>),
            Err(panic) => std::panic::resume_unwind(panic),
        });
        all.collect::<Result<Vec<_>, Error>>()
    })?;
    let clients = local_over(&Hosts::new(0..hosts.len()), transports, Limits::default())?;
    let carriers = clients.into_iter().map(|client| Arc::new(client) as Arc<dyn Carrier>);
    Ok(Contender::new("agent", carriers.collect()))
}
