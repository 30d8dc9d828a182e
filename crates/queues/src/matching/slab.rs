//! Values at numbered places, of which a number is never used twice.

/// Number of a value: its index in the lower half, the use of that index in the upper half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(pub(crate) u64);

impl Key {
    fn new(index: usize, generation: u32) -> Self {
        Key(u64::from(generation) << 32 | index as u64 & 0xffff_ffff)
    }

    fn index(self) -> usize {
        (self.0 & 0xffff_ffff) as usize
    }
}

/// Values by [`Key`]. A key that another process has sent is checked by its use.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<(u32, Option<T>)>,
    free: Vec<usize>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Slab { entries: Vec::new(), free: Vec::new() }
    }

    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> Key {
        let Some(index) = self.free.pop() else {
            self.entries.push((0, Some(value)));
            return Key::new(self.entries.len() - 1, 0);
        };
        let (generation, place) = &mut self.entries[index];
        *generation = generation.wrapping_add(1);
        *place = Some(value);
        Key::new(index, *generation)
    }

    #[inline]
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let (generation, value) = self.entries.get(key.index())?;
        value.as_ref().filter(|_| Key::new(key.index(), *generation) == key)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let (generation, value) = self.entries.get_mut(key.index())?;
        value.as_mut().filter(|_| Key::new(key.index(), *generation) == key)
    }

    #[inline]
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        self.get(key)?;
        // Old keys find no value until the place is used again, and then another generation.
        self.free.push(key.index());
        self.entries[key.index()].1.take()
    }

    /// Returns true if there is no value.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.entries.len()
    }

    /// Returns all values.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|(_, value)| value.as_ref())
    }
}
