//! The bytes of a window as 64-bit words that any process may change at any time.
//!
//! Every access is an atomic access to a whole word, for any range. A part of a word is replaced by
//! an exchange of the word, so that its other bytes are never lost and an aligned element of up to
//! eight bytes is never seen half changed. (Accesses of different sizes to the same atomic memory
//! are undefined in Rust's memory model.)

use crate::sync::{AtomicU64, Ordering, fence};
use goal::arithmetic::{Arithmetic, ArithmeticError, DataType, apply_in_place_left};

const WORD: u64 = 8;

/// Part of a byte range that lies in one word.
struct WordPart {
    /// Index of the word.
    word: usize,
    /// First byte in the word.
    from: usize,
    /// First byte in the range.
    at: usize,
    bytes: usize,
}

/// Splits `length` bytes from byte `at` on into parts of one word each.
fn parts(at: u64, length: usize) -> impl Iterator<Item = WordPart> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let position = at + done as u64;
        let from = (position % WORD) as usize;
        let bytes = (WORD as usize - from).min(length - done);
        let part = WordPart { word: (position / WORD) as usize, from, at: done, bytes };
        done += bytes;
        (bytes > 0).then_some(part)
    })
}

/// Writes `bytes` from byte `at` on. The range has been checked.
#[inline]
pub(crate) fn write(words: &[AtomicU64], at: u64, bytes: &[u8]) {
    // Release: pairs with the Acquire fence in `read` and the Acquire load of a condition. A
    // process that sees a word of this command sees everything that this process did before it.
    fence(Ordering::Release);
    let head = ((WORD - at % WORD) % WORD).min(bytes.len() as u64) as usize;
    let (head, rest) = bytes.split_at(head);
    let (whole, tail) = rest.as_chunks::<8>();
    if !head.is_empty() {
        write_parts(words, at, head);
    }
    let first = (at as usize + head.len()) / 8;
    for (word, bytes) in words[first..].iter().zip(whole) {
        // Relaxed: the fence above is the Release half.
        word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
    }
    if !tail.is_empty() {
        write_parts(words, ((first + whole.len()) * 8) as u64, tail);
    }
}

#[inline]
fn write_parts(words: &[AtomicU64], at: u64, bytes: &[u8]) {
    for part in parts(at, bytes.len()) {
        change(&words[part.word], |word| {
            word[part.from..part.from + part.bytes]
                .copy_from_slice(&bytes[part.at..part.at + part.bytes]);
        });
    }
}

/// Reads bytes from byte `at` on. The range has been checked.
#[inline]
pub(crate) fn read(words: &[AtomicU64], at: u64, bytes: &mut [u8]) {
    let head = ((WORD - at % WORD) % WORD).min(bytes.len() as u64) as usize;
    let (head, rest) = bytes.split_at_mut(head);
    let (whole, tail) = rest.as_chunks_mut::<8>();
    if !head.is_empty() {
        read_parts(words, at, head);
    }
    let first = (at as usize + head.len()) / 8;
    let count = whole.len();
    for (word, bytes) in words[first..].iter().zip(whole) {
        // Relaxed: the fence below is the Acquire half.
        *bytes = word.load(Ordering::Relaxed).to_le_bytes();
    }
    if !tail.is_empty() {
        read_parts(words, ((first + count) * 8) as u64, tail);
    }
    // Acquire: pairs with the Release fence in `write` and the Release half of `change`.
    fence(Ordering::Acquire);
}

fn read_parts(words: &[AtomicU64], at: u64, bytes: &mut [u8]) {
    for part in parts(at, bytes.len()) {
        // Relaxed: `read` ends with the Acquire fence.
        let word = words[part.word].load(Ordering::Relaxed).to_le_bytes();
        bytes[part.at..part.at + part.bytes]
            .copy_from_slice(&word[part.from..part.from + part.bytes]);
    }
}

/// Combines the elements from byte `at` on with those of `operands`, each in one step. Range and
/// alignment have been checked.
#[inline]
pub(crate) fn accumulate(
    words: &[AtomicU64],
    operation: Arithmetic,
    data_type: DataType,
    at: u64,
    operands: &[u8],
) -> Result<(), ArithmeticError> {
    if !operation.applies_to(data_type) {
        return Err(ArithmeticError::NotApplicable { operation, data_type });
    }
    if matches!(data_type, DataType::U64 | DataType::I64)
        && let Some(in_one_step) = whole_word_operation(operation)
    {
        let (operands, _) = operands.as_chunks::<8>();
        for (word, operand) in words[(at / WORD) as usize..].iter().zip(operands) {
            in_one_step(word, u64::from_le_bytes(*operand));
        }
        return Ok(());
    }
    let mut outcome = Ok(());
    for part in parts(at, operands.len()) {
        let operand = &operands[part.at..part.at + part.bytes];
        let mut of_part = Ok(());
        change(&words[part.word], |word| {
            of_part = apply_in_place_left(
                operation,
                data_type,
                &mut word[part.from..][..part.bytes],
                operand,
            );
        });
        // The first error is reported, with the element counted from the start of the command.
        outcome = outcome.and(of_part.map_err(|error| match error {
            ArithmeticError::DivisionByZero { element } => {
                ArithmeticError::DivisionByZero { element: element + part.at / data_type.bytes() }
            }
            other => other,
        }));
    }
    outcome
}

/// Combines the element at byte `at` with an operand in one step, and loads what it was into
/// `previous`. Range and alignment have been checked, and that the operation applies.
#[inline]
pub(crate) fn fetch_accumulate(
    words: &[AtomicU64],
    (operation, data_type): (Arithmetic, DataType),
    at: u64,
    operand: &[u8],
    previous: &mut [u8],
) -> Result<(), ArithmeticError> {
    let mut outcome = Ok(());
    change_element(words, at, previous, |element| {
        outcome = apply_in_place_left(operation, data_type, element, operand);
    });
    outcome
}

/// Replaces the element at byte `at` by the second one of `elements` in one step if it is equal to
/// the first one, and loads what it was into `previous`. Range and alignment have been checked.
#[inline]
pub(crate) fn compare_exchange(words: &[AtomicU64], at: u64, elements: &[u8], previous: &mut [u8]) {
    let (expected, new) = elements.split_at(previous.len());
    change_element(words, at, previous, |element| {
        if element == expected {
            element.copy_from_slice(new);
        }
    });
}

/// Changes the element at byte `at`, which is as long as `previous`, as [`change`] does.
#[inline]
fn change_element(
    words: &[AtomicU64],
    at: u64,
    previous: &mut [u8],
    mut with: impl FnMut(&mut [u8]),
) {
    let from = (at % WORD) as usize;
    change(&words[(at / WORD) as usize], |word| {
        let element = &mut word[from..from + previous.len()];
        previous.copy_from_slice(element);
        with(element);
    });
}

/// Returns the instruction for operations on 64-bit integers that the processor executes on memory
/// atomically. They are the same for signed and unsigned integers.
fn whole_word_operation(operation: Arithmetic) -> Option<fn(&AtomicU64, u64)> {
    // AcqRel: pairs with `read`, `write` and the Acquire load of a condition, and keeps several
    // accumulations in one chain.
    Some(match operation {
        Arithmetic::Add => |word, operand| _ = word.fetch_add(operand, Ordering::AcqRel),
        Arithmetic::Subtract => |word, operand| _ = word.fetch_sub(operand, Ordering::AcqRel),
        Arithmetic::And => |word, operand| _ = word.fetch_and(operand, Ordering::AcqRel),
        Arithmetic::Or => |word, operand| _ = word.fetch_or(operand, Ordering::AcqRel),
        Arithmetic::Xor => |word, operand| _ = word.fetch_xor(operand, Ordering::AcqRel),
        _ => return None,
    })
}

/// Replaces a word by the result of `with`, which may be called several times; the last call takes
/// effect.
#[inline]
fn change(word: &AtomicU64, mut with: impl FnMut(&mut [u8; 8])) {
    // The first exchange guesses the old value. A load would transfer the line once in shared state
    // and the exchange again in exclusive state; a failed exchange returns the value and the line
    // in exclusive state by one transfer.
    let mut seen = 0;
    loop {
        let mut bytes = u64::to_le_bytes(seen);
        with(&mut bytes);
        // AcqRel: as in `whole_word_operation`. Relaxed on failure: the value is only an
        // operand of the next attempt.
        match word.compare_exchange(
            seen,
            u64::from_le_bytes(bytes),
            Ordering::AcqRel,
            Ordering::Relaxed,
        ) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

/// Loads a word of a condition.
#[inline(always)]
pub(crate) fn load(word: &AtomicU64) -> u64 {
    // Acquire: pairs with the Release of the command that changed it; everything that its origin
    // did before is visible.
    word.load(Ordering::Acquire)
}

/// Writes one element of at most a word. Range and alignment have been checked.
#[inline]
pub(crate) fn write_element(words: &[AtomicU64], at: u64, element: &[u8]) {
    let word = &words[(at / WORD) as usize];
    if let Ok(whole) = <[u8; 8]>::try_from(element) {
        // Release: pairs with the Acquire in `read_element`, and with the Acquire load of a
        // condition.
        word.store(u64::from_le_bytes(whole), Ordering::Release);
    } else {
        let from = (at % WORD) as usize;
        change(word, |bytes| bytes[from..from + element.len()].copy_from_slice(element));
    }
}

/// Reads one element of at most a word. Range and alignment have been checked.
#[inline]
pub(crate) fn read_element(words: &[AtomicU64], at: u64, element: &mut [u8]) {
    // Acquire: pairs with the Release of `write_element`, `write` and `change`.
    let word = words[(at / WORD) as usize].load(Ordering::Acquire).to_le_bytes();
    let from = (at % WORD) as usize;
    element.copy_from_slice(&word[from..from + element.len()]);
}
