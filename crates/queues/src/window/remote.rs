//! Remote memory commands on a window.

use super::access;
use super::error::WindowError;
use super::memory::WindowMemory;
use goal::arithmetic::{Arithmetic, ArithmeticError, DataType, Element};
use shm::object::CreateError;
use shm::process_table::Entry;
use shm::segment::{Offset, Segment};
use std::sync::Arc;

/// Handle to a window of another process. Any number of threads may use it concurrently.
#[derive(Debug)]
pub struct RemoteWindow {
    memory: WindowMemory,
    /// Entry of this handle in the window's process table; the owner has none.
    entry: Option<Entry>,
}

impl RemoteWindow {
    /// Connects to the window at `offset` of the segment.
    ///
    /// # Errors
    /// [`CreateError::NotFound`], [`CreateError::Closed`], [`CreateError::TooMany`],
    /// [`CreateError::Segment`], [`CreateError::Process`].
    pub fn connect(segment: &Arc<Segment>, offset: Offset) -> Result<Self, CreateError> {
        let (memory, entry) = WindowMemory::connect(segment, offset)?;
        Ok(RemoteWindow { memory, entry: Some(entry) })
    }

    pub(super) fn of_owner(memory: WindowMemory) -> Self {
        RemoteWindow { memory, entry: None }
    }

    #[inline(always)]
    pub(super) fn memory(&self) -> &WindowMemory {
        &self.memory
    }

    /// Returns the offset of the window in the segment.
    pub fn offset(&self) -> Offset {
        self.memory.object().offset()
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// Returns the number of the process that owns the window.
    pub fn owner(&self) -> u32 {
        self.memory.owner().pid()
    }

    /// Stores `bytes` from byte `at` of the window on.
    ///
    /// # Errors
    /// [`WindowError::OutOfRange`], [`WindowError::Withdrawn`].
    pub fn put(&self, at: u64, bytes: &[u8]) -> Result<(), WindowError> {
        self.check(at, bytes.len() as u64)?;
        // Writes before wake-ups: a wait that is woken, or that checks last before it sleeps, sees
        // the bytes. A process killed in between leaves the wait to its slice.
        access::write(self.memory.words(), at, bytes);
        self.wake(at, bytes.len() as u64);
        Ok(())
    }

    /// Loads bytes from byte `at` of the window on.
    ///
    /// # Errors
    /// [`WindowError::OutOfRange`], [`WindowError::Withdrawn`].
    pub fn get(&self, at: u64, bytes: &mut [u8]) -> Result<(), WindowError> {
        self.check(at, bytes.len() as u64)?;
        access::read(self.memory.words(), at, bytes);
        Ok(())
    }

    /// Stores one element at byte `at`, a multiple of its size, in one step.
    ///
    /// # Errors
    /// [`WindowError::OutOfRange`], [`WindowError::Misaligned`], [`WindowError::Withdrawn`].
    #[inline]
    pub fn put_value<T: Element>(&self, at: u64, value: T) -> Result<(), WindowError> {
        self.check_elements(at, T::DATA_TYPE, size_of::<T>() as u64)?;
        access::write_element(self.memory.words(), at, bytemuck::bytes_of(&value));
        self.memory.wakeup_of(at / 8).notify();
        Ok(())
    }

    /// Loads one element at byte `at`, a multiple of its size, in one step.
    ///
    /// # Errors
    /// [`WindowError::OutOfRange`], [`WindowError::Misaligned`], [`WindowError::Withdrawn`].
    #[inline]
    pub fn get_value<T: Element>(&self, at: u64) -> Result<T, WindowError> {
        self.check_elements(at, T::DATA_TYPE, size_of::<T>() as u64)?;
        let mut value = T::zeroed();
        access::read_element(self.memory.words(), at, bytemuck::bytes_of_mut(&mut value));
        Ok(value)
    }

    /// Combines the elements from byte `at` on with those in `operands` (little-endian, back to
    /// back): each becomes *element* `operation` *operand* in one step, so that any number of
    /// origins can accumulate into the same elements.
    ///
    /// # Errors
    /// [`WindowError::OutOfRange`], [`WindowError::Misaligned`], [`WindowError::Withdrawn`], and
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
        let length = operands.len() as u64;
        self.check_elements(at, data_type, length)?;
        if !length.is_multiple_of(data_type.bytes() as u64) {
            return Err(self.arithmetic(ArithmeticError::NotWholeElements {
                bytes: operands.len(),
                data_type,
            }));
        }
        let outcome = access::accumulate(self.memory.words(), operation, data_type, at, operands);
        // Also after a division by zero: elements may have changed.
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
    ) -> Result<(), WindowError> {
        self.check_elements(at, T::DATA_TYPE, size_of::<T>() as u64)?;
        let operand = bytemuck::bytes_of(&operand);
        let outcome = access::accumulate(self.memory.words(), operation, T::DATA_TYPE, at, operand);
        self.memory.wakeup_of(at / 8).notify();
        outcome.map_err(|error| self.arithmetic(error))
    }

    /// Stores elements at the indices of an array: number `i` of `elements` (little-endian, back to
    /// back) becomes element `indices[i]`, counted from byte `at` of the window. Of equal indices
    /// the last one takes effect.
    ///
    /// # Errors
    /// [`WindowError::Index`] (all indices are checked before the first store),
    /// [`WindowError::IndicesAndDataDiffer`], [`WindowError::OutOfRange`],
    /// [`WindowError::Misaligned`], [`WindowError::Withdrawn`].
    ///
    /// # Examples
    /// ```
    /// # use queues::window::{WindowError, Window};
    /// # use shm::{arena::Arena, segment::{Backing, Segment}};
    /// # use std::sync::Arc;
    /// use goal::arithmetic::DataType;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let segment = Arc::new(Segment::create(1 << 20, Backing::Memory)?);
    /// # let arena = Arc::new(Arena::new(Arc::clone(&segment), 0..1 << 20)?);
    /// let window = Window::create(&arena, 8)?;
    /// let remote = window.local();
    /// remote.scatter(DataType::U8, 0, &[7, 0, 3], b"abc")?;
    /// let mut gathered = [0; 4];
    /// remote.gather(DataType::U8, 0, &[3, 7, 7, 0], &mut gathered)?;
    /// assert_eq!(&gathered, b"caab");
    /// assert!(matches!(
    ///     remote.scatter(DataType::U8, 0, &[0, 8], b"xy"),
    ///     Err(WindowError::Index { position: 1, index: 8, .. })
    /// ));
    /// # Ok(())
    /// # }
    /// ```
    pub fn scatter(
        &self,
        data_type: DataType,
        at: u64,
        indices: &[u64],
        elements: &[u8],
    ) -> Result<(), WindowError> {
        self.check_indices(data_type, at, indices, elements.len())?;
        let size = data_type.bytes();
        for (&index, element) in indices.iter().zip(elements.chunks_exact(size)) {
            let element_at = at + index * size as u64;
            access::write_element(self.memory.words(), element_at, element);
            self.memory.wakeup_of(element_at / 8).notify();
        }
        Ok(())
    }

    /// Loads elements at the indices of an array: element `indices[i]`, counted from byte `at` of
    /// the window, becomes number `i` of `elements` (little-endian, back to back).
    ///
    /// # Errors
    /// [`WindowError::Index`] (all indices are checked before the first load),
    /// [`WindowError::IndicesAndDataDiffer`], [`WindowError::OutOfRange`],
    /// [`WindowError::Misaligned`], [`WindowError::Withdrawn`].
    pub fn gather(
        &self,
        data_type: DataType,
        at: u64,
        indices: &[u64],
        elements: &mut [u8],
    ) -> Result<(), WindowError> {
        self.check_indices(data_type, at, indices, elements.len())?;
        let size = data_type.bytes();
        for (&index, element) in indices.iter().zip(elements.chunks_exact_mut(size)) {
            access::read_element(self.memory.words(), at + index * size as u64, element);
        }
        Ok(())
    }

    /// Increments the owner's counter of notifications, on which it may wait. Everything that this
    /// process did before is visible to the owner when it sees the count.
    #[inline]
    pub fn notify(&self) {
        self.memory.notify();
    }

    /// Wakes waits for a word of the range, which was just changed.
    fn wake(&self, at: u64, length: u64) {
        if length > 0 {
            let first = at / 8;
            self.memory.wake(first, (at + length - 1) / 8 - first + 1);
        }
    }

    /// Checks that the range lies in the window and that the window is not withdrawn.
    #[inline]
    pub(super) fn check(&self, at: u64, length: u64) -> Result<(), WindowError> {
        if at.checked_add(length).is_none_or(|end| end > self.bytes()) {
            return Err(self.out_of_range(at, length));
        }
        // An owner that withdraws the window after this load leaves the memory allocated, because this
        // handle is attached: the command is then harmless, and its effect is lost with the window.
        if self.memory.processes().is_closed() {
            return Err(self.withdrawn());
        }
        Ok(())
    }

    /// Checks the range as `check` does, and the alignment of `at` for elements of this type.
    #[inline]
    pub(super) fn check_elements(
        &self,
        at: u64,
        data_type: DataType,
        length: u64,
    ) -> Result<(), WindowError> {
        let size = data_type.bytes() as u64;
        if at & (size - 1) != 0 {
            return Err(WindowError::Misaligned { window: self.offset(), at, size });
        }
        self.check(at, length)
    }

    fn check_indices(
        &self,
        data_type: DataType,
        at: u64,
        indices: &[u64],
        bytes: usize,
    ) -> Result<(), WindowError> {
        self.check_elements(at, data_type, 0)?;
        if indices.len().checked_mul(data_type.bytes()) != Some(bytes) {
            return Err(WindowError::IndicesAndDataDiffer {
                indices: indices.len(),
                data_type,
                bytes,
            });
        }
        // All indices are checked before the first access, so a command changes all or nothing.
        let elements = (self.bytes() - at) / data_type.bytes() as u64;
        match indices.iter().position(|&index| index >= elements) {
            Some(position) => {
                let window = self.offset();
                let index = indices[position];
                Err(WindowError::Index { window, position, index, at, elements })
            }
            None => Ok(()),
        }
    }

    #[cold]
    fn out_of_range(&self, at: u64, length: u64) -> WindowError {
        WindowError::OutOfRange { window: self.offset(), at, length, bytes: self.bytes() }
    }

    #[cold]
    pub(super) fn withdrawn(&self) -> WindowError {
        WindowError::Withdrawn { window: self.offset(), owner: self.owner() }
    }

    #[cold]
    fn arithmetic(&self, error: ArithmeticError) -> WindowError {
        WindowError::Arithmetic { window: self.offset(), error }
    }
}

impl Drop for RemoteWindow {
    fn drop(&mut self) {
        if let Some(entry) = &self.entry {
            self.memory.processes().detach(entry);
        }
    }
}
