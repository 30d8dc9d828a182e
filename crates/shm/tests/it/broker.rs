//! The descriptor broker between real processes.

use crate::child_process::{argument, child, until};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{bind, listen, socket_with};
use shm::broker::{Broker, BrokerError, Connection, connect, unguessable_name};
use shm::process::ProcessHandle;
use shm::segment::{Backing, Offset, Segment};
use shm::sync::{AtomicU32, Ordering};
use std::os::fd::AsFd;
use std::time::Duration;

testing::tests![
    a_rank_receives_the_segment,
    death_of_the_service_releases_its_name,
    timeouts_expire,
    a_service_that_accepts_nothing_is_busy,
    invalid_names_are_refused,
];
testing::tests![needs(Root): other_users_are_refused_on_both_sides];
testing::parts![child_requests_the_segment, child_is_the_service,];

/// Long enough never to expire, short enough to end a broken test.
const TIMEOUT: Duration = Duration::from_secs(60);

fn name() -> String {
    unguessable_name("tradewind-test").expect("random bytes")
}

fn next(broker: &Broker) -> Connection {
    let mut connection = None;
    until("a client connects", || {
        connection = broker.accept().expect("a listener");
        connection.is_some()
    });
    connection.expect("the loop ended")
}

fn a_rank_receives_the_segment() {
    let broker = Broker::bind(&name()).expect("a new name");
    let mut child =
        child("broker::child_requests_the_segment", broker.name()).spawn().expect("this program");
    let connection = next(&broker);
    assert_eq!(connection.peer().pid, Some(child.id()));
    let question = connection.receive_message(Some(TIMEOUT)).expect("a question");
    assert_eq!(question.bytes, b"segment?");
    // The child passed one end of a pipe: descriptors pass in both directions.
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
        matches!(connection.receive_message(Some(TIMEOUT)), Err(BrokerError::Closed)),
        "the end of the child is noticed"
    );
}

/// Child process of `a_rank_receives_the_segment`.
fn child_requests_the_segment() {
    let name = argument();
    let service = connect(&name, TIMEOUT).expect("the parent listens");
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    service.send_message(b"segment?", &[reader.as_fd()]).expect("it reads");
    drop(reader);
    let answer = service.receive_message(Some(TIMEOUT)).expect("an answer");
    let descriptor = answer.descriptors.into_iter().next().expect("one descriptor");
    let segment = Segment::from_fd(descriptor).expect("a segment");
    let value = segment.at::<AtomicU32>(Offset(64)).expect("inside").load(Ordering::Acquire);
    std::io::Write::write_all(&mut writer, value.to_string().as_bytes()).expect("the parent reads");
}

fn death_of_the_service_releases_its_name() {
    let name = name();
    let mut child = child("broker::child_is_the_service", &name).spawn().expect("this program");
    let service = connect(&name, TIMEOUT).expect("it starts soon");
    assert_eq!(service.peer().pid, Some(child.id()));
    assert!(matches!(Broker::bind(&name), Err(BrokerError::NameTaken { .. })));
    ProcessHandle::open(child.id()).and_then(|handle| handle.kill()).expect("it lives");
    child.wait().expect("a child");
    assert!(matches!(service.receive_message(Some(TIMEOUT)), Err(BrokerError::Closed)));
    Broker::bind(&name).expect("free again");
}

/// Child process of `death_of_the_service_releases_its_name`.
fn child_is_the_service() {
    let name = argument();
    let broker = Broker::bind(&name).expect("the first");
    let _connection = next(&broker);
    std::io::read_to_string(std::io::stdin()).expect("until it is killed");
}

fn other_users_are_refused_on_both_sides() {
    let broker = Broker::bind(&name()).expect("a new name");
    let refused = std::thread::scope(|scope| {
        let other_user = scope.spawn(|| {
            // SAFETY: the bare system call changes this thread only (not the process), and the
            // thread ends here.
            assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, -1, 65_534, -1) }, 0);
            connect(broker.name(), TIMEOUT).map(drop)
        });
        other_user.join().expect("no panic")
    });
    assert!(
        matches!(refused, Err(BrokerError::OtherUser { theirs: 0, ours: 65_534, .. })),
        "{refused:?}"
    );
    assert!(matches!(broker.accept(), Err(BrokerError::OtherUser { theirs: 65_534, ours: 0, .. })));
    assert!(broker.accept().expect("a listener").is_none(), "the next in the queue is served");
}

fn timeouts_expire() {
    let broker = Broker::bind(&name()).expect("a new name");
    assert!(broker.accept().expect("a listener").is_none());
    let client = connect(broker.name(), TIMEOUT).expect("it listens");
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

fn a_service_that_accepts_nothing_is_busy() {
    let name = name();
    let flags = SocketFlags::CLOEXEC;
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let listener = listener.expect("a socket");
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a short name");
    bind(&listener, &address).expect("a new name");
    listen(&listener, 0).expect("a socket with a name");
    let _pending = connect(&name, Duration::ZERO).expect("the queue holds one connection");
    for timeout in [Duration::ZERO, Duration::from_millis(1)] {
        assert!(matches!(connect(&name, timeout), Err(BrokerError::Busy { .. })));
    }
    drop(listener);
    assert!(matches!(connect(&name, Duration::ZERO), Err(BrokerError::NoService { .. })));
}

fn invalid_names_are_refused() {
    for name in [String::new(), "x".repeat(108)] {
        assert!(matches!(Broker::bind(&name), Err(BrokerError::Name { .. })));
        assert!(matches!(connect(&name, Duration::ZERO), Err(BrokerError::Name { .. })));
    }
    let longest = format!("{:x<107}", name());
    Broker::bind(&longest).expect("107 bytes fit");
}
