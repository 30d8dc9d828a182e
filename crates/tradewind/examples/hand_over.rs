//! A program that answers some numbers with their squares, and then gives its name to another one
//! while its clients go on:
//!
//! ```text
//! target/release/examples/squares next &
//! target/release/examples/hand_over squares next 3 &
//! target/release/examples/ask squares 1 2 3 4 5 6
//! ```

use tradewind::Job;
use tradewind::names::{PeerError, PeerEvent};

fn main() -> Result<(), PeerError> {
    let argument = |index, default: &str| std::env::args().nth(index).unwrap_or(default.to_owned());
    let requests = argument(3, "3").parse().unwrap_or(3);
    serve(&argument(1, "squares"), &argument(2, "next"), requests)
}

pub(crate) fn serve(name: &str, successor: &str, requests: usize) -> Result<(), PeerError> {
    let mut port = Job::publish(name)?;
    println!("{name} is published");
    let mut answered = 0;
    loop {
        match port.recv()? {
            PeerEvent::Message { client, bytes } => {
                let number = bytes.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
                port.reply(client, &number.wrapping_mul(number).to_le_bytes())?;
                answered += 1;
                if answered == requests {
                    port.move_to(successor)?;
                    println!("{name} is now {successor}'s");
                }
            }
            PeerEvent::Ended(_) => {}
            PeerEvent::Moved => return Ok(()),
        }
    }
}
