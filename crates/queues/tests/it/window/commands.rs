//! Random commands on a window, and what they do to a vector.

use super::names::{RemoteWindow, WindowError};
use goal::arithmetic::{Arithmetic, DataType, apply_in_place_left};
use proptest::prelude::*;

/// One command of a random program.
#[derive(Debug, Clone)]
pub(crate) enum Command {
    Put(u64, Vec<u8>),
    Get(u64, usize),
    Accumulate(Arithmetic, DataType, u64, Vec<u8>),
    FetchAccumulate(u64, u32),
    CompareExchange(u64, u16, u16),
    Scatter(DataType, u64, Vec<u64>, Vec<u8>),
    Gather(DataType, u64, Vec<u64>),
    /// Only started, if it has such a form.
    Started(Box<Command>),
}

/// Bytes of the window.
pub(crate) const BYTES: u64 = 100;

pub(crate) fn commands() -> impl Strategy<Value = Command> {
    let at = || 0..BYTES + 5;
    let bytes = |most: usize| prop::collection::vec(any::<u8>(), 0..most);
    let data_type = || prop::sample::select(DataType::ALL.to_vec());
    let operation = prop::sample::select(Arithmetic::ALL.to_vec());
    let indices = || prop::collection::vec(0..BYTES / 4, 0..6);
    // Mostly aligned, so that most commands do something.
    let element_at = || {
        (0..BYTES / 8, prop::bool::weighted(0.9), 0..8u64)
            .prop_map(|(word, whole, byte)| word * 8 + if whole { 0 } else { byte })
    };
    let one = prop_oneof![
        (at(), bytes(60)).prop_map(|(at, bytes)| Command::Put(at, bytes)),
        (at(), 0..60usize).prop_map(|(at, length)| Command::Get(at, length)),
        (operation, data_type(), element_at(), bytes(9), any::<bool>()).prop_map(
            |(operation, data_type, at, seeds, whole)| {
                let mut operands: Vec<u8> =
                    seeds.iter().flat_map(|&seed| vec![seed % 4; data_type.bytes()]).collect();
                if !whole {
                    operands.pop();
                }
                Command::Accumulate(operation, data_type, at, operands)
            }
        ),
        (element_at(), any::<u32>())
            .prop_map(|(at, operand)| Command::FetchAccumulate(at, operand)),
        (element_at(), 0..3u16, 0..3u16).prop_map(|(at, a, b)| Command::CompareExchange(at, a, b)),
        (data_type(), element_at(), indices(), bytes(50)).prop_map(
            |(data_type, at, indices, mut bytes)| {
                bytes.resize(indices.len() * data_type.bytes(), 7);
                Command::Scatter(data_type, at, indices, bytes)
            }
        ),
        (data_type(), element_at(), indices())
            .prop_map(|(data_type, at, indices)| Command::Gather(data_type, at, indices)),
    ];
    (one, any::<bool>()).prop_map(|(one, is_started)| match is_started {
        true => Command::Started(Box::new(one)),
        false => one,
    })
}

impl Command {
    /// Executes the command on the reference, a vector. Returns the loaded bytes, or `None` if the
    /// command has to fail.
    pub(crate) fn apply(&self, memory: &mut [u8]) -> Option<Vec<u8>> {
        let range = |at: u64, length: usize| {
            Some(at as usize..at as usize + length).filter(|range| range.end <= BYTES as usize)
        };
        let element = |at: u64, length: usize, size: usize| {
            range(at, length).filter(|_| size <= 8 && at.is_multiple_of(size as u64))
        };
        let places = |data_type: DataType, at: u64, indices: &[u64]| -> Option<Vec<usize>> {
            let size = data_type.bytes();
            let place = |index: &u64| Some(range(at + index * size as u64, size)?.start);
            let places = indices.iter().map(place).collect::<Option<Vec<_>>>();
            places.filter(|_| size <= 8 && at.is_multiple_of(size as u64) && at <= BYTES)
        };
        match self {
            Command::Started(one) => one.apply(memory),
            Command::Put(at, bytes) => {
                memory[range(*at, bytes.len())?].copy_from_slice(bytes);
                Some(Vec::new())
            }
            Command::Get(at, length) => Some(memory[range(*at, *length)?].to_vec()),
            Command::Accumulate(operation, data_type, at, operands) => {
                let range = element(*at, operands.len(), data_type.bytes())?;
                let done =
                    apply_in_place_left(*operation, *data_type, &mut memory[range], operands);
                done.ok().map(|()| Vec::new())
            }
            Command::FetchAccumulate(at, operand) => {
                let element = &mut memory[element(*at, 4, 4)?];
                let before = element.to_vec();
                let operand = operand.to_le_bytes();
                apply_in_place_left(Arithmetic::Add, DataType::U32, element, &operand).ok()?;
                Some(before)
            }
            Command::CompareExchange(at, expected, new) => {
                let element = &mut memory[element(*at, 2, 2)?];
                let before = element.to_vec();
                if before == expected.to_le_bytes() {
                    element.copy_from_slice(&new.to_le_bytes());
                }
                Some(before)
            }
            Command::Scatter(data_type, at, indices, bytes) => {
                let size = data_type.bytes();
                let places = places(*data_type, *at, indices)?;
                for (place, element) in places.into_iter().zip(bytes.chunks(size)) {
                    memory[place..place + size].copy_from_slice(element);
                }
                Some(Vec::new())
            }
            Command::Gather(data_type, at, indices) => {
                let size = data_type.bytes();
                let places = places(*data_type, *at, indices)?.into_iter();
                Some(places.flat_map(|place| memory[place..place + size].to_vec()).collect())
            }
        }
    }

    /// Executes the command through a window.
    pub(crate) fn execute(&self, window: &RemoteWindow) -> Result<Vec<u8>, WindowError> {
        let none = |()| Vec::new();
        match self {
            Command::Started(one) => match &**one {
                Command::Put(at, bytes) => window.iput(*at, bytes).map(none),
                Command::Accumulate(operation, data_type, at, operands) => {
                    window.iaccumulate(*operation, *data_type, *at, operands).map(none)
                }
                other => other.execute(window),
            },
            Command::Put(at, bytes) => window.put(*at, bytes).map(none),
            Command::Get(at, length) => {
                let mut bytes = vec![0; *length];
                window.get(*at, &mut bytes).map(|()| bytes)
            }
            Command::Accumulate(operation, data_type, at, operands) => {
                window.accumulate(*operation, *data_type, *at, operands).map(none)
            }
            Command::FetchAccumulate(at, operand) => {
                let before = window.fetch_accumulate_value(Arithmetic::Add, *at, *operand);
                before.map(|before| before.to_le_bytes().to_vec())
            }
            Command::CompareExchange(at, expected, new) => {
                let before = window.compare_exchange_value(*at, *expected, *new);
                before.map(|before| before.to_le_bytes().to_vec())
            }
            Command::Scatter(data_type, at, indices, bytes) => {
                window.scatter(*data_type, *at, indices, bytes).map(none)
            }
            Command::Gather(data_type, at, indices) => {
                let mut bytes = vec![0; indices.len() * data_type.bytes()];
                window.gather(*data_type, *at, indices, &mut bytes).map(|()| bytes)
            }
        }
    }
}
