//! Remote memory commands: against a plain reference, between threads and processes, at the limits.

mod carried;
mod commands;
mod waits;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::child::{Child, memory, segment_and_offsets};
use commands::{BYTES, commands};
use goal::arithmetic::{Arithmetic, ArithmeticError, DataType, F64At, apply_in_place_left};
use proptest::prelude::*;
use queues::append;
use queues::error::CreateError;
use queues::window::{Condition, Fetch, RemoteWindow};
use queues::window::{Window, WindowError};
use shm::segment::Offset;
use shm::sync::{AtomicU64, Ordering};

testing::tests![
    every_command_does_what_it_does_to_a_vector,
    single_values_are_elements,
    errors_name_the_range_and_the_position,
    a_window_keeps_its_memory_while_a_handle_is_connected,
    dead_processes_keep_no_window_and_their_entries_are_reused,
    accumulations_of_many_threads_add_up_and_disturb_no_neighbour,
    a_process_that_sees_the_flag_sees_the_data,
    commands_complete_at_a_stopped_target,
    overwritten_windows_and_buffers_cause_no_panic,
];
/// Types in the commands, which other crates name differently.
mod names {
    pub(crate) use queues::window::{RemoteWindow, WindowError};
}

testing::parts![child_holds_a_handle, child_is_stopped];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    fn every_command_does_what_it_does_to_a_vector(commands in prop::collection::vec(commands(), 1..40)) {
        let (segment, arena) = memory(1 << 20);
        let window = Window::create(&arena, BYTES).expect("memory");
        let remote = RemoteWindow::connect(&segment, window.offset()).expect("a window");
        let mut reference = vec![0; BYTES as usize];
        for command in &commands {
            let outcome = command.execute(&remote);
            match (command.apply(&mut reference), &outcome) {
                (Some(expected), Ok(read)) => prop_assert_eq!(&expected, read, "{:?}", command),
                (None, Err(_)) => {}
                (expected, _) => prop_assert!(false, "{:?}: {:?} instead of {:?}", command, outcome, expected),
            }
            let mut all = vec![0; BYTES as usize];
            window.local().get(0, &mut all).expect("the whole window");
            prop_assert_eq!(&all, &reference, "after {:?}", command);
        }
    }

    fn single_values_are_elements(bits in any::<u64>(), operand in any::<f64>()) {
        let (_, arena) = memory(1 << 20);
        let window = Window::create(&arena, 64).expect("memory");
        let remote = window.local();
        remote.put_value(8, bits).expect("inside");
        prop_assert_eq!(remote.get_value::<u64>(8), Ok(bits));
        prop_assert_eq!(remote.get_value::<u16>(10), Ok((bits >> 16) as u16));
        remote.put_value(12, 7_u32).expect("inside");
        prop_assert_eq!(remote.get_value::<u64>(8), Ok(bits & 0xffff_ffff | 7 << 32));
        remote.put_value(16, f64::from_bits(bits)).expect("inside");
        remote.accumulate_value(Arithmetic::Maximum, 16, operand).expect("defined");
        let mut expected = bits.to_le_bytes();
        apply_in_place_left(Arithmetic::Maximum, DataType::F64, &mut expected, &operand.to_le_bytes()).expect("defined");
        prop_assert_eq!(remote.get_value::<f64>(16).expect("inside").to_bits(), u64::from_le_bytes(expected));
    }
}

fn errors_name_the_range_and_the_position() {
    let (segment, arena) = memory(1 << 20);
    let own = Window::create(&arena, 100).expect("memory");
    let window = own.offset();
    let remote = RemoteWindow::connect(&segment, window).expect("a window");
    let outside = |at, length| Err(WindowError::OutOfRange { window, at, length, bytes: 100 });
    assert_eq!(remote.put(96, &[0; 5]), outside(96, 5));
    assert_eq!(remote.get(u64::MAX, &mut [0; 2]), outside(u64::MAX, 2));
    assert_eq!(
        remote.get_value::<u64>(96),
        Err(WindowError::OutOfRange { window, at: 96, length: 8, bytes: 100 })
    );
    assert_eq!(remote.put_value(4, 1_u64), Err(WindowError::Misaligned { window, at: 4, size: 8 }));
    let too_long = |data_type| WindowError::ElementTooLong { data_type };
    assert_eq!(remote.put_value(0, 1_u128), Err(too_long(DataType::U128)));
    assert_eq!(remote.get_value::<F64At>(0), Err(too_long(DataType::F64At)));
    let added = remote.fetch_accumulate_value(Arithmetic::Add, 0, 1_i128);
    assert_eq!(added, Err(too_long(DataType::I128)));
    let exchanged = remote.compare_exchange_value(0, 0_u128, 1);
    assert_eq!(exchanged, Err(too_long(DataType::U128)));
    assert_eq!(remote.put(100, &[]), Ok(()), "nothing at the end lies inside");
    let index = remote.scatter(DataType::U32, 4, &[0, 23, 24], &[0; 12]);
    assert_eq!(
        index,
        Err(WindowError::Index { window, position: 2, index: 24, at: 4, elements: 24 })
    );
    let index = remote.gather(DataType::U64, 0, &[u64::MAX], &mut [0; 8]);
    assert_eq!(
        index,
        Err(WindowError::Index { window, position: 0, index: u64::MAX, at: 0, elements: 12 })
    );
    let differ = remote.scatter(DataType::U64, 0, &[0, 1], &[0; 15]);
    assert_eq!(
        differ,
        Err(WindowError::IndicesAndDataDiffer { indices: 2, data_type: DataType::U64, bytes: 15 })
    );
    let undefined =
        ArithmeticError::NotApplicable { operation: Arithmetic::Xor, data_type: DataType::F32 };
    let outcome = remote.accumulate(Arithmetic::Xor, DataType::F32, 0, &[0; 4]);
    assert_eq!(outcome, Err(WindowError::Arithmetic { window, error: undefined }));
    let zero = ArithmeticError::DivisionByZero { element: 5 };
    let outcome = remote.accumulate(
        Arithmetic::Divide,
        DataType::U16,
        2,
        &[1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 0, 1, 0],
    );
    assert_eq!(outcome, Err(WindowError::Arithmetic { window, error: zero }));
    assert!(matches!(
        RemoteWindow::connect(&segment, Offset(64)),
        Err(CreateError::NotFound { .. })
    ));
    assert!(matches!(Window::create(&arena, u64::MAX), Err(CreateError::Arena(_))));
    drop(own);
    let owner = std::process::id();
    assert_eq!(remote.put(0, &[1]), Err(WindowError::Withdrawn { window, owner }));
    assert!(matches!(RemoteWindow::connect(&segment, window), Err(CreateError::Closed { .. })));
}

fn a_window_keeps_its_memory_while_a_handle_is_connected() {
    let (segment, arena) = memory(1 << 20);
    let window = Window::create(&arena, 100).expect("memory");
    let offset = window.offset();
    drop(RemoteWindow::connect(&segment, offset).expect("a window"));
    drop(window);
    assert_eq!(arena.used(), 0, "all handles are dropped");
    let window = Window::create(&arena, 100).expect("memory");
    let used = arena.used();
    let remote = RemoteWindow::connect(&segment, window.offset()).expect("a window");
    drop(window);
    assert_eq!(arena.used(), used);
    assert!(remote.get_value::<u8>(0).is_err());
    drop(remote);
    let _next = Window::create(&arena, 100).expect("memory");
    assert_eq!(arena.used(), used, "the memory of the first one is free");
}

fn dead_processes_keep_no_window_and_their_entries_are_reused() {
    let (segment, arena) = memory(4 << 20);
    let window = Window::create(&arena, 8).expect("memory");
    let handles: Vec<_> = (0..254)
        .map(|_| RemoteWindow::connect(&segment, window.offset()).expect("an entry"))
        .collect();
    let mut other = Child::start_on("window::child_holds_a_handle", &segment, &[window.offset()]);
    window.wait_for_notifications(1, None);
    assert!(matches!(
        RemoteWindow::connect(&segment, window.offset()),
        Err(CreateError::TooMany { max: 255, .. })
    ));
    other.kill();
    let last =
        RemoteWindow::connect(&segment, window.offset()).expect("the entry of the dead process");
    drop((handles, last, window));
    assert_eq!(arena.used(), 0);
}

/// Child process of `dead_processes_keep_no_window_and_their_entries_are_reused`.
fn child_holds_a_handle() {
    let (segment, offsets) = segment_and_offsets();
    RemoteWindow::connect(&segment, offsets[0]).expect("a window").notify().expect("of this node");
    let _held = RemoteWindow::connect(&segment, offsets[0]);
    std::io::stdin().read_line(&mut String::new()).expect("the parent's pipe");
}

fn accumulations_of_many_threads_add_up_and_disturb_no_neighbour() {
    const THREADS: usize = 4;
    const TIMES: usize = 5_000;
    let (_, arena) = memory(1 << 20);
    let window = Window::create(&arena, 64).expect("memory");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let remote = window.local();
            scope.spawn(move || {
                for time in 0..TIMES {
                    remote.accumulate_value(Arithmetic::Add, 0, 1_u64).expect("inside");
                    remote.accumulate_value(Arithmetic::Add, 8, 1.0_f64).expect("inside");
                    remote
                        .accumulate_value(Arithmetic::Maximum, 16, (thread * TIMES + time) as i64)
                        .expect("inside");
                    remote.accumulate_value(Arithmetic::Add, 24, 1_u16).expect("inside");
                    // Bytes of the same word as the sum above; each thread its own.
                    remote.put_value(26 + thread as u64, time as u8).expect("inside");
                    remote
                        .put(32 + 4 * thread as u64, &(time as u32).to_le_bytes())
                        .expect("inside");
                    assert_eq!(remote.get_value::<u8>(26 + thread as u64), Ok(time as u8));
                    assert_eq!(remote.get_value::<u32>(32 + 4 * thread as u64), Ok(time as u32));
                }
            });
        }
    });
    let remote = window.local();
    assert_eq!(remote.get_value::<u64>(0), Ok((THREADS * TIMES) as u64));
    assert_eq!(remote.get_value::<f64>(8), Ok((THREADS * TIMES) as f64));
    assert_eq!(remote.get_value::<i64>(16), Ok((THREADS * TIMES - 1) as i64));
    assert_eq!(remote.get_value::<u16>(24), Ok((THREADS * TIMES) as u16));
}

fn a_process_that_sees_the_flag_sees_the_data() {
    let (_, arena) = memory(1 << 20);
    let window = Window::create(&arena, 4096).expect("memory");
    let remote = window.local();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for time in 1..=2_000_u64 {
                remote.put(1003, &[time as u8; 500]).expect("inside");
                remote.put_value(0, time).expect("inside");
                remote
                    .fetch_when(Condition { at: 8, at_least: time }, 0, [])
                    .and_then(|request| request.wait())
                    .expect("answered");
            }
        });
        for time in 1..=2_000_u64 {
            let request = remote
                .fetch_when(Condition { at: 0, at_least: time }, 1003, vec![0; 500])
                .expect("inside");
            assert_eq!(request.wait().expect("written"), [time as u8; 500]);
            remote.accumulate_value(Arithmetic::Add, 8, 1_u64).expect("inside");
        }
    });
}

/// The target's process is stopped, and all commands complete except a fetch whose condition is not
/// met.
fn commands_complete_at_a_stopped_target() {
    let (segment, arena) = memory(1 << 20);
    let offsets_window = Window::create(&arena, 16).expect("memory");
    let mut other =
        Child::start_on("window::child_is_stopped", &segment, &[offsets_window.offset()]);
    offsets_window.wait_for_notifications(1, None);
    let place = |at| Offset(offsets_window.local().get_value(at).expect("inside"));
    let remote = RemoteWindow::connect(&segment, place(0)).expect("a window");
    let appender = append::Sender::connect(&segment, place(8)).expect("made");
    other.stop();
    remote.put(16, b"written while stopped!").expect("inside");
    remote.accumulate_value(Arithmetic::Add, 8, 5_u64).expect("inside");
    remote.scatter(DataType::U8, 64, &[2, 0], b"ab").expect("inside");
    let mut read = [0; 7];
    remote.get(16, &mut read).expect("inside");
    assert_eq!(&read, b"written");
    let mut gathered = [0; 2];
    remote.gather(DataType::U8, 64, &[0, 2], &mut gathered).expect("inside");
    assert_eq!(&gathered, b"ba");
    let met = remote.fetch_when(Condition { at: 8, at_least: 5 }, 8, [0; 8]).expect("inside");
    assert_eq!(met.wait().expect("met"), 5_u64.to_le_bytes());
    appender.send(b"appended").expect("memory");
    let unmet = remote.fetch_when(Condition { at: 0, at_least: 1 }, 8, [0; 8]).expect("inside");
    let soon = Instant::now() + Duration::from_millis(5);
    let Ok(Fetch::Pending(unmet)) = unmet.wait_deadline(soon) else {
        panic!("only the target will meet it")
    };
    remote.notify().expect("of this node");
    other.resume();
    assert_eq!(unmet.wait().expect("met at last"), 6_u64.to_le_bytes());
    assert!(other.succeeds());
}

/// Child process of `commands_complete_at_a_stopped_target`.
fn child_is_stopped() {
    let (segment, offsets) = segment_and_offsets();
    let arena =
        Arc::new(shm::arena::Arena::new(Arc::clone(&segment), 512 << 10..1 << 20).expect("inside"));
    let window = Window::create(&arena, 256).expect("memory");
    let mut buffer = append::Receiver::create(&arena, 4, 16).expect("memory");
    let offsets_window = RemoteWindow::connect(&segment, offsets[0]).expect("a window");
    offsets_window.put_value(0, window.offset().0).expect("inside");
    offsets_window.put_value(8, buffer.offset().0).expect("inside");
    offsets_window.notify().expect("of this node");
    window.wait_for_notifications(1, None);
    let mut bytes = [0; 22];
    window.local().get(16, &mut bytes).expect("inside");
    assert_eq!(&bytes, b"written while stopped!");
    let mut record = Vec::new();
    assert_eq!(buffer.try_recv(&mut record), Ok(true));
    assert_eq!(record, b"appended");
    window.local().accumulate_value(Arithmetic::Add, 8, 1_u64).expect("inside");
    window.local().put_value(0, 1_u64).expect("inside");
    // The waiting process reads the window after this, so it is not withdrawn.
    std::mem::forget(window);
}

fn overwritten_windows_and_buffers_cause_no_panic() {
    let (segment, arena) = memory(1 << 20);
    let noise = |seed: u64| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(seed as u32 % 64);
    for seed in 1..100_u64 {
        let window = Window::create(&arena, 64).expect("memory");
        let mut buffer = append::Receiver::create(&arena, 3, 20).expect("memory");
        let remote = RemoteWindow::connect(&segment, window.offset()).expect("a window");
        let appender = append::Sender::connect(&segment, buffer.offset()).expect("made");
        let words = segment.slice_at::<AtomicU64>(window.offset(), 200).expect("inside");
        let cells = segment.slice_at::<AtomicU64>(buffer.offset(), 328).expect("inside");
        for (index, word) in words.iter().chain(cells).enumerate() {
            word.store(noise(seed * 1000 + index as u64), Ordering::Relaxed);
        }
        let mut record = Vec::new();
        let now = Instant::now();
        for _ in 0..10 {
            let _ = remote.put(3, &[1; 20]);
            let _ = remote
                .fetch_when(Condition { at: 0, at_least: u64::MAX }, 0, [])
                .and_then(|request| request.wait_deadline(now).map(|_| ()));
            let _ = appender.send_deadline(b"record", now);
            let _ = buffer.recv_deadline(&mut record, now);
            window.wait_for_notifications(u64::MAX, Some(now));
        }
        let _ = RemoteWindow::connect(&segment, window.offset());
        let _ = append::Sender::connect(&segment, buffer.offset());
        for word in words.iter().chain(cells) {
            word.store(0, Ordering::Relaxed);
        }
    }
}
