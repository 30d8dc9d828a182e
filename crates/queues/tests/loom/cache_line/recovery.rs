//! Loom models of the recovery of lines whose senders have died.

use super::*;

testing::tests![
    a_dead_claimer_costs_one_line_until_it_is_recovered,
    a_dead_claimers_line_is_taken_over_once,
    senders_recover_the_lines_of_the_dead,
    the_next_claim_identifies_the_claimant,
    a_ring_that_changes_hands_recovers_the_lines_of_the_dead,
    a_line_that_was_released_by_a_sender_that_died_is_not_lost,
];

/// A sender dies at one of the steps of its sending. The others go on with the lines that are left,
/// and get its own back.
fn a_dead_claimer_costs_one_line_until_it_is_recovered() {
    for has_named_itself in [false, true] {
        model(2, move || {
            let ring = Memory::used(4, 0);
            let dead = {
                let ring = Arc::clone(&ring);
                thread::spawn(move || ring.die_composing(1, has_named_itself))
            };
            let other = {
                let ring = Arc::clone(&ring);
                thread::spawn(move || ring.send_some(2, 3))
            };
            let mut got = ring.receive_some::<Multi>(2);
            dead.join().expect("no panic");
            assert_eq!(other.join().expect("no panic"), 3);
            got.extend(ring.drain::<Multi>());
            assert_eq!(got, [(2, 0), (2, 1), (2, 2)]);
            // With one line less the ring still works, lap after lap.
            for lap in 0..3 {
                assert!(ring.send_some(3, 4) >= 2, "lap {lap}");
                assert!(of(3, &ring.drain::<Multi>()).len() >= 2, "lap {lap}");
            }
            assert!(ring.lines_of(3).recover() <= 1, "if no sender has done so");
            assert_eq!(ring.lines_of(3).recover(), 0, "once");
            // The line rests for a lap or two.
            ring.pass_laps(2);
            ring.assert_whole();
        });
    }
}

/// Two find out at once that a sender has died, while a third goes on sending.
fn a_dead_claimers_line_is_taken_over_once() {
    model(1, || {
        let ring = Memory::used(2, 0);
        ring.die_composing(1, true);
        assert!(ring.send(2, 9).is_ok());
        assert_eq!(ring.receive_some::<Multi>(1), [(2, 9)]);
        let recoverers = [3, 4].map(|from| {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.lines_of(from).recover())
        });
        let sent = ring.send_some(2, 2);
        let got = ring.drain::<Multi>();
        // None of them, if the void was just being moved on.
        assert!(
            recoverers.map(|one| one.join().expect("no panic")).into_iter().sum::<usize>() <= 1
        );
        assert_eq!(of(2, &got), (0..sent).collect::<Vec<_>>());
        ring.lines_of(3).recover();
        ring.pass_laps(2);
        ring.assert_whole();
    });
}

/// Recovery needs no call: the senders do it when no line is left, and now and then
/// when they pass.
fn senders_recover_the_lines_of_the_dead() {
    model(0, || {
        let ring = Memory::used(2, 0);
        ring.die_composing(1, true);
        ring.die_composing(2, false);
        ring.pass_laps(4);
        ring.assert_whole();
        ring.die_composing(1, false);
        ring.pass_laps(20);
        ring.assert_whole();
    });
}

/// A dead sender's successor is between its claim and its header when a receiver has lost its
/// policy.
fn the_next_claim_identifies_the_claimant() {
    model(3, || {
        let ring = Memory::used(4, 0);
        ring.die_composing(1, false);
        let next = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                assert!(ring.send(2, 0).is_ok());
                assert!(ring.send(2, 1).is_ok());
            })
        };
        let mut looks = eager_voider();
        // Longer than the other thread can be held up here.
        looks.policy.unknown_times = 1_000;
        let mut got = Vec::new();
        for _ in 0..3 {
            got.extend(
                ring.lines()
                    .try_recv::<Multi>(&mut looks)
                    .expect("neither closed nor broken")
                    .map(read),
            );
        }
        next.join().expect("no panic");
        got.extend(ring.drain::<Multi>());
        assert_eq!(got, [(2, 0), (2, 1)]);
        assert_eq!(ring.lines_of(3).recover(), 1, "it was not lost");
        ring.pass_laps(2);
        ring.assert_whole();
    });
}

/// The ring changes hands while a dead sender's line is voided, in each of the laps between two
/// checks of its sender, and before and after the head.
fn a_ring_that_changes_hands_recovers_the_lines_of_the_dead() {
    for position in 0..40 {
        model(0, move || {
            let ring = Memory::used(2, 0);
            for number in 0..position {
                assert!(ring.send(3, number).is_ok());
                assert_eq!(ring.drain::<Multi>(), [(3, number)]);
            }
            ring.die_composing(1, true);
            assert!(ring.send(2, 0).is_ok());
            assert_eq!(ring.receive_some::<Multi>(1), [(2, 0)]);
            ring.lines().close();
            let generation = ring.lines().reopen().expect("it is closed and empty");
            for _ in 0..2 * 16 {
                let sent = ring.send_some_in(generation, 4, 2);
                assert_eq!(ring.drain::<Multi>().len() as u64, sent, "nothing is held up");
            }
            ring.assert_whole_in(generation);
        });
    }
}

/// A slow sender returns its line and ends, while another checks whether it has ended.
fn a_line_that_was_released_by_a_sender_that_died_is_not_lost() {
    model(2, || {
        let ring = Memory::used(2, 0);
        // The next claim of the slow line is in a lap in which its sender is checked.
        for number in 0..27 {
            assert!(ring.send(3, number).is_ok());
            assert_eq!(ring.drain::<Multi>(), [(3, number)]);
        }
        let slow = ring.lines_of(1).claim(0).expect("space");
        assert!(ring.send(2, 0).is_ok());
        assert_eq!(ring.receive_some::<Multi>(1), [(2, 0)]);
        let late = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                let lines = ring.lines_of(1);
                lines.write(slow, &message(1, 0));
                assert!(lines.publish(slow).is_err(), "it was voided");
                lines.release(slow);
                // Release, as the kernel's word about a death would be.
                ring.dead.fetch_or(1 << 1, Ordering::Release);
            })
        };
        let sent = ring.send_some(2, 2);
        late.join().expect("no panic");
        assert_eq!(of(2, &ring.drain::<Multi>()).len() as u64, sent);
        ring.pass_laps(2);
        ring.assert_whole();
    });
}
