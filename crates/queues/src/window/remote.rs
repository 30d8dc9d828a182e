//! Remote memory commands on a window.

use super::access;
use super::carried::{CarriedWindow, WindowRoute};
use super::condition::Condition;
use super::error::WindowError;
use super::memory::WindowMemory;
use super::wire::Kind;
use goal::arithmetic::{Arithmetic, ArithmeticError, DataType, Element};
use shm::event::Event;
use shm::object::CreateError;
use shm::process_table::Entry;
use shm::segment::{Offset, Segment};
use shm::wakeup::Wakeup;
use std::sync::Arc;

/// Handle to a window of another process, on this node or another one. Any number of threads may use
/// it concurrently.
#[derive(Debug)]
pub struct RemoteWindow {
    place: Place,
    bytes: u64,
}

/// Place of a window.
#[derive(Debug)]
pub(super) enum Place {
    /// In the segment of this node. The entry is that of this handle in the window's process table;
    /// the owner has none.
    Here(WindowMemory, Option<Entry>),
    /// On another node.
    Elsewhere(Box<CarriedWindow>),
}

impl RemoteWindow {
    /// Connects to the window at `offset` of the segment.
    ///
    /// # Errors
    /// [`CreateError::NotFound`], [`CreateError::Closed`], [`CreateError::TooMany`],
    /// [`CreateError::Segment`], [`CreateError::Process`].
    pub fn connect(segment: &Arc<Segment>, offset: Offset) -> Result<Self, CreateError> {
        let (memory, entry) = WindowMemory::connect(segment, offset)?;
        Ok(RemoteWindow { bytes: memory.bytes(), place: Place::Here(memory, Some(entry)) })
    }

    /// Returns a handle to the window of a rank on another node, with this offset, size in bytes and
    /// process of its owner.
    pub fn on_other_node(
        (offset, bytes, owner): (Offset, u64, u32),
        route: Box<dyn WindowRoute>,
    ) -> Self {
        let place = Place::Elsewhere(Box::new(CarriedWindow::new(offset, owner, route)));
        RemoteWindow { bytes, place }
    }

    pub(super) fn of_owner(memory: WindowMemory) -> Self {
        RemoteWindow { bytes: memory.bytes(), place: Place::Here(memory, None) }
    }

    /// Sets the event of the node service that serves the window to other nodes. Commands of this
    /// handle wake it where it waits for the words that they change.
    #[must_use]
    pub fn beside_node_service(mut self, service: &Event) -> Self {
        if let Place::Here(memory, _) = &mut self.place {
            memory.set_service(service.clone());
        }
        self
    }

    #[inline(always)]
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Returns the offset of the window in the segment of its node.
    pub fn offset(&self) -> Offset {
        match &self.place {
            Place::Here(memory, _) => memory.object().offset(),
            Place::Elsewhere(window) => window.offset,
        }
    }

    /// Returns the offset of its bytes in the segment, if the window is on this node.
    pub(crate) fn memory(&self) -> Option<Offset> {
        match &self.place {
            Place::Here(memory, _) => Some(memory.object().behind_header(0)),
            Place::Elsewhere(_) => None,
        }
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of the process that owns the window, on its node.
    pub fn owner(&self) -> u32 {
        match &self.place {
            Place::Here(memory, _) => memory.owner().pid(),
            Place::Elsewhere(window) => window.owner,
        }
    }

    /// Loads bytes from byte `at` of the window on.
    ///
    /// # Errors
    /// [`WindowError::OutOfRange`], [`WindowError::Withdrawn`].
    pub fn get(&self, at: u64, bytes: &mut [u8]) -> Result<(), WindowError> {
        self.check(at, bytes.len() as u64)?;
        self.load(at, bytes)
    }

    /// Loads bytes. The range has been checked.
    #[inline]
    pub(super) fn load(&self, at: u64, bytes: &mut [u8]) -> Result<(), WindowError> {
        match &self.place {
            Place::Here(memory, _) => access::read(memory.words(), at, bytes),
            Place::Elsewhere(window) => window.get_bytes(at, bytes)?,
        }
        Ok(())
    }

    /// Loads one element at byte `at`, a multiple of its size, in one step.
    ///
    /// # Errors
    /// [`WindowError::OutOfRange`], [`WindowError::Misaligned`], [`WindowError::ElementTooLong`],
    /// [`WindowError::Withdrawn`].
    #[inline]
    pub fn get_value<T: Element>(&self, at: u64) -> Result<T, WindowError> {
        self.check_elements(at, T::DATA_TYPE, size_of::<T>() as u64)?;
        let mut value = T::zeroed();
        let bytes = bytemuck::bytes_of_mut(&mut value);
        match &self.place {
            Place::Here(memory, _) => access::read_element(memory.words(), at, bytes),
            Place::Elsewhere(window) => window.get_bytes(at, bytes)?,
        }
        Ok(value)
    }

    /// Combines one element with one operand, as [`accumulate_value`](Self::accumulate_value) does,
    /// and returns what it was, in one step: a ticket counter, a lock, a list of free places.
    ///
    /// # Errors
    /// Those of [`RemoteWindow::accumulate`].
    ///
    /// # Examples
    /// ```
    /// # use queues::window::Window;
    /// # use shm::{arena::Arena, segment::{Backing, Segment}};
    /// # use std::sync::Arc;
    /// use goal::arithmetic::Arithmetic;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let segment = Arc::new(Segment::create(1 << 20, Backing::Memory)?);
    /// # let arena = Arc::new(Arena::new(Arc::clone(&segment), 0..1 << 20)?);
    /// let window = Window::create(&arena, 64)?;
    /// let remote = window.local();
    /// let tickets = [0; 3].map(|_| remote.fetch_accumulate_value(Arithmetic::Add, 0, 1_u32));
    /// assert_eq!(tickets, [Ok(0), Ok(1), Ok(2)]);
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn fetch_accumulate_value<T: Element>(
        &self,
        operation: Arithmetic,
        at: u64,
        operand: T,
    ) -> Result<T, WindowError> {
        let mut previous = T::zeroed();
        let bytes = bytemuck::bytes_of_mut(&mut previous);
        let operand = bytemuck::bytes_of(&operand);
        self.fetch_accumulate((operation, T::DATA_TYPE), at, operand, bytes)?;
        Ok(previous)
    }

    /// As [`fetch_accumulate_value`](Self::fetch_accumulate_value), for the bytes of an element of
    /// this type.
    #[inline]
    pub(super) fn fetch_accumulate(
        &self,
        (operation, data_type): (Arithmetic, DataType),
        at: u64,
        operand: &[u8],
        previous: &mut [u8],
    ) -> Result<(), WindowError> {
        self.check_elements(at, data_type, operand.len() as u64)?;
        self.check_operation(operation, data_type)?;
        let of = (operation, data_type);
        let memory = match &self.place {
            Place::Here(memory, _) => memory,
            Place::Elsewhere(window) => {
                let kind = Kind::FetchAccumulate(operation, data_type);
                return window.exchange(kind, at, operand, previous);
            }
        };
        let outcome = access::fetch_accumulate(memory.words(), of, at, operand, previous);
        memory.wake_one(at / 8);
        outcome.map_err(|error| self.arithmetic(error))
    }

    /// Replaces the element at byte `at`, a multiple of its size, by `new` if its bits are those of
    /// `expected`, in one step. Returns what it was.
    ///
    /// # Errors
    /// [`WindowError::OutOfRange`], [`WindowError::Misaligned`], [`WindowError::ElementTooLong`],
    /// [`WindowError::Withdrawn`].
    ///
    /// # Examples
    /// ```
    /// # use queues::window::Window;
    /// # use shm::{arena::Arena, segment::{Backing, Segment}};
    /// # use std::sync::Arc;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let segment = Arc::new(Segment::create(1 << 20, Backing::Memory)?);
    /// # let arena = Arc::new(Arena::new(Arc::clone(&segment), 0..1 << 20)?);
    /// let window = Window::create(&arena, 64)?;
    /// let remote = window.local();
    /// assert_eq!(remote.compare_exchange_value(8, 0_u16, 7)?, 0);
    /// assert_eq!(remote.compare_exchange_value(8, 0_u16, 9)?, 7, "it stays 7");
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn compare_exchange_value<T: Element>(
        &self,
        at: u64,
        expected: T,
        new: T,
    ) -> Result<T, WindowError> {
        let mut previous = T::zeroed();
        let bytes = bytemuck::bytes_of_mut(&mut previous);
        let elements = [expected, new];
        self.compare_exchange(T::DATA_TYPE, at, bytemuck::cast_slice(&elements), bytes)?;
        Ok(previous)
    }

    /// As [`compare_exchange_value`](Self::compare_exchange_value), for the bytes of two elements of
    /// this type.
    #[inline]
    pub(super) fn compare_exchange(
        &self,
        data_type: DataType,
        at: u64,
        elements: &[u8],
        previous: &mut [u8],
    ) -> Result<(), WindowError> {
        self.check_elements(at, data_type, previous.len() as u64)?;
        let memory = match &self.place {
            Place::Here(memory, _) => memory,
            Place::Elsewhere(window) => {
                return window.exchange(Kind::CompareExchange(data_type), at, elements, previous);
            }
        };
        access::compare_exchange(memory.words(), at, elements, previous);
        memory.wake_one(at / 8);
        Ok(())
    }

    /// Increments the owner's counter of notifications, on which it may wait. Everything that this
    /// process has completed before is visible to the owner when it sees the count (see
    /// [`window`](crate::window)).
    ///
    /// # Errors
    /// None on the owner's node. [`WindowError::Withdrawn`], [`WindowError::RankExited`],
    /// [`WindowError::NodeServiceEnded`] on another one.
    #[inline]
    pub fn notify(&self) -> Result<(), WindowError> {
        match &self.place {
            Place::Here(memory, _) => memory.notify(),
            Place::Elsewhere(window) => window.notify()?,
        }
        Ok(())
    }

    /// Returns true if a condition on this window is true.
    pub(super) fn reaches(&self, condition: Condition) -> Result<bool, WindowError> {
        self.check_elements(condition.at, DataType::U64, 8)?;
        self.is_reached(condition)
    }

    /// As [`reaches`](Self::reaches), for a condition that was checked.
    #[inline]
    pub(super) fn is_reached(&self, condition: Condition) -> Result<bool, WindowError> {
        match &self.place {
            // The load acquires what the writer of the word stored before, so bytes that are loaded
            // later are at least as new as the condition.
            Place::Here(memory, _) if condition.is_true(memory) => Ok(true),
            Place::Here(memory, _) if memory.processes().is_closed() => Err(self.withdrawn()),
            Place::Here(..) => Ok(false),
            Place::Elsewhere(window) => window.test(condition),
        }
    }

    /// Returns the wake-up word of waits for the word with this number, of a window of this node.
    pub(super) fn wakeup_of(&self, word: u64) -> Option<Wakeup<'_>> {
        match &self.place {
            Place::Here(memory, _) => Some(memory.wakeup_of(word)),
            Place::Elsewhere(_) => None,
        }
    }

    /// Checks that the range lies in the window and that the window is not withdrawn.
    #[inline]
    pub(super) fn check(&self, at: u64, length: u64) -> Result<(), WindowError> {
        if at.checked_add(length).is_none_or(|end| end > self.bytes()) {
            return Err(self.out_of_range(at, length));
        }
        match &self.place {
            // An owner that withdraws the window after this load leaves the memory allocated, because
            // this handle is attached: the command is then harmless, and its effect is lost with the
            // window.
            Place::Here(memory, _) if memory.processes().is_closed() => Err(self.withdrawn()),
            // The command itself is checked at the owner's node.
            _ => Ok(()),
        }
    }

    #[inline]
    pub(super) fn check_operation(
        &self,
        operation: Arithmetic,
        data_type: DataType,
    ) -> Result<(), WindowError> {
        if operation.applies_to(data_type) {
            return Ok(());
        }
        Err(self.arithmetic(ArithmeticError::NotApplicable { operation, data_type }))
    }

    /// Checks the range as `check` does, and the size and alignment of elements of this type.
    #[inline]
    pub(super) fn check_elements(
        &self,
        at: u64,
        data_type: DataType,
        length: u64,
    ) -> Result<(), WindowError> {
        let size = data_type.bytes() as u64;
        if size > 8 {
            return Err(WindowError::ElementTooLong { data_type });
        }
        if at & (size - 1) != 0 {
            return Err(WindowError::Misaligned { window: self.offset(), at, size });
        }
        self.check(at, length)
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
    pub(super) fn arithmetic(&self, error: ArithmeticError) -> WindowError {
        WindowError::Arithmetic { window: self.offset(), error }
    }
}

impl Drop for RemoteWindow {
    fn drop(&mut self) {
        if let Place::Here(memory, Some(entry)) = &self.place {
            memory.processes().detach(entry);
        }
    }
}
