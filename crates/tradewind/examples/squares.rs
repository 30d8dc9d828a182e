//! A program that others find by name. It answers every number with its square:
//!
//! ```text
//! target/release/examples/squares squares &
//! target/release/examples/ask squares 12
//! ```

use tradewind::Job;
use tradewind::names::{PeerError, PeerEvent};

fn main() -> Result<(), PeerError> {
    serve(&std::env::args().nth(1).unwrap_or_else(|| "squares".to_owned()))
}

pub(crate) fn serve(name: &str) -> Result<(), PeerError> {
    let mut port = Job::publish(name)?;
    println!("{name} is published");
    loop {
        let PeerEvent::Message { client, bytes } = port.recv()? else { continue };
        let number = bytes.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
        let square = number.wrapping_mul(number).to_le_bytes();
        // A client that has left meanwhile does not end this program.
        port.reply(client, &square).unwrap_or_else(|error| eprintln!("{name}: {error}"));
    }
}
