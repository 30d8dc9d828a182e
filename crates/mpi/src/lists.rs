//! Lists of counts, displacements and types, as calls read them.
//!
//! The lists of a nonblocking call live until it is complete. Those of a persistent collective
//! should live until its request is freed, but some bindings pass lists that end with the
//! initialization: lists of types in Fortran, lists of counts in mpi4py. The initialization
//! therefore copies the lists that it reads, and every start reads the copies.

use crate::abi::Abi;
use crate::host::{Aint, Handle, Offset, Types};
use std::cell::RefCell;
use std::ffi::c_int;

/// An integer type of counts or displacements.
pub(crate) trait Number: Copy {
    fn wide(self) -> i64;
}

impl Number for c_int {
    fn wide(self) -> i64 {
        i64::from(self)
    }
}

impl Number for i64 {
    fn wide(self) -> i64 {
        self
    }
}

impl Number for Aint {
    fn wide(self) -> i64 {
        self as i64
    }
}

impl Number for Offset {
    fn wide(self) -> i64 {
        self.0.wide()
    }
}

/// Place and length of a list of the program.
type Key = (usize, usize);

/// Copies of the lists of a persistent collective.
#[derive(Debug, Default)]
pub(crate) struct KeptLists {
    numbers: Vec<(Key, Vec<i64>)>,
    types: Vec<(Key, Vec<Handle>)>,
}

impl KeptLists {
    /// The types in the lists.
    pub(crate) fn types(&self) -> impl Iterator<Item = Handle> + '_ {
        self.types.iter().flat_map(|(_, types)| types.iter().copied())
    }
}

/// The place from which a call reads its lists.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lists {
    /// The memory of the program.
    Passed,
    /// The memory of the program, from which they are copied for later starts.
    Copied(&'static RefCell<KeptLists>),
    /// The copies.
    Kept(&'static KeptLists),
}

impl Lists {
    /// The first `length` numbers of a list that the program has passed.
    pub(crate) fn numbers<N: Number>(self, list: *const N, length: usize) -> Vec<i64> {
        let key = (list as usize, length);
        // SAFETY: MPI demands a number for each rank or neighbour.
        let read = || (0..length).map(|index| unsafe { *list.add(index) }.wide()).collect();
        self.find(key, |kept| &kept.numbers, |kept| &mut kept.numbers, read)
    }

    /// The first `length` types of a list that the program has passed.
    pub(crate) fn types(self, abi: &Abi, list: Types, length: usize) -> Vec<Handle> {
        let key = (list as usize, length);
        // SAFETY: MPI demands a type for each rank or neighbour.
        let read =
            || (0..length).map(|index| unsafe { abi.read(list.cast_mut(), index) }).collect();
        self.find(key, |kept| &kept.types, |kept| &mut kept.types, read)
    }

    fn find<T: Clone>(
        self,
        key: Key,
        of: impl Fn(&KeptLists) -> &Vec<(Key, Vec<T>)>,
        of_copies: impl Fn(&mut KeptLists) -> &mut Vec<(Key, Vec<T>)>,
        read: impl Fn() -> Vec<T>,
    ) -> Vec<T> {
        match self {
            Lists::Passed => read(),
            Lists::Copied(copies) => {
                let list = read();
                of_copies(&mut copies.borrow_mut()).push((key, list.clone()));
                list
            }
            Lists::Kept(kept) => {
                let known = of(kept).iter().find(|(other, _)| *other == key);
                // Every form reads its lists before its examination ends, so there is a copy.
                known.map_or_else(Vec::new, |(_, list)| list.clone())
            }
        }
    }
}
