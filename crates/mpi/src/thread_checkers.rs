//! Tools that check the threads of a program, under which nothing runs on tradewind: they know nothing
//! of the synchronization with other processes by atomic words, forbid threads in forked processes, or
//! let one thread run at a time, so that a thread that polls starves the others.

use crate::host;

/// The tool that checks the threads of this process, if there is one.
pub(crate) fn thread_checker() -> Option<&'static str> {
    if !host::variable(c"__tsan_init").is_null() {
        return Some("ThreadSanitizer");
    }
    // Valgrind shows its own variables and its entries of LD_PRELOAD to no program.
    let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
    let name: &[u8] = b"/vgpreload_helgrind";
    maps.windows(name.len()).any(|part| part == name).then_some("helgrind")
}
