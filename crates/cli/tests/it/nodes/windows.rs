//! Windows of ranks that are processes on several nodes, one of which is stopped, is killed or
//! vanishes.

use super::harness::{Hydra, Said};
use super::rank::say;
use super::{VICTIM, after_a_disconnection, after_a_kill, nodes};
use rustix::process::{Pid, Signal, getpid, kill_process};
use tradewind::messages::{Condition, RemoteWindow, WindowError};
use tradewind::{Communicator, Job, Op, Result};

testing::tests![
    needs(Nodes, Mpiexec):
    ranks_of_all_nodes_work_on_the_windows_of_each_other,
    commands_are_executed_at_a_stopped_rank,
    a_killed_rank_ends_the_commands_on_its_window,
    a_vanished_node_ends_the_commands_on_its_windows,
];

const EACH: u64 = 300;

fn ranks_of_all_nodes_work_on_the_windows_of_each_other() {
    let testbed = nodes(3);
    let said = Hydra::new(&testbed, &[2, 1, 1]).program("windows").run();
    let expected: Vec<Said> = (0..4).map(|rank| Said::new(rank, "all is right")).collect();
    assert_eq!(said, expected);
}

/// Every rank counts in the windows of all, puts long data there and increments a shared counter.
pub(super) fn exchange() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let (rank, size) = (u64::from(world.rank()), u64::from(world.size()));
    let windows = world.windows(16 + size * 50_000)?;
    for number in 0..EACH {
        for window in &windows.all {
            window.accumulate_value(Op::Sum.into(), 0, number)?;
            window.fetch_accumulate_value(Op::Sum.into(), 8, 1_u64)?;
        }
    }
    for window in &windows.all {
        window.put(16 + rank * 50_000, &[rank as u8 + 1; 50_000])?;
        window.notify()?;
    }
    windows.own.wait_for_notifications(size, None);
    let own = windows.own.local();
    assert_eq!(own.get_value::<u64>(0)?, size * EACH * (EACH - 1) / 2);
    assert_eq!(own.get_value::<u64>(8)?, size * EACH);
    let mut bytes = vec![0; 50_000];
    for other in 0..size {
        own.get(16 + other * 50_000, &mut bytes)?;
        assert!(bytes.iter().all(|byte| u64::from(*byte) == other + 1));
    }
    world.barrier()?;
    say(world.rank(), "all is right");
    Ok(())
}

fn commands_are_executed_at_a_stopped_rank() {
    let testbed = nodes(2);
    let said = Hydra::new(&testbed, &[2, 1]).program("windows-of-a-stopped-rank").run();
    let expected: Vec<Said> = (0..3).map(|rank| Said::new(rank, "all is right")).collect();
    assert_eq!(said, expected);
}

/// Rank 1 stops rank 0, a process of its node, while rank 2 works on its window from the other one.
pub(super) fn of_a_stopped_rank() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let windows = world.windows(64)?;
    let mut processes = [0; 3];
    world.allgather(&[std::process::id()], &mut processes)?;
    let target = Pid::from_raw(processes[0] as i32).expect("a process");
    let [first, second, _] = &windows.all[..] else { panic!("three ranks") };
    match world.rank() {
        0 => _ = windows.own.wait_for_notifications(1, None),
        1 => {
            kill_process(target, Signal::STOP).expect("a process of this user");
            windows.own.local().put_value(0, 1_u64)?;
            // Until rank 2 has worked on it.
            windows.own.wait_for_notifications(1, None);
            kill_process(target, Signal::CONT).expect("a process of this user");
        }
        _ => {
            second.fetch_when(Condition { at: 0, at_least: 1 }, 0, [])?.wait()?;
            for number in 0..EACH {
                assert_eq!(first.fetch_accumulate_value(Op::Sum.into(), 8, 1_u64)?, number);
            }
            second.notify()?;
            first.notify()?;
        }
    }
    assert_eq!(first.get_value::<u64>(8)?, EACH);
    world.barrier()?;
    say(world.rank(), "all is right");
    Ok(())
}

/// Sends commands until one fails, and waits for a condition that no rank makes true: both report
/// that the victim has failed.
fn work_until_it_fails(window: &RemoteWindow) {
    let failed = WindowError::RankExited { rank: VICTIM };
    std::thread::scope(|scope| {
        let wait = || window.fetch_when(Condition { at: 8, at_least: 1 }, 0, [])?.wait();
        let wait = scope.spawn(wait);
        let stream =
            scope.spawn(|| (0..).find_map(|number: u64| window.iput_value(16, number).err()));
        let mut puts = (0..).map(|number: u64| window.put_value(0, number));
        assert_eq!(puts.find_map(std::result::Result::err), Some(failed));
        assert_eq!(wait.join().expect("no panic"), Err(failed));
        assert_eq!(stream.join().expect("no panic"), Some(failed));
        assert_eq!(window.get_value::<u64>(0), Err(failed), "later, too");
        assert_eq!(window.flush(), Err(failed));
    });
}

fn a_killed_rank_ends_the_commands_on_its_window() {
    after_a_kill("windows-beside-a-killed-rank", "rank 2 has failed");
}

/// The victim works on the windows of ranks 0 and 1 when it is killed, and they on its window and on
/// those of each other.
pub(super) fn beside_a_killed_rank() -> Result<()> {
    let job = Job::init()?;
    let world = job.world();
    let windows = world.windows(64)?;
    world.barrier()?;
    if world.rank() == VICTIM {
        for number in 1..=EACH {
            for window in &windows.all[..2] {
                window.put_value(16, number)?;
            }
        }
        let _ = kill_process(getpid(), Signal::KILL);
    }
    work_until_it_fails(&windows.all[VICTIM as usize]);
    // What was complete before is there, and the others go on.
    assert_eq!(windows.own.local().get_value::<u64>(16)?, EACH);
    let other = &windows.all[1 - world.rank() as usize];
    (0..EACH).try_for_each(|_| other.accumulate_value(Op::Sum.into(), 24, 1_u64))?;
    // Not withdrawn before the other one has finished.
    windows.own.local().fetch_when(Condition { at: 24, at_least: EACH }, 0, [])?.wait()?;
    say(world.rank(), "rank 2 has failed");
    Ok(())
}

fn a_vanished_node_ends_the_commands_on_its_windows() {
    after_a_disconnection("windows-of-a-vanished-node", &["rank 2 has failed"]);
}

pub(super) fn of_a_vanished_node() -> Result<()> {
    let job = Job::init()?;
    let world: &Communicator = job.world();
    let windows = world.windows(64)?;
    for window in &windows.all {
        window.accumulate_value(Op::Sum.into(), 0, 1_u64)?;
    }
    world.barrier()?;
    say(world.rank(), "waits");
    if world.rank() == VICTIM {
        // It finds the other node lost, too.
        let mut gets = std::iter::repeat_with(|| windows.all[0].get_value::<u64>(0));
        let _ = gets.find_map(std::result::Result::err);
        return Ok(());
    }
    work_until_it_fails(&windows.all[VICTIM as usize]);
    say(world.rank(), "rank 2 has failed");
    Ok(())
}
