//! Indirect commands: stores and loads at the indices of an array.

use super::access;
use super::error::WindowError;
use super::remote::{Place, RemoteWindow};
use goal::arithmetic::DataType;

impl RemoteWindow {
    /// Stores elements at the indices of an array: number `i` of `elements` (little-endian, back to
    /// back) becomes element `indices[i]`, counted from byte `at` of the window. Of equal indices
    /// the last one takes effect.
    ///
    /// # Errors
    /// [`WindowError::Index`] (all indices are checked before the first store),
    /// [`WindowError::IndicesAndDataDiffer`], [`WindowError::OutOfRange`],
    /// [`WindowError::Misaligned`], [`WindowError::ElementTooLong`], [`WindowError::Withdrawn`].
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
        let memory = match self.place() {
            Place::Here(memory, _) => memory,
            Place::Elsewhere(window) => return window.scatter(data_type, at, indices, elements),
        };
        let size = data_type.bytes();
        for (&index, element) in indices.iter().zip(elements.chunks_exact(size)) {
            let element_at = at + index * size as u64;
            access::write_element(memory.words(), element_at, element);
            memory.wake_one(element_at / 8);
        }
        Ok(())
    }

    /// Loads elements at the indices of an array: element `indices[i]`, counted from byte `at` of
    /// the window, becomes number `i` of `elements` (little-endian, back to back).
    ///
    /// # Errors
    /// [`WindowError::Index`] (all indices are checked before the first load),
    /// [`WindowError::IndicesAndDataDiffer`], [`WindowError::OutOfRange`],
    /// [`WindowError::Misaligned`], [`WindowError::ElementTooLong`], [`WindowError::Withdrawn`].
    pub fn gather(
        &self,
        data_type: DataType,
        at: u64,
        indices: &[u64],
        elements: &mut [u8],
    ) -> Result<(), WindowError> {
        self.check_indices(data_type, at, indices, elements.len())?;
        let memory = match self.place() {
            Place::Here(memory, _) => memory,
            Place::Elsewhere(window) => return window.gather(data_type, at, indices, elements),
        };
        let size = data_type.bytes();
        for (&index, element) in indices.iter().zip(elements.chunks_exact_mut(size)) {
            access::read_element(memory.words(), at + index * size as u64, element);
        }
        Ok(())
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
}
