//! Fetches that wait until a word of the window has a value.

use crate::child::{Child, memory, segment_and_offsets};
use goal::arithmetic::Arithmetic;
use queues::window::{Condition, Fetch, RemoteWindow, Window, WindowError};
use shm::segment::Offset;
use std::sync::Arc;
use std::time::{Duration, Instant};

testing::tests![
    a_conditional_fetch_sleeps_until_another_process_makes_it_true,
    a_request_is_tested_waited_for_until_a_deadline_and_dropped,
    a_wait_ends_when_the_owner_dies_or_withdraws_the_window,
];
testing::parts![child_fetches, child_creates_a_window];

fn a_conditional_fetch_sleeps_until_another_process_makes_it_true() {
    let (segment, arena) = memory(1 << 20);
    let window = Window::create(&arena, 256).expect("memory");
    let mut other = Child::start_on("window::waits::child_fetches", &segment, &[window.offset()]);
    window.wait_for_notifications(1, None);
    // Both of its threads sleep, on words that share a wake-up word, for different values.
    other.until_asleep();
    let remote = window.local();
    remote.put_value(200, 1.5_f64).expect("inside");
    for count in 1..=3_u64 {
        assert_eq!(remote.get_value::<u64>(240), Ok(0), "not before the counter has reached 3");
        remote.accumulate_value(Arithmetic::Add, 0, 1_u64).expect("inside");
        assert!(count < 3 || window.wait_for_notifications(2, None) == 2);
    }
    assert_eq!(remote.get_value::<f64>(240), Ok(1.5));
    remote.put(128, &9_u64.to_le_bytes()).expect("inside");
    window.wait_for_notifications(3, None);
    assert!(other.succeeds());
}

/// Child process of `a_conditional_fetch_sleeps_until_another_process_makes_it_true`.
fn child_fetches() {
    let (segment, offsets) = segment_and_offsets();
    let remote = RemoteWindow::connect(&segment, offsets[0]).expect("a window");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // The word at 128 shares its wake-up word with the one at 0.
            let request =
                remote.fetch_when(Condition { at: 128, at_least: 9 }, 0, []).expect("inside");
            request.wait().expect("reached");
            remote.notify().expect("of this node");
        });
        let request =
            remote.fetch_when(Condition { at: 0, at_least: 3 }, 200, [0; 8]).expect("inside");
        remote.notify().expect("of this node");
        let bytes = request.wait().expect("reached");
        remote.put(240, &bytes).expect("inside");
        remote.notify().expect("of this node");
    });
}

fn a_request_is_tested_waited_for_until_a_deadline_and_dropped() {
    let (_, arena) = memory(1 << 20);
    let window = Window::create(&arena, 64).expect("memory");
    let remote = window.local();
    let condition = Condition { at: 8, at_least: 5 };
    drop(remote.fetch_when(condition, 0, [0; 8]).expect("inside"));
    let request = remote.fetch_when(condition, 0, [0; 8]).expect("inside");
    remote.put_value(8, 4_u64).expect("inside");
    let Ok(Fetch::Pending(request)) = request.test() else { panic!("4 is less than 5") };
    let soon = Instant::now() + Duration::from_millis(2);
    let Ok(Fetch::Pending(request)) = request.wait_deadline(soon) else { panic!("still 4") };
    remote.put_value(0, 77_u64).expect("inside");
    remote.accumulate_value(Arithmetic::Multiply, 8, 2_u64).expect("inside");
    assert!(
        matches!(request.test(), Ok(Fetch::Complete(bytes)) if bytes == 77_u64.to_le_bytes()),
        "8 is more than 5"
    );
    assert!(remote.fetch_when(Condition { at: 4, at_least: 1 }, 0, []).is_err(), "no whole word");
    assert!(remote.fetch_when(Condition { at: 64, at_least: 1 }, 0, []).is_err(), "outside");
    assert!(remote.fetch_when(condition, 60, [0; 8]).is_err(), "leaves the window");
}

fn a_wait_ends_when_the_owner_dies_or_withdraws_the_window() {
    let (segment, arena) = memory(1 << 20);
    let offsets_window = Window::create(&arena, 8).expect("memory");
    let mut other = Child::start_on(
        "window::waits::child_creates_a_window",
        &segment,
        &[offsets_window.offset()],
    );
    offsets_window.wait_for_notifications(1, None);
    let at = Offset(offsets_window.local().get_value(0).expect("inside"));
    let remote = RemoteWindow::connect(&segment, at).expect("a window");
    assert_eq!(remote.owner(), other.pid());
    std::thread::scope(|scope| {
        let request = remote.fetch_when(Condition { at: 0, at_least: 1 }, 0, []).expect("inside");
        let waiting = scope.spawn(move || request.wait());
        other.kill();
        let gone = WindowError::OwnerGone { window: at, owner: other.pid(), at: 0, at_least: 1 };
        assert_eq!(waiting.join().expect("it ends"), Err(gone));
    });
    assert_eq!(remote.put_value(0, 1_u64), Ok(()), "its memory is still there");

    let window = Window::create(&arena, 8).expect("memory");
    let remote = RemoteWindow::connect(&segment, window.offset()).expect("a window");
    std::thread::scope(|scope| {
        let request = remote.fetch_when(Condition { at: 0, at_least: 1 }, 0, []).expect("inside");
        let waiting = scope.spawn(move || request.wait());
        drop(window);
        assert!(matches!(waiting.join().expect("it ends"), Err(WindowError::Withdrawn { .. })));
    });
}

/// Child process of `a_wait_ends_when_the_owner_dies_or_withdraws_the_window`.
fn child_creates_a_window() {
    let (segment, offsets) = segment_and_offsets();
    let arena =
        Arc::new(shm::arena::Arena::new(Arc::clone(&segment), 512 << 10..1 << 20).expect("inside"));
    let window = Window::create(&arena, 8).expect("memory");
    let offsets_window = RemoteWindow::connect(&segment, offsets[0]).expect("a window");
    offsets_window.put_value(0, window.offset().0).expect("inside");
    offsets_window.notify().expect("of this node");
    std::io::stdin().read_line(&mut String::new()).expect("the parent's pipe");
}
