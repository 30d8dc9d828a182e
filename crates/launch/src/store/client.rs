//! A rank's connection with the process that holds the values.

use super::error::{Error, system};
use super::messages::{
    self, ANSWER_BYTES, Frame, LENGTH_BYTES, LONGEST_FRAME, PROOF_BYTES, Values,
};
use super::shared_secret::{Handshake, SharedSecret, Side};
use crate::secret::Secret;
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Longest time for one attempt to connect: a firewall may drop all packets, and the next address
/// may be reachable.
const ATTEMPT: Duration = Duration::from_secs(3);
/// Longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
/// Time by which a rank waits longer than the server, so that the server's report of missing ranks
/// arrives.
const BEHIND_SERVER: Duration = Duration::from_secs(3);

/// A rank's connection. Dropping it before [`finish`](Client::finish) ends the exchange for all
/// ranks.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    address: SocketAddr,
    limit: Duration,
    secret: Secret,
    put: Values,
    values: HashMap<String, String>,
}

/// Formats a host and a port.
pub(super) fn show(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// An end of an attempt to connect.
enum Attempt {
    /// The next attempt may succeed.
    Retry(String),
    /// No attempt can succeed.
    Fatal(Error),
}

impl Client {
    /// Connects as a rank with the server at one of `hosts`, which may start later, within `limit`.
    /// `origin` names the variables from which the addresses are.
    ///
    /// # Errors
    /// If the server is not reached in time, or has another secret.
    pub fn connect(
        hosts: &[(String, u16)],
        origin: &str,
        secret: &SharedSecret,
        (rank, ranks): (u32, u32),
        limit: Duration,
    ) -> Result<Self, Error> {
        let deadline = Instant::now() + limit;
        let mut pause = Duration::from_millis(5);
        loop {
            let mut why = "no address".to_owned();
            for (host, port) in hosts {
                let addresses = match (host.as_str(), *port).to_socket_addrs() {
                    Ok(addresses) => addresses,
                    Err(error) => {
                        why = format!("{host} cannot be resolved: {error}");
                        continue;
                    }
                };
                for address in addresses {
                    match attempt(address, origin, secret, (rank, ranks), deadline) {
                        Ok((stream, secret)) => {
                            let put = Values::new();
                            let values = HashMap::new();
                            return Ok(Client { stream, address, limit, secret, put, values });
                        }
                        Err(Attempt::Retry(error)) => why = format!("{address}: {error}"),
                        // With several addresses, one may be another node's.
                        Err(Attempt::Fatal(error)) if hosts.len() == 1 => return Err(error),
                        Err(Attempt::Fatal(error)) => why = error.to_string(),
                    }
                }
            }
            if Instant::now() >= deadline {
                let all: Vec<String> = hosts.iter().map(|(host, port)| show(host, *port)).collect();
                return Err(Error::Unreachable {
                    rank,
                    addresses: all.join(" or "),
                    origin: origin.into(),
                    waited: limit,
                    why,
                });
            }
            std::thread::sleep(pause.min(deadline.saturating_duration_since(Instant::now())));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Returns the secret of the job, the same for all ranks.
    pub fn secret(&self) -> Secret {
        self.secret.clone()
    }

    /// Enters a value under a key that no other rank uses.
    pub fn put(&mut self, key: &str, value: &str) {
        self.put.push((key.into(), value.into()));
    }

    /// Waits until all ranks have called it, and receives their values.
    ///
    /// # Errors
    /// If a rank is missing, has ended, or the connection fails.
    pub fn fence(&mut self) -> Result<(), Error> {
        let put = std::mem::take(&mut self.put);
        self.send(&Frame::Fence(put))?;
        match self.receive()? {
            Frame::Fence(values) => {
                self.values.extend(values);
                Ok(())
            }
            Frame::Failed(why) => Err(Error::Failed(why)),
            Frame::Finish => Err(Error::Ended { address: self.address }),
        }
    }

    /// Looks up a value that a rank has put before the last fence.
    pub fn get(&self, key: &str) -> Option<String> {
        self.values.get(key).cloned()
    }

    /// Ends the exchange of this rank in order.
    ///
    /// # Errors
    /// If the connection fails.
    pub fn finish(mut self) -> Result<(), Error> {
        self.send(&Frame::Finish)
    }

    fn send(&mut self, frame: &Frame) -> Result<(), Error> {
        let sent = self.stream.write_all(&frame.encode());
        // A server that has failed has sent the reason before it closed the connection.
        sent.or_else(|_| match self.receive()? {
            Frame::Failed(why) => Err(Error::Failed(why)),
            _ => Err(Error::Ended { address: self.address }),
        })
    }

    fn receive(&mut self) -> Result<Frame, Error> {
        let waited = self.limit + BEHIND_SERVER;
        let deadline = Instant::now() + waited;
        let address = self.address;
        let ended = Error::Ended { address: self.address };
        let silent = || Error::Silent { address, waited };
        let mut length = [0; LENGTH_BYTES];
        read_exact(&mut self.stream, &mut length, deadline, &silent, &|| Error::Ended { address })?;
        let length = u32::from_le_bytes(length) as usize;
        if length > LONGEST_FRAME {
            return Err(ended);
        }
        let mut contents = vec![0; length];
        read_exact(&mut self.stream, &mut contents, deadline, &silent, &|| Error::Ended {
            address,
        })?;
        Frame::decode(&contents).ok_or(ended)
    }
}

/// Connects with one address, and proves both ends.
fn attempt(
    address: SocketAddr,
    origin: &str,
    secret: &SharedSecret,
    (rank, ranks): (u32, u32),
    deadline: Instant,
) -> Result<(TcpStream, Secret), Attempt> {
    let left = deadline.saturating_duration_since(Instant::now());
    let limit = ATTEMPT.min(left).max(Duration::from_millis(50));
    let retry = |error: std::io::Error| Attempt::Retry(error.to_string());
    let mut stream = TcpStream::connect_timeout(&address, limit).map_err(retry)?;
    // Latency only.
    let _ = stream.set_nodelay(true);
    stream.set_write_timeout(Some(ATTEMPT)).map_err(retry)?;
    let of_client = shm::random::bytes()
        .map_err(|error| Attempt::Fatal(system("get random bytes from the system")(error)))?;
    stream.write_all(&messages::hello(rank, ranks, &of_client)).map_err(retry)?;
    let mut bytes = [0; ANSWER_BYTES];
    // A connection without an answer may be one of too many at once, and a server that is late may
    // be stopped or on a busy node: neither shows that another program listens there.
    let late = || Error::Silent { address, waited: limit };
    let closed = || Error::Ended { address };
    read_exact(&mut stream, &mut bytes, Instant::now() + limit, &late, &closed)
        .map_err(|error| Attempt::Retry(error.to_string()))?;
    let Some((of_server, of_job, proof)) = messages::read_answer(&bytes) else {
        return Err(Attempt::Fatal(Error::OtherProgram { address, origin: origin.into() }));
    };
    let handshake = Handshake { rank, ranks, of_client, of_server, of_job };
    if proof != secret.proof(&handshake, Side::Server) {
        // A wrong proof: rank 0 reports the addresses of processes with another secret. This side
        // has the error in any case.
        let _ = stream.write_all(&[0; PROOF_BYTES]);
        return Err(Attempt::Fatal(Error::OtherSecret { address }));
    }
    stream.write_all(&secret.proof(&handshake, Side::Client)).map_err(retry)?;
    Ok((stream, secret.of_job(&of_job)))
}

/// Reads so many bytes, or returns the error of a time-out or of a closed connection.
fn read_exact(
    stream: &mut TcpStream,
    bytes: &mut [u8],
    deadline: Instant,
    late: &dyn Fn() -> Error,
    closed: &dyn Fn() -> Error,
) -> Result<(), Error> {
    let mut filled = 0;
    while filled < bytes.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late());
        }
        stream.set_read_timeout(Some(left)).map_err(system("set a time limit of a connection"))?;
        match stream.read(&mut bytes[filled..]) {
            Ok(0) => return Err(closed()),
            Ok(count) => filled += count,
            Err(error) => match error.kind() {
                ErrorKind::Interrupted => {}
                ErrorKind::WouldBlock | ErrorKind::TimedOut => return Err(late()),
                _ => return Err(closed()),
            },
        }
    }
    Ok(())
}
