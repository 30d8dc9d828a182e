//! Node services and ranks as processes of their own, on several nodes that are one: over loopback.

use collectives::barrier;
use engine::node::EngineKind;
use goal::graph::{Access, Graph};
use network::backend::{Backend, CommunicatorContext, RunId, ScheduleId};
use network::job_nodes::{JobNodes, random_key};
use network::node_map::NodeMap;
use rustix::process::{Pid, Signal, kill_process};
use service::client;
use service::start::{Request, serve};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tells a part what to be. Without it (a plain `--ignored` run) parts do nothing.
const ARGUMENT: &str = "SERVICE_TEST_ARGUMENT";
/// What a part says begins with this, so that the test program's own words are not taken for it.
const SAYS: &str = "says: ";

/// Another process, and what it says. It ends with this value.
struct Part {
    child: Child,
    said: BufReader<ChildStdout>,
    told: Option<ChildStdin>,
}

impl Part {
    /// This test program again, with an ignored test as its whole job.
    fn start(part: &str, argument: &str) -> Part {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", part, "--ignored", "--nocapture", "--test-threads=1"])
            .env(ARGUMENT, argument)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program");
        let (said, told) =
            (BufReader::new(child.stdout.take().expect("piped")), child.stdin.take());
        Part { child, said, told }
    }

    /// The next line that begins so; the rest of it.
    fn hear(&mut self, beginning: &str) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(
                self.said.read_line(&mut line).expect("text"),
                0,
                "it ended without {beginning:?}"
            );
            if let Some((_, rest)) = line.split_once(beginning) {
                return rest.trim_end().to_owned();
            }
        }
    }

    fn tell(&mut self, what: &str) {
        writeln!(self.told.as_mut().expect("it listens"), "{what}").expect("it lives");
    }

    fn ask(&mut self, what: &str) -> String {
        self.tell(what);
        self.hear(SAYS)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a living child");
    }

    /// Waits for its end; whether all went well for it.
    fn end(mut self) -> bool {
        drop(self.told.take());
        self.child.wait().expect("a child").success()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Most have ended by themselves.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A job: so many nodes with so many ranks each.
struct Job {
    services: Vec<Part>,
    addresses: Vec<SocketAddr>,
    ranks: Vec<Part>,
}

impl Job {
    fn start(count: u32, each: u32) -> Job {
        let name = shm::broker::unguessable_name("tradewind-test").expect("random bytes");
        let mut services: Vec<Part> = (0..count)
            .map(|node| Part::start("part_serves", &format!("{name}-{node} {each}")))
            .collect();
        let addresses: Vec<SocketAddr> = services
            .iter_mut()
            .map(|service| service.hear("ready ").parse().expect("an address"))
            .collect();
        let ranks = (0..count * each)
            .map(|rank| {
                let (node, local) = (rank / each, rank % each);
                Part::start(
                    "part_obeys",
                    &format!("{name}-{node} {local} {each} {rank} {}", count * each),
                )
            })
            .collect();
        // Some ranks knock before their service knows the other nodes, some after.
        let invitation = |node| JobNodes {
            key: random_key().expect("random bytes"),
            node,
            kernel_endpoints: Vec::new(),
            addresses: addresses.clone(),
            nodes: NodeMap::new((0..count * each).map(|rank| rank / each)),
        };
        let key = invitation(0).key;
        std::thread::scope(|scope| {
            for node in 0..count {
                let invitation = JobNodes { key, ..invitation(node) };
                let service = format!("{name}-{node}");
                scope.spawn(move || {
                    client::invite(&service, &invitation).expect("all nodes are there")
                });
            }
        });
        Job { services, addresses, ranks }
    }

    /// Has all ranks do something; what each says.
    fn ask_all(&mut self, what: &str) -> Vec<String> {
        self.ranks.iter_mut().for_each(|rank| rank.tell(what));
        self.ranks.iter_mut().map(|rank| rank.hear(SAYS)).collect()
    }

    fn end(self) {
        for rank in self.ranks {
            assert!(rank.end(), "a rank failed");
        }
        for service in self.services {
            assert!(service.end(), "a service failed");
        }
    }
}

#[test]
#[ignore = "a part of the other tests: a node service"]
fn part_serves() {
    let Ok(argument) = std::env::var(ARGUMENT) else { return };
    let (name, ranks) = argument.split_once(' ').expect("two words");
    let request = Request {
        name: name.into(),
        ranks: ranks.parse().expect("a number"),
        engine: EngineKind::Peers,
        cores: 1,
        listen: Some(Ipv4Addr::LOCALHOST.into()),
    };
    serve(&request).expect("a new name");
}

/// A rank: starts, awaits and fetches runs of a barrier as it is told.
struct Obedient {
    carrier: Arc<dyn Backend>,
    prepared: ScheduleId,
    sequence: u64,
    ticket: Option<RunId>,
    /// This rank, and the number of ranks.
    place: (u32, u32),
}

impl Obedient {
    fn obey(&mut self, order: &str) -> String {
        match order {
            "start" => {
                let started = self.carrier.start(self.prepared, self.sequence, &[]);
                self.sequence += 1;
                self.ticket = started.as_ref().ok().copied();
                started.map_or_else(|error| error.to_string(), |_| "started".into())
            }
            "look" => self.wait(Duration::from_millis(50)),
            "wait" => self.wait(Duration::from_secs(60)),
            "give" | "take" => self.broadcast(order == "give"),
            "leave" => match self.carrier.drain(Instant::now() + Duration::from_secs(60)) {
                Ok(true) => "left".into(),
                other => format!("{other:?}"),
            },
            "hundred" => {
                for _ in 0..100 {
                    self.obey("start");
                    let ended = self.obey("wait");
                    if ended != "well" {
                        return ended;
                    }
                }
                "well".into()
            }
            other => panic!("{other:?}"),
        }
    }

    /// Rank 0 gives all others more than agents send unasked, and does not wait; they check it.
    fn broadcast(&mut self, gives: bool) -> String {
        const BYTES: u64 = 4 << 20;
        let (rank, ranks) = self.place;
        let mut graph = Graph::new(rank, ranks);
        if rank == 0 {
            let block = graph.buffer(Access::Input, BYTES);
            for peer in 1..ranks {
                graph.send(block, peer, 0);
            }
        } else {
            let block = graph.buffer(Access::Output, BYTES);
            graph.receive(block, 0, 0);
        }
        let context = CommunicatorContext { number: 1, members: (0..ranks).collect(), rank };
        let schedule = goal::compile::compile(&graph).expect("in order");
        let prepared = self.carrier.register(&context, &schedule, 0).expect("memory");
        let mut bytes = vec![7; BYTES as usize];
        if gives {
            let ticket = self.carrier.start(prepared, 0, &[&bytes]).expect("memory");
            self.carrier.discard(ticket);
            return "given".into();
        }
        bytes.fill(0);
        let ticket = self.carrier.start(prepared, 0, &[&[]]).expect("memory");
        let limit = Instant::now() + Duration::from_secs(60);
        let taken = self
            .carrier
            .wait(ticket, Some(limit))
            .and_then(|_| self.carrier.fetch(ticket, &mut [&mut bytes]));
        match taken {
            Ok(()) if bytes.iter().all(|byte| *byte == 7) => "well".into(),
            Ok(()) => "wrong bytes".into(),
            Err(error) => error.to_string(),
        }
    }

    fn wait(&mut self, limit: Duration) -> String {
        let ticket = self.ticket.expect("started");
        match self.carrier.wait(ticket, Instant::now().checked_add(limit)) {
            Ok(true) => self
                .carrier
                .fetch(ticket, &mut [])
                .map_or_else(|error| error.to_string(), |()| "well".into()),
            Ok(false) => "still waiting".into(),
            Err(error) => error.to_string(),
        }
    }
}

#[test]
#[ignore = "a part of the other tests: a rank"]
fn part_obeys() {
    let Ok(argument) = std::env::var(ARGUMENT) else { return };
    let words: Vec<&str> = argument.split(' ').collect();
    let number = |word: usize| words[word].parse::<u32>().expect("a number");
    let (rank, ranks) = (number(3), number(4));
    let attachment = client::enter(words[0], number(1), number(2), Duration::from_secs(60))
        .expect("the service lets it in");
    let carrier = attachment.carrier.clone().expect("there are other nodes");
    let graph = barrier::Algorithm::Dissemination.graph(rank, ranks).expect("in range");
    let context = CommunicatorContext { number: 0, members: (0..ranks).collect(), rank };
    let schedule = goal::compile::compile(&graph).expect("in order");
    let prepared = carrier.register(&context, &schedule, 0).expect("memory");
    let mut obedient =
        Obedient { carrier, prepared, sequence: 0, ticket: None, place: (rank, ranks) };
    for order in std::io::stdin().lines() {
        println!("{SAYS}{}", obedient.obey(&order.expect("text")));
    }
}

#[test]
fn ranks_of_several_nodes_meet_and_leave() {
    for (count, each) in [(2, 1), (2, 2), (3, 1)] {
        let mut job = Job::start(count, each);
        assert!(job.ask_all("hundred").iter().all(|outcome| outcome == "well"));
        // The last run is started by all and awaited by none: services carry it through and end.
        assert!(job.ask_all("start").iter().all(|outcome| outcome == "started"));
        job.end();
    }
}

#[test]
fn a_rank_that_is_killed_is_reported_on_all_nodes() {
    let mut job = Job::start(3, 2);
    assert!(job.ask_all("hundred").iter().all(|outcome| outcome == "well"));
    let victim = job.ranks.remove(3);
    assert!(job.ask_all("start").iter().all(|outcome| outcome == "started"));
    victim.signal(Signal::KILL);
    let failed = "rank 3 failed: its process is gone";
    let outcomes = job.ask_all("wait");
    assert!(outcomes.iter().all(|outcome| outcome == failed), "{outcomes:?}");
    job.ask_all("start");
    let outcomes = job.ask_all("wait");
    assert!(outcomes.iter().all(|outcome| outcome == failed), "{outcomes:?}");
    job.end();
}

/// What it had started is done by its service: the others need not even notice.
#[test]
fn a_rank_that_is_killed_after_its_part_fails_nobody() {
    let mut job = Job::start(2, 2);
    let mut victim = job.ranks.remove(3);
    assert_eq!(victim.ask("start"), "started");
    victim.signal(Signal::KILL);
    drop(victim);
    job.ask_all("start");
    assert!(job.ask_all("wait").iter().all(|outcome| outcome == "well"));
    job.end();
}

#[test]
fn a_service_that_is_killed_is_reported_like_a_rank() {
    let mut job = Job::start(3, 2);
    assert!(job.ask_all("hundred").iter().all(|outcome| outcome == "well"));
    let lazy = job.ranks.remove(5);
    job.ask_all("start");
    let service = job.services.remove(1);
    service.signal(Signal::KILL);
    drop(service);
    let unreachable = format!("node 1 ({}) is unreachable: ", job.addresses[1]);
    let outcomes = job.ask_all("wait");
    assert!(outcomes.iter().all(|outcome| outcome.starts_with(&unreachable)), "{outcomes:?}");
    job.ranks.push(lazy);
    job.end();
}

#[test]
fn a_stopped_rank_is_waited_for() {
    let mut job = Job::start(2, 1);
    assert!(job.ask_all("hundred").iter().all(|outcome| outcome == "well"));
    job.ranks[1].signal(Signal::STOP);
    assert_eq!(job.ranks[0].ask("start"), "started");
    assert_eq!(job.ranks[0].ask("look"), "still waiting");
    job.ranks[1].signal(Signal::CONT);
    assert_eq!(job.ranks[1].ask("start"), "started");
    assert!(job.ask_all("wait").iter().all(|outcome| outcome == "well"));
    job.end();
}

/// A process manager that kills everything on a node as soon as the node's ranks have ended, as
/// Slurm does with `proctrack/cgroup`.
#[test]
fn what_a_rank_has_started_to_send_arrives_though_its_node_service_is_killed_after_it() {
    for round in 0..5 {
        let mut job = Job::start(3, 1);
        let root = job.ranks.remove(0);
        let service = job.services.remove(0);
        let others = std::thread::scope(|scope| {
            let manager = scope.spawn(|| {
                let mut root = root;
                assert_eq!(root.ask("give"), "given");
                // Says nothing before the others have started to receive.
                assert_eq!(root.ask("leave"), "left");
                assert!(root.end(), "the root failed");
                service.signal(Signal::KILL);
            });
            // The root is to be gone before they ask for the message, if it does not wait.
            std::thread::sleep(Duration::from_millis(200));
            let others = job.ask_all("take");
            manager.join().expect("no assertion fails");
            others
        });
        assert_eq!(others, ["well", "well"], "round {round}");
        // The other nodes go on without it.
        assert!(job.ranks.iter_mut().all(|rank| rank.ask("leave") == "left"), "round {round}");
        drop(service);
        job.end();
    }
}

/// Where another rank of its node is left, the node service lives on.
#[test]
fn only_the_last_rank_of_a_node_waits_to_leave() {
    let mut job = Job::start(2, 2);
    assert_eq!(job.ranks[0].ask("give"), "given");
    assert_eq!(job.ranks[0].ask("leave"), "left");
    let taken: Vec<String> = job.ranks[1..].iter_mut().map(|rank| rank.ask("take")).collect();
    assert_eq!(taken, ["well", "well", "well"]);
    job.end();
}
