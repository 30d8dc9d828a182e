//! The door of the node service between real processes.

mod common;

use common::{argument, part, until};
use shm::broker::{Broker, BrokerError, Connection, connect, unguessable_name};
use shm::process::ProcessHandle;
use shm::segment::{Backing, Offset, Segment};
use shm::sync::{AtomicU32, Ordering};
use std::os::fd::AsFd;
use std::time::Duration;

/// Long enough never to matter, short enough to end a broken test.
const PATIENCE: Duration = Duration::from_secs(60);

fn name() -> String {
    unguessable_name("tradewind-test").expect("random bytes")
}

fn next(broker: &Broker) -> Connection {
    let mut found = None;
    until("someone connects", || {
        found = broker.accept().expect("a listener");
        found.is_some()
    });
    found.expect("just seen")
}

#[test]
fn a_rank_gets_the_segment_at_the_door() {
    let broker = Broker::bind(&name()).expect("a new name");
    let mut child = part("part_asks_for_the_segment", broker.name()).spawn().expect("this program");
    let connection = next(&broker);
    assert_eq!(connection.peer().pid, Some(child.id()));
    let question = connection.receive_message(Some(PATIENCE)).expect("a question");
    assert_eq!(question.bytes, b"segment?");
    // It passed a pipe's end of its own: descriptors go both ways.
    let mut pipe =
        std::fs::File::from(question.descriptors.into_iter().next().expect("one descriptor"));
    let segment = Segment::create(4096, Backing::Memory).expect("a page");
    segment.at::<AtomicU32>(Offset(64)).expect("inside").store(42, Ordering::Release);
    connection.send_message(b"here", &[segment.as_fd()]).expect("it reads");
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut pipe, &mut answer).expect("until it closes");
    assert_eq!(answer, "42");
    assert!(child.wait().expect("a child").success());
    assert!(
        matches!(connection.receive_message(Some(PATIENCE)), Err(BrokerError::Closed)),
        "its end is noticed"
    );
}

#[test]
#[ignore = "a part of a_rank_gets_the_segment_at_the_door"]
fn part_asks_for_the_segment() {
    let Some(name) = argument() else { return };
    let service = connect(&name, PATIENCE).expect("the parent listens");
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    service.send_message(b"segment?", &[reader.as_fd()]).expect("it reads");
    drop(reader);
    let answer = service.receive_message(Some(PATIENCE)).expect("an answer");
    let descriptor = answer.descriptors.into_iter().next().expect("one descriptor");
    let segment = Segment::from_fd(descriptor).expect("a segment");
    let value = segment.at::<AtomicU32>(Offset(64)).expect("inside").load(Ordering::Acquire);
    std::io::Write::write_all(&mut writer, value.to_string().as_bytes()).expect("the parent reads");
}

#[test]
fn the_first_is_the_service_and_its_death_frees_the_name() {
    let name = name();
    let mut child = part("part_is_the_service", &name).spawn().expect("this program");
    let service = connect(&name, PATIENCE).expect("it starts soon");
    assert_eq!(service.peer().pid, Some(child.id()));
    assert!(matches!(Broker::bind(&name), Err(BrokerError::NameTaken { .. })));
    ProcessHandle::open(child.id()).and_then(|handle| handle.kill()).expect("it lives");
    child.wait().expect("a child");
    assert!(matches!(service.receive_message(Some(PATIENCE)), Err(BrokerError::Closed)));
    Broker::bind(&name).expect("free again");
}

#[test]
#[ignore = "a part of the_first_is_the_service_and_its_death_frees_the_name"]
fn part_is_the_service() {
    let Some(name) = argument() else { return };
    let broker = Broker::bind(&name).expect("the first");
    let _connection = next(&broker);
    std::io::read_to_string(std::io::stdin()).expect("until it is killed");
}

#[test]
fn another_user_is_turned_away_on_both_sides() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("not tested: only root can become another user");
    }
    let broker = Broker::bind(&name()).expect("a new name");
    let refused = std::thread::scope(|scope| {
        let stranger = scope.spawn(|| {
            // SAFETY: the bare system call changes this thread only (not the process), and the
            // thread ends here.
            assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, -1, 65_534, -1) }, 0);
            connect(broker.name(), PATIENCE).map(drop)
        });
        stranger.join().expect("no panic")
    });
    assert!(
        matches!(refused, Err(BrokerError::OtherUser { theirs: 0, ours: 65_534 })),
        "{refused:?}"
    );
    assert!(matches!(broker.accept(), Err(BrokerError::OtherUser { theirs: 65_534, ours: 0 })));
    assert!(broker.accept().expect("a listener").is_none(), "the next in the queue is served");
}

#[test]
fn waiting_has_an_end() {
    let broker = Broker::bind(&name()).expect("a new name");
    assert!(broker.accept().expect("a listener").is_none());
    let client = connect(broker.name(), PATIENCE).expect("it listens");
    assert!(matches!(
        client.receive_message(Some(Duration::ZERO)),
        Err(BrokerError::TimedOut { .. })
    ));
    assert!(matches!(
        client.receive_message(Some(Duration::from_millis(1))),
        Err(BrokerError::TimedOut { .. })
    ));
    assert!(matches!(
        connect(&name(), Duration::from_millis(1)),
        Err(BrokerError::NoService { .. })
    ));
}

#[test]
fn names_that_cannot_be_are_refused() {
    for name in [String::new(), "x".repeat(108)] {
        assert!(matches!(Broker::bind(&name), Err(BrokerError::Name { .. })));
        assert!(matches!(connect(&name, Duration::ZERO), Err(BrokerError::Name { .. })));
    }
    let longest = format!("{:x<107}", name());
    Broker::bind(&longest).expect("107 bytes fit");
}
