//! A program that sends numbers to one that it finds by name, and prints the answers: see
//! `squares.rs`. On another node that is `ask squares@host 12`.

use tradewind::Job;
use tradewind::names::PeerError;

fn main() -> Result<(), PeerError> {
    let mut arguments = std::env::args().skip(1);
    let target = arguments.next().unwrap_or_else(|| "squares".to_owned());
    let number = |text: String| {
        text.parse().unwrap_or_else(|_| {
            eprintln!("ask: {text:?} is not an integer");
            std::process::exit(2)
        })
    };
    let numbers: Vec<i64> = arguments.map(number).collect();
    ask(&target, &numbers)
}

pub(crate) fn ask(target: &str, numbers: &[i64]) -> Result<(), PeerError> {
    let mut port = Job::connect(target)?;
    for number in numbers {
        port.send(&number.to_le_bytes())?;
        let square = port.recv()?.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
        println!("{number} squared is {square}");
    }
    Ok(())
}
