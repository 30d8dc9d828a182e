//! Lower bound of a message between nodes: plain sockets (figure 4a's user-space line).

use super::lap::StartBarrier;
use super::row::{Kind, Row};
use super::setting::Setting;
use crate::harness::Error;
use crate::harness::clock::{microseconds, now_ns};
use std::io::ErrorKind;
use std::net::UdpSocket;

/// Bytes of a message.
const BYTES: usize = 8;
/// Time without a message after which one counts as lost.
const TIME_LIMIT: std::time::Duration = std::time::Duration::from_secs(2);

/// Half a round trip between two connected sockets, once with ranks that sleep in their calls and
/// once with ranks that look all the time.
///
/// # Errors
/// When a socket fails, or a message is lost.
pub fn sockets(pair: &[UdpSocket; 2], setting: &Setting) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for (engine, looks) in [("socket, sleeping", false), ("socket, looking", true)] {
        for socket in pair {
            socket.set_nonblocking(looks)?;
            socket.set_read_timeout(Some(TIME_LIMIT))?;
        }
        let rounds = (0..setting.rounds.max(1))
            .map(|_| round(pair, setting.calls))
            .collect::<Result<Vec<f64>, _>>()?;
        rows.push(Row::of(Kind::Latency, engine, 2, BYTES as u64, &rounds));
    }
    Ok(rows)
}

fn round(pair: &[UdpSocket; 2], trips: u32) -> Result<f64, Error> {
    let barrier = StartBarrier::new(2);
    let cores = shm::process::allowed_cores();
    let walk = &|rank: usize| -> Result<f64, Error> {
        // Without a core of its own a rank is measured all the same.
        let _ = shm::process::bind_current_thread(cores[rank % cores.len()]);
        let mut message = [0; BYTES];
        barrier.pass(&mut 0);
        let begin = now_ns();
        for _ in 0..trips {
            if rank == 0 {
                pair[0].send(&message)?;
            }
            receive(&pair[rank], &mut message)?;
            if rank == 1 {
                pair[1].send(&message)?;
            }
        }
        Ok(microseconds(begin, now_ns()) / f64::from(2 * trips))
    };
    std::thread::scope(|scope| {
        // Threads of their own, both: they stay bound to their cores.
        let ranks = [0, 1].map(|rank| scope.spawn(move || walk(rank)));
        let [here, there] = ranks.map(|thread| thread.join().unwrap_or(Err(Error::Panicked)));
        there?;
        here
    })
}

fn receive(socket: &UdpSocket, message: &mut [u8]) -> Result<(), Error> {
    let begin = std::time::Instant::now();
    loop {
        match socket.recv(message) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock && begin.elapsed() < TIME_LIMIT => {
                std::hint::spin_loop()
            }
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> [UdpSocket; 2] {
        let sockets = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").expect("loopback"));
        for (one, other) in [(0, 1), (1, 0)] {
            sockets[one].connect(sockets[other].local_addr().expect("bound")).expect("loopback");
        }
        sockets
    }

    #[test]
    fn both_ways_of_waiting_are_measured() {
        let rows = sockets(&pair(), &Setting { calls: 5, ..Setting::quick() })
            .expect("nothing is lost on loopback");
        let engines: Vec<&str> = rows.iter().map(|row| row.engine.as_str()).collect();
        assert_eq!(engines, ["socket, sleeping", "socket, looking"]);
        assert!(rows.iter().all(|row| row.median > 0.0 && row.rounds == 2));
    }
}
