//! Measures the agent engine between two nodes over TCP and over libfabric, in turns: half a round
//! trip of 8 bytes, the bandwidth of longer messages with eight under way, and the processor time
//! of both nodes for a message. `bench/fabric` runs it beside a program without tradewind.
//!
//! `networks ROUNDS OWN-ADDRESS PROVIDER` on one node, and `networks ROUNDS OWN-ADDRESS PROVIDER
//! OTHER-ADDRESS` on the other one, which prints lines of JSON. `TRADEWIND_LIBFABRIC` names the
//! library.

use fabric::{Endpoint, Library};
use measure::experiments::networks::{NetworkPath, SIZES};
use network::job_nodes::Key;
use network::transport::fabric::{Fabric, READ_FROM, request};
use network::transport::tcp::{Listener, Tcp, Timeouts};
use std::error::Error;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

type Failure = Box<dyn Error + Send + Sync>;

const CONTROL_PORT: u16 = 9494;
const KEY: Key = [5; 16];

/// Connection by which the two programs synchronise.
struct Control(TcpStream);

impl Control {
    fn new(own: IpAddr, other: Option<IpAddr>) -> Result<Self, Failure> {
        let stream = match other {
            None => TcpListener::bind((own, CONTROL_PORT))?.accept()?.0,
            Some(other) => {
                let end = Instant::now() + Duration::from_secs(10);
                loop {
                    match TcpStream::connect((other, CONTROL_PORT)) {
                        Ok(stream) => break stream,
                        Err(error) if Instant::now() >= end => return Err(error.into()),
                        Err(_) => std::thread::sleep(Duration::from_millis(20)),
                    }
                }
            }
        };
        stream.set_nodelay(true)?;
        Ok(Control(stream))
    }

    /// Exchanges short messages.
    fn swap(&mut self, ours: &[u8]) -> Result<Vec<u8>, Failure> {
        self.0.write_all(&(ours.len() as u64).to_le_bytes())?;
        self.0.write_all(ours)?;
        let mut length = [0; 8];
        self.0.read_exact(&mut length)?;
        let mut theirs = vec![0; u64::from_le_bytes(length) as usize];
        self.0.read_exact(&mut theirs)?;
        Ok(theirs)
    }
}

/// Connects the two nodes by TCP.
fn connect(control: &mut Control, node: u32, own: IpAddr) -> Result<Tcp, Failure> {
    let listener = Listener::bind((own, 0))?;
    let address = listener.address();
    let theirs = String::from_utf8(control.swap(address.to_string().as_bytes())?)?;
    let mut addresses: [SocketAddr; 2] = [address; 2];
    addresses[1 - node as usize] = theirs.parse()?;
    Ok(Tcp::connect(listener, node, &addresses, KEY, Timeouts::default())?)
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [rounds, own, provider, rest @ ..] = &arguments[..] else {
        return Err("give ROUNDS OWN-ADDRESS PROVIDER [OTHER-ADDRESS]".into());
    };
    let (rounds, own): (u32, IpAddr) = (rounds.parse()?, own.parse()?);
    let other = rest.first().map(|other| other.parse()).transpose()?;
    let node = u32::from(other.is_some());
    let mut control = Control::new(own, other)?;
    let tcp = connect(&mut control, node, own)?;
    let mesh = connect(&mut control, node, own)?;
    let library = std::env::var_os("TRADEWIND_LIBFABRIC");
    let library = Library::open(library.as_deref().map(std::path::Path::new))?;
    let endpoint = Endpoint::open(&library, &request(provider.parse()?, own))?;
    let ours = endpoint.name().to_vec();
    let theirs = control.swap(&ours)?;
    let names = if node == 0 { [ours, theirs] } else { [theirs, ours] };
    let unanswered = Timeouts::default().unanswered;
    let fabric = Fabric::new(mesh, endpoint, &names, KEY, unanswered, READ_FROM)?;
    let mut paths = [
        ("agent over TCP", NetworkPath::new(node, Box::new(tcp))?),
        ("agent over libfabric", NetworkPath::new(node, Box::new(fabric))?),
    ];
    for round in 0..=rounds {
        for (name, path) in &mut paths {
            for (size, (bytes, runs)) in SIZES.iter().enumerate() {
                control.swap(&[])?;
                let [time, processor] = path.measure(size, *runs)?;
                let theirs = control.swap(&processor.to_le_bytes())?;
                let theirs = f64::from_le_bytes(theirs.as_slice().try_into()?);
                // The first round warms up.
                if node == 1 && round > 0 {
                    println!(
                        "{{\"path\":\"{name}\",\"bytes\":{bytes},\"us\":{time:.3},\"processor_us\":{:.3}}}",
                        processor + theirs
                    );
                }
            }
        }
    }
    Ok(())
}
