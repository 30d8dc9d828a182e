//! Exploration of the models.

use loom::model::Builder;

/// Runs `body` with every interleaving of its threads that needs at most `preemptions`
/// preemptions, and at most as many as the variable `LOOM_MAX_PREEMPTIONS` says, or two. In
/// practice two find what more find.
pub(crate) fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    explore(preemptions, 2, body);
}

/// As [`model`], with one preemption unless the variable says more: for bodies of so many steps
/// that two take a minute.
pub(crate) fn long_model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    explore(preemptions, 1, body);
}

fn explore(preemptions: usize, default: usize, body: impl Fn() + Sync + Send + 'static) {
    // The builder has read the variable.
    let mut builder = Builder::new();
    let permitted = builder.preemption_bound.unwrap_or(default);
    builder.preemption_bound = Some(preemptions.min(permitted));
    builder.max_branches = 20_000;
    builder.check(body);
}

/// Asserts that a function panics because Loom has found a deadlock.
pub(crate) fn assert_deadlock(run: impl FnOnce()) {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    let payload = panic.expect_err("the model has to fail");
    let message = payload.downcast_ref::<String>().expect("a panic with a message");
    assert!(message.contains("deadlock"), "{message}");
}
