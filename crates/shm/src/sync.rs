//! Atomics for the protocols of this crate.
//!
//! Protocol files import atomics from `crate::sync` only. A loom test includes the same source file
//! beside its own `sync` module, which re-exports loom's atomics. The model checker then explores
//! the code that runs in production, without a compiler flag:
//!
//! ```text
//! mod sync { pub use loom::sync::atomic::*; pub use loom::hint::spin_loop; }
//! #[path = "../src/completion.rs"]
//! mod completion;
//! ```

pub use core::hint::spin_loop;
pub use core::sync::atomic::*;
