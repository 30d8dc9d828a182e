/* Preloaded under MPICH when every rank has a core: its waits call sched_yield on every poll, a system call
 * without effect there. A pause is the fair substitute. */
int sched_yield(void) {
#if defined(__x86_64__) || defined(__i386__)
    __asm__ volatile("pause");
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
    return 0;
}
