//! Memory that ranks share with the program: its layout, its mapping, and the allocation of a
//! rank's arena.

pub(crate) mod arena;
pub(crate) mod layout;
pub(crate) mod mapping;
