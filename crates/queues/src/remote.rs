//! Remote memory commands: what a process can do to another's window by itself.
//!
//! | command | what it does at the target |
//! |---|---|
//! | [`write`](RemoteWindow::write), [`write_value`](RemoteWindow::write_value) | stores bytes, or one element in one step |
//! | [`read`](RemoteWindow::read), [`read_value`](RemoteWindow::read_value) | loads them |
//! | [`accumulate`](RemoteWindow::accumulate), [`accumulate_value`](RemoteWindow::accumulate_value) | combines elements with operands, each in one step, with every operation and type of [`goal::arithmetic`] |
//! | [`write_indexed`](RemoteWindow::write_indexed), [`read_indexed`](RemoteWindow::read_indexed) | stores or loads elements where an index array says |
//! | [`fetch_when`](RemoteWindow::fetch_when) | loads bytes as soon as a word has reached a value |
//! | [`notify`](RemoteWindow::notify) | counts one up for the owner, and wakes it if it waits for that |
//!
//! (To append to a buffer see [`crate::append`].)
//!
//! A command is executed by the processor that gives it; the target's takes no part. Nothing is
//! queued, so no command waits for anybody: when it returns, it is complete at the origin and at
//! the target. The one that may have to wait is a request: [`fetch_when`](RemoteWindow::fetch_when)
//! returns at once and completes later (see [`FetchRequest`]).
//!
//! Order: whoever sees something of a command sees everything that its origin did before. So data
//! written before a flag are there when the flag is seen, and everything written before a
//! [`notify`](RemoteWindow::notify) when it is counted. Two commands that touch the same bytes at
//! the same time leave bytes of either; aligned elements of up to 8 bytes stay whole.
//!
//! After Rosing and Saltz, *Low Latency Messages on Distributed Memory Multiprocessors* (1995),
//! sections 4.1 and 5.

mod request;

use goal::arithmetic::{Arithmetic, ArithmeticError, DataType, Element};
use shm::segment::Offset;

pub use request::{Condition, Fetch, FetchRequest};

use crate::users::Entry;
use crate::window::layout::Layout;
use crate::window::{RemoteError, WindowError, words};

/// A window of another process, to be worked on. Any number of threads may use it at once.
#[derive(Debug)]
pub struct RemoteWindow {
    layout: Layout,
    /// The entry of this process among the window's users; the owner has none.
    entry: Option<Entry>,
}

impl RemoteWindow {
    pub(crate) fn of_owner(layout: Layout) -> Self {
        RemoteWindow { layout, entry: None }
    }

    pub(crate) fn of_other(layout: Layout) -> Result<Self, WindowError> {
        let entry = Some(layout.enter()?);
        Ok(RemoteWindow { layout, entry })
    }

    #[inline(always)]
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Where it lies.
    pub fn offset(&self) -> Offset {
        self.layout.offset()
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.layout.bytes()
    }

    /// The number of the process that exposed it.
    pub fn owner(&self) -> u32 {
        self.layout.owner().pid()
    }

    /// Writes `bytes` from byte `at` of the window on.
    ///
    /// # Errors
    /// [`RemoteError::OutOfRange`], [`RemoteError::Withdrawn`].
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), RemoteError> {
        self.check(at, bytes.len() as u64)?;
        words::write(self.layout.words(), at, bytes);
        self.wake(at, bytes.len() as u64);
        Ok(())
    }

    /// Reads from byte `at` of the window on.
    ///
    /// # Errors
    /// [`RemoteError::OutOfRange`], [`RemoteError::Withdrawn`].
    pub fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), RemoteError> {
        self.check(at, bytes.len() as u64)?;
        words::read(self.layout.words(), at, bytes);
        Ok(())
    }

    /// Writes one element at byte `at`, a multiple of its size, in one step.
    ///
    /// # Errors
    /// [`RemoteError::OutOfRange`], [`RemoteError::Misaligned`], [`RemoteError::Withdrawn`].
    #[inline]
    pub fn write_value<T: Element>(&self, at: u64, value: T) -> Result<(), RemoteError> {
        self.check_elements(at, T::DATA_TYPE, size_of::<T>() as u64)?;
        words::write_element(self.layout.words(), at, bytemuck::bytes_of(&value));
        self.layout.bell_of(at / 8).wake();
        Ok(())
    }

    /// Reads one element at byte `at`, a multiple of its size, in one step.
    ///
    /// # Errors
    /// [`RemoteError::OutOfRange`], [`RemoteError::Misaligned`], [`RemoteError::Withdrawn`].
    #[inline]
    pub fn read_value<T: Element>(&self, at: u64) -> Result<T, RemoteError> {
        self.check_elements(at, T::DATA_TYPE, size_of::<T>() as u64)?;
        let mut value = T::zeroed();
        words::read_element(self.layout.words(), at, bytemuck::bytes_of_mut(&mut value));
        Ok(value)
    }

    /// Combines the elements from byte `at` on with those in `operands` (little-endian, back to
    /// back): each becomes *element* `operation` *operand* in one step, so that any number of
    /// origins can accumulate into the same elements.
    ///
    /// # Errors
    /// [`RemoteError::OutOfRange`], [`RemoteError::Misaligned`], [`RemoteError::Withdrawn`], and
    /// [`RemoteError::Arithmetic`]: only if an integer was divided by zero, something has been written.
    ///
    /// # Examples
    /// ```
    /// # use queues::window::{RemoteError, Window};
    /// # use shm::{arena::Arena, segment::{Backing, Segment}};
    /// # use std::sync::Arc;
    /// use goal::arithmetic::{Arithmetic, DataType};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let segment = Arc::new(Segment::create(1 << 20, Backing::Memory)?);
    /// # let arena = Arc::new(Arena::new(Arc::clone(&segment), 0..1 << 20)?);
    /// let window = Window::expose(&arena, 64)?;
    /// let remote = window.local();
    /// remote.write(0, &[1, 2, 3, 255])?;
    /// remote.accumulate(Arithmetic::Add, DataType::U8, 0, &[10, 10, 10, 10])?;
    /// let mut bytes = [0; 4];
    /// remote.read(0, &mut bytes)?;
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
    ) -> Result<(), RemoteError> {
        let length = operands.len() as u64;
        self.check_elements(at, data_type, length)?;
        if !length.is_multiple_of(data_type.bytes() as u64) {
            return Err(self.arithmetic(ArithmeticError::NotWholeElements {
                bytes: operands.len(),
                data_type,
            }));
        }
        let outcome = words::accumulate(self.layout.words(), operation, data_type, at, operands);
        self.wake(at, length);
        outcome.map_err(|error| self.arithmetic(error))
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
    ) -> Result<(), RemoteError> {
        self.check_elements(at, T::DATA_TYPE, size_of::<T>() as u64)?;
        let operand = bytemuck::bytes_of(&operand);
        let outcome = words::accumulate(self.layout.words(), operation, T::DATA_TYPE, at, operand);
        self.layout.bell_of(at / 8).wake();
        outcome.map_err(|error| self.arithmetic(error))
    }

    /// Writes elements where the index array says: number `i` of `elements` (little-endian, back to
    /// back) goes to element `indices[i]`, counted from byte `at` of the window. Of equal indices
    /// the last one counts.
    ///
    /// # Errors
    /// [`RemoteError::Index`] (every index is checked before anything is written),
    /// [`RemoteError::IndicesAndDataDiffer`], [`RemoteError::OutOfRange`],
    /// [`RemoteError::Misaligned`], [`RemoteError::Withdrawn`].
    ///
    /// # Examples
    /// ```
    /// # use queues::window::{RemoteError, Window};
    /// # use shm::{arena::Arena, segment::{Backing, Segment}};
    /// # use std::sync::Arc;
    /// use goal::arithmetic::DataType;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let segment = Arc::new(Segment::create(1 << 20, Backing::Memory)?);
    /// # let arena = Arc::new(Arena::new(Arc::clone(&segment), 0..1 << 20)?);
    /// let window = Window::expose(&arena, 8)?;
    /// let remote = window.local();
    /// remote.write_indexed(DataType::U8, 0, &[7, 0, 3], b"abc")?;
    /// let mut gathered = [0; 4];
    /// remote.read_indexed(DataType::U8, 0, &[3, 7, 7, 0], &mut gathered)?;
    /// assert_eq!(&gathered, b"caab");
    /// assert!(matches!(
    ///     remote.write_indexed(DataType::U8, 0, &[0, 8], b"xy"),
    ///     Err(RemoteError::Index { position: 1, index: 8, .. })
    /// ));
    /// # Ok(())
    /// # }
    /// ```
    pub fn write_indexed(
        &self,
        data_type: DataType,
        at: u64,
        indices: &[u64],
        elements: &[u8],
    ) -> Result<(), RemoteError> {
        self.check_indices(data_type, at, indices, elements.len())?;
        let size = data_type.bytes();
        for (&index, element) in indices.iter().zip(elements.chunks_exact(size)) {
            let place = at + index * size as u64;
            words::write_element(self.layout.words(), place, element);
            self.layout.bell_of(place / 8).wake();
        }
        Ok(())
    }

    /// Reads elements from where the index array says: element `indices[i]`, counted from byte `at`
    /// of the window, becomes number `i` of `elements` (little-endian, back to back).
    ///
    /// # Errors
    /// [`RemoteError::Index`] (every index is checked before anything is read),
    /// [`RemoteError::IndicesAndDataDiffer`], [`RemoteError::OutOfRange`],
    /// [`RemoteError::Misaligned`], [`RemoteError::Withdrawn`].
    pub fn read_indexed(
        &self,
        data_type: DataType,
        at: u64,
        indices: &[u64],
        elements: &mut [u8],
    ) -> Result<(), RemoteError> {
        self.check_indices(data_type, at, indices, elements.len())?;
        let size = data_type.bytes();
        for (&index, element) in indices.iter().zip(elements.chunks_exact_mut(size)) {
            words::read_element(self.layout.words(), at + index * size as u64, element);
        }
        Ok(())
    }

    /// Counts one up for the owner of the window, who may wait for that. Everything that this
    /// process did before is visible to the owner when it sees the count.
    #[inline]
    pub fn notify(&self) {
        self.layout.notify();
    }

    /// Wakes whoever waits for a word of the range, which was changed just now.
    fn wake(&self, at: u64, length: u64) {
        if length > 0 {
            let first = at / 8;
            self.layout.wake(first, (at + length - 1) / 8 - first + 1);
        }
    }

    /// Checks that the range lies in the window and that the window is still there.
    #[inline]
    fn check(&self, at: u64, length: u64) -> Result<(), RemoteError> {
        if at.checked_add(length).is_none_or(|end| end > self.bytes()) {
            return Err(self.out_of_range(at, length));
        }
        if self.layout.users().are_turned_away() {
            return Err(self.withdrawn());
        }
        Ok(())
    }

    /// As `check`, and that elements of this type can lie at `at`.
    #[inline]
    fn check_elements(&self, at: u64, data_type: DataType, length: u64) -> Result<(), RemoteError> {
        let size = data_type.bytes() as u64;
        if at & (size - 1) != 0 {
            return Err(RemoteError::Misaligned { window: self.offset(), at, size });
        }
        self.check(at, length)
    }

    fn check_indices(
        &self,
        data_type: DataType,
        at: u64,
        indices: &[u64],
        bytes: usize,
    ) -> Result<(), RemoteError> {
        self.check_elements(at, data_type, 0)?;
        if indices.len().checked_mul(data_type.bytes()) != Some(bytes) {
            return Err(RemoteError::IndicesAndDataDiffer {
                indices: indices.len(),
                data_type,
                bytes,
            });
        }
        let elements = (self.bytes() - at) / data_type.bytes() as u64;
        match indices.iter().position(|&index| index >= elements) {
            Some(position) => {
                let (window, index) = (self.offset(), indices[position]);
                Err(RemoteError::Index { window, position, index, at, elements })
            }
            None => Ok(()),
        }
    }

    #[cold]
    fn out_of_range(&self, at: u64, length: u64) -> RemoteError {
        RemoteError::OutOfRange { window: self.offset(), at, length, bytes: self.bytes() }
    }

    #[cold]
    fn withdrawn(&self) -> RemoteError {
        RemoteError::Withdrawn { window: self.offset(), owner: self.owner() }
    }

    #[cold]
    fn arithmetic(&self, error: ArithmeticError) -> RemoteError {
        RemoteError::Arithmetic { window: self.offset(), error }
    }
}

impl Drop for RemoteWindow {
    fn drop(&mut self) {
        if let Some(entry) = &self.entry {
            self.layout.users().leave(entry);
        }
    }
}
