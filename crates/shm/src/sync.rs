//! The atomics that the protocols of this room are written with.
//!
//! A protocol file takes its atomics from `crate::sync` and from nowhere else. A loom test then
//! includes the very same source file beside a `sync` module of its own that re-exports loom's
//! atomics, so what the model checker walks through is what runs, without a compiler flag:
//!
//! ```text
//! mod sync { pub use loom::sync::atomic::*; pub use loom::hint::spin_loop; }
//! #[path = "../src/completion.rs"]
//! mod completion;
//! ```

pub use core::hint::spin_loop;
pub use core::sync::atomic::*;
