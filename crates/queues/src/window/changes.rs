//! Commands that change a window and load nothing. Each has a blocking form, and a nonblocking one
//! that a flush completes.

use super::access;
use super::carried::Form;
use super::error::WindowError;
use super::memory::WindowMemory;
use super::remote::{Place, RemoteWindow};
use super::wire::Kind;
use crate::sync::{Ordering, fence};
use goal::arithmetic::{Arithmetic, ArithmeticError, DataType, Element};

impl RemoteWindow {
    /// Stores `bytes` from byte `at` of the window on.
    ///
    /// # Errors
    /// [`WindowError::OutOfRange`], [`WindowError::Withdrawn`].
    pub fn put(&self, at: u64, bytes: &[u8]) -> Result<(), WindowError> {
        self.store(at, bytes, Form::Blocking)
    }

    /// Starts a [`put`](Self::put), which [`flush`](Self::flush) completes. The bytes are copied before
    /// it returns, so the caller may change them at once: MPI's local completion needs no call. Any
    /// number of commands may be under way. While the way to the other node is full, the call waits.
    ///
    /// Commands of one handle are executed in the order of their starts, blocking ones included, with
    /// any operations, places and lengths. So a later [`get`](Self::get) loads the bytes of an earlier put.
    /// A command of more than 8 KiB is executed in pieces, and commands of other threads may come between
    /// them.
    ///
    /// A handle that is dropped, and a rank that leaves or dies, take nothing back: started commands are
    /// executed, unless the window is withdrawn before or the rank's node is lost. No call reports that, so
    /// flush first.
    ///
    /// # Errors
    /// [`WindowError::OutOfRange`], and [`WindowError::NotOpened`] from the first command on. Errors of an
    /// earlier command may be found here: [`WindowError::Withdrawn`], [`WindowError::RankExited`],
    /// [`WindowError::NodeServiceEnded`], [`WindowError::Corrupt`].
    pub fn iput(&self, at: u64, bytes: &[u8]) -> Result<(), WindowError> {
        self.store(at, bytes, Form::Nonblocking)
    }

    /// Starts a [`put`](Self::put) as [`iput`](Self::iput) does. Adds `add` to the word at byte `signal_at`
    /// after the bytes are stored. A rank that finds the sum there finds the bytes, too: the target waits for
    /// it with [`fetch_when`](Self::fetch_when), and needs no flush of the origin.
    ///
    /// # Errors
    /// Those of [`iput`](Self::iput), and [`WindowError::Misaligned`] unless `signal_at` is a multiple of
    /// 8. Nothing is started if either range is wrong.
    pub fn iput_signal(
        &self,
        at: u64,
        bytes: &[u8],
        signal_at: u64,
        add: u64,
    ) -> Result<(), WindowError> {
        self.check_elements(signal_at, DataType::U64, 8)?;
        self.iput(at, bytes)?;
        self.iaccumulate_value(Arithmetic::Add, signal_at, add)
    }

    #[inline]
    fn store(&self, at: u64, bytes: &[u8], form: Form) -> Result<(), WindowError> {
        self.check(at, bytes.len() as u64)?;
        let memory = match self.place() {
            Place::Here(memory, _) => memory,
            Place::Elsewhere(window) => return window.change(Kind::Put, at, bytes, form),
        };
        // Writes before wake-ups: a wait that is woken, or that checks last before it sleeps, sees
        // the bytes. A process killed in between leaves the wait to its slice.
        access::write(memory.words(), at, bytes);
        wake(memory, at, bytes.len() as u64);
        Ok(())
    }

    /// Stores one element at byte `at`, a multiple of its size, in one step.
    ///
    /// # Errors
    /// [`WindowError::OutOfRange`], [`WindowError::Misaligned`], [`WindowError::ElementTooLong`],
    /// [`WindowError::Withdrawn`].
    #[inline]
    pub fn put_value<T: Element>(&self, at: u64, value: T) -> Result<(), WindowError> {
        self.store_value(at, value, Form::Blocking)
    }

    /// Starts a [`put_value`](Self::put_value), as [`iput`](Self::iput) does.
    ///
    /// # Errors
    /// Those of [`iput`](Self::iput), [`WindowError::Misaligned`] and [`WindowError::ElementTooLong`].
    #[inline]
    pub fn iput_value<T: Element>(&self, at: u64, value: T) -> Result<(), WindowError> {
        self.store_value(at, value, Form::Nonblocking)
    }

    #[inline]
    fn store_value<T: Element>(&self, at: u64, value: T, form: Form) -> Result<(), WindowError> {
        self.check_elements(at, T::DATA_TYPE, size_of::<T>() as u64)?;
        let value = bytemuck::bytes_of(&value);
        let memory = match self.place() {
            Place::Here(memory, _) => memory,
            Place::Elsewhere(window) => return window.change(Kind::Put, at, value, form),
        };
        access::write_element(memory.words(), at, value);
        memory.wake_one(at / 8);
        Ok(())
    }

    /// Combines the elements from byte `at` on with those in `operands` (little-endian, back to
    /// back): each becomes *element* `operation` *operand* in one step, so that any number of
    /// origins can accumulate into the same elements.
    ///
    /// # Errors
    /// [`WindowError::OutOfRange`], [`WindowError::Misaligned`], [`WindowError::ElementTooLong`],
    /// [`WindowError::Withdrawn`], and
    /// [`WindowError::Arithmetic`]. Only after a division by zero has anything been changed.
    ///
    /// # Examples
    /// ```
    /// # use queues::window::{WindowError, Window};
    /// # use shm::{arena::Arena, segment::{Backing, Segment}};
    /// # use std::sync::Arc;
    /// use goal::arithmetic::{Arithmetic, DataType};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let segment = Arc::new(Segment::create(1 << 20, Backing::Memory)?);
    /// # let arena = Arc::new(Arena::new(Arc::clone(&segment), 0..1 << 20)?);
    /// let window = Window::create(&arena, 64)?;
    /// let remote = window.local();
    /// remote.put(0, &[1, 2, 3, 255])?;
    /// remote.accumulate(Arithmetic::Add, DataType::U8, 0, &[10, 10, 10, 10])?;
    /// let mut bytes = [0; 4];
    /// remote.get(0, &mut bytes)?;
    /// assert_eq!(bytes, [11, 12, 13, 9], "integers wrap");
    /// # Ok(())
    /// # }
    /// ```
    pub fn accumulate(
        &self,
        operation: Arithmetic,
        data_type: DataType,
        at: u64,
        operands: &[u8],
    ) -> Result<(), WindowError> {
        self.combine((operation, data_type), at, operands, Form::Blocking)
    }

    /// Starts an [`accumulate`](Self::accumulate), as [`iput`](Self::iput) does.
    ///
    /// # Errors
    /// Those of [`iput`](Self::iput), [`WindowError::Misaligned`], [`WindowError::ElementTooLong`] and
    /// [`WindowError::Arithmetic`]. After a
    /// division by zero all elements are changed as well.
    pub fn iaccumulate(
        &self,
        operation: Arithmetic,
        data_type: DataType,
        at: u64,
        operands: &[u8],
    ) -> Result<(), WindowError> {
        self.combine((operation, data_type), at, operands, Form::Nonblocking)
    }

    /// Combines one element with one operand: [`RemoteWindow::accumulate`] of a single value.
    ///
    /// # Errors
    /// Those of [`RemoteWindow::accumulate`].
    #[inline]
    pub fn accumulate_value<T: Element>(
        &self,
        operation: Arithmetic,
        at: u64,
        operand: T,
    ) -> Result<(), WindowError> {
        self.combine_value(operation, at, operand, Form::Blocking)
    }

    /// Starts an [`accumulate_value`](Self::accumulate_value), as [`iput`](Self::iput) does.
    ///
    /// # Errors
    /// Those of [`iaccumulate`](Self::iaccumulate).
    #[inline]
    pub fn iaccumulate_value<T: Element>(
        &self,
        operation: Arithmetic,
        at: u64,
        operand: T,
    ) -> Result<(), WindowError> {
        self.combine_value(operation, at, operand, Form::Nonblocking)
    }

    #[inline]
    fn combine_value<T: Element>(
        &self,
        operation: Arithmetic,
        at: u64,
        operand: T,
        form: Form,
    ) -> Result<(), WindowError> {
        self.combine((operation, T::DATA_TYPE), at, bytemuck::bytes_of(&operand), form)
    }

    #[inline]
    fn combine(
        &self,
        (operation, data_type): (Arithmetic, DataType),
        at: u64,
        operands: &[u8],
        form: Form,
    ) -> Result<(), WindowError> {
        let length = operands.len() as u64;
        self.check_elements(at, data_type, length)?;
        if !length.is_multiple_of(data_type.bytes() as u64) {
            let bytes = operands.len();
            return Err(self.arithmetic(ArithmeticError::NotWholeElements { bytes, data_type }));
        }
        let memory = match self.place() {
            Place::Here(memory, _) => memory,
            Place::Elsewhere(window) => {
                self.check_operation(operation, data_type)?;
                let kind = Kind::Accumulate(operation, data_type);
                return window.change(kind, at, operands, form);
            }
        };
        let outcome = access::accumulate(memory.words(), operation, data_type, at, operands);
        // Also after a division by zero: elements may have changed.
        wake(memory, at, length);
        outcome.map_err(|error| self.arithmetic(error))
    }

    /// Completes the nonblocking commands that this handle has started before, by any thread that has
    /// returned from their starts: they have been executed, and every rank sees their effects. To
    /// another node it is one round trip, and on the owner's node a memory fence, which never fails.
    ///
    /// # Errors
    /// The first error of these commands: [`WindowError::Withdrawn`], [`WindowError::RankExited`] if the
    /// owner has died or its node was lost, [`WindowError::NodeServiceEnded`]. Some or all of the commands
    /// may have been executed then: also if the owner withdraws its window behind them. Later commands and
    /// flushes return it, too.
    pub fn flush(&self) -> Result<(), WindowError> {
        match self.place() {
            // SeqCst: the stores of this rank are visible before it loads words that others have stored
            // before their own flush.
            Place::Here(..) => fence(Ordering::SeqCst),
            Place::Elsewhere(window) => window.flush()?,
        }
        Ok(())
    }
}

/// Wakes waits for a word of the range, which was just changed.
#[inline]
fn wake(memory: &WindowMemory, at: u64, length: u64) {
    if length > 0 {
        let first = at / 8;
        memory.wake(first, (at + length - 1) / 8 - first + 1);
    }
}
