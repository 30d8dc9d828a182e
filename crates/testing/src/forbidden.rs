//! Refused system calls.

/// Lets the kernel refuse this thread, and those that it starts, `process_vm_readv` and
/// `process_vm_writev`, as container runtimes do.
///
/// # Panics
/// If the kernel has no seccomp filters.
pub fn forbid_process_memory() {
    forbid(&[libc::SYS_process_vm_readv, libc::SYS_process_vm_writev]);
}

/// Lets the kernel refuse this thread, and the threads and processes that it starts, the system
/// calls with these numbers: they fail with EPERM.
///
/// # Panics
/// If the kernel has no seccomp filters, or there are more than 250 calls.
pub fn forbid(calls: &[libc::c_long]) {
    use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter, sock_fprog};
    assert!(calls.len() <= 250, "a jump passes over all calls");
    let step = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
    // The first word of the data is the number of the system call. Each comparison that holds jumps
    // over the others and the permission.
    let comparisons = calls.iter().enumerate().map(|(index, call)| {
        let others = (calls.len() - index) as u8;
        step(BPF_JMP | BPF_JEQ | BPF_K, others, 0, *call as u32)
    });
    let mut program: Vec<sock_filter> = [step(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0)]
        .into_iter()
        .chain(comparisons)
        .chain([
            step(BPF_RET | BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
            step(BPF_RET | BPF_K, 0, 0, refuse),
        ])
        .collect();
    let filter = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: both calls change this thread alone; the filter lives until the second has copied it.
    let outcomes = unsafe {
        [
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter),
        ]
    };
    assert_eq!(outcomes, [0, 0], "{}", std::io::Error::last_os_error());
}
