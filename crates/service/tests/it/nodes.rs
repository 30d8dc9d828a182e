//! Node services and ranks as processes of their own. All nodes are this machine, over loopback.

use collectives::{Algorithm, barrier};
use engine::node::EngineKind;
use goal::graph::{Access, Graph};
use network::backend::{Backend, CommunicatorContext, DrainOutcome, RunId, ScheduleId};
use network::job_nodes::{JobNodes, random_key};
use network::node_map::NodeMap;
use network::node_network::NodeNetwork;
use rustix::process::{Pid, Signal, kill_process};
use service::attachment;
use service::spawn::{ServeOptions, serve};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

testing::tests![
    ranks_of_several_nodes_synchronize_and_leave,
    a_rank_that_is_killed_is_reported_on_all_nodes,
    a_rank_that_is_killed_after_its_start_fails_no_other,
    a_service_that_is_killed_is_reported_like_a_rank,
    a_stopped_rank_is_waited_for,
    started_sends_arrive_although_the_node_service_is_killed_after_its_last_rank,
    only_the_last_rank_of_a_node_waits_to_leave,
    an_embedded_service_ends_with_its_output_before_all_ranks_have_joined,
    an_embedded_service_stays_for_ranks_that_have_joined,
];
testing::parts![child_is_a_node_service, child_is_an_embedded_service, child_is_a_rank,];

/// Prefix of the lines that a child prints for its test.
const REPORT: &str = "report: ";

/// A child process, which ends with this value.
struct Process {
    child: Child,
    /// `None` once this process has closed it.
    output: Option<BufReader<ChildStdout>>,
    input: Option<ChildStdin>,
}

impl Process {
    /// Starts a process that runs the part of this name.
    fn start(part: &str, argument: &str) -> Process {
        let mut child = testing::part(part)
            .arg(argument)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program");
        let output = child.stdout.take().map(BufReader::new);
        let input = child.stdin.take();
        Process { child, output, input }
    }

    /// Returns the rest of the next line with this prefix.
    fn read_line(&mut self, prefix: &str) -> String {
        let output = self.output.as_mut().expect("open output");
        loop {
            let mut line = String::new();
            assert_ne!(
                output.read_line(&mut line).expect("text"),
                0,
                "it ended without {prefix:?}"
            );
            if let Some((_, rest)) = line.split_once(prefix) {
                return rest.trim_end().to_owned();
            }
        }
    }

    fn send(&mut self, command: &str) {
        writeln!(self.input.as_mut().expect("open input"), "{command}").expect("it lives");
    }

    /// Sends a command and returns its report.
    fn execute(&mut self, command: &str) -> String {
        self.send(command);
        self.read_line(REPORT)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a living child");
    }

    /// Waits for its end and returns whether it succeeded.
    fn end(mut self) -> bool {
        drop(self.input.take());
        self.child.wait().expect("a child").success()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Most have ended by themselves.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a child: returns its argument, which follows the name of the part.
fn argument() -> String {
    std::env::args().nth(3).expect("an argument from the test")
}

/// A job of several nodes with equally many ranks.
struct Job {
    services: Vec<Process>,
    addresses: Vec<SocketAddr>,
    ranks: Vec<Process>,
}

impl Job {
    fn start(count: u32, each: u32) -> Job {
        Job::start_with("nodes::child_is_a_node_service", count, each)
    }

    /// Starts a job with services that run this part.
    fn start_with(service: &str, count: u32, each: u32) -> Job {
        let name = shm::broker::unguessable_name("tradewind-test").expect("random bytes");
        let mut services: Vec<Process> = (0..count)
            .map(|node| Process::start(service, &format!("{name}-{node} {each}")))
            .collect();
        let addresses: Vec<SocketAddr> = services
            .iter_mut()
            .map(|service| service.read_line("ready ").parse().expect("an address"))
            .collect();
        let ranks = (0..count * each)
            .map(|rank| {
                let (node, local) = (rank / each, rank % each);
                Process::start(
                    "nodes::child_is_a_rank",
                    &format!("{name}-{node} {local} {each} {rank} {}", count * each),
                )
            })
            .collect();
        // Some ranks connect before their service has the addresses of the other nodes, some after.
        let job_nodes = |node| JobNodes {
            key: random_key().expect("random bytes"),
            node,
            kernel_endpoints: Vec::new(),
            networks: vec![NodeNetwork::default(); count as usize],
            addresses: addresses.clone(),
            nodes: NodeMap::new((0..count * each).map(|rank| rank / each)),
        };
        let key = job_nodes(0).key;
        std::thread::scope(|scope| {
            for node in 0..count {
                let job_nodes = JobNodes { key, ..job_nodes(node) };
                let service = format!("{name}-{node}");
                scope.spawn(move || {
                    attachment::submit_nodes(&service, &job_nodes).expect("all nodes are there")
                });
            }
        });
        Job { services, addresses, ranks }
    }

    /// Sends a command to all ranks and returns their reports.
    fn execute_all(&mut self, command: &str) -> Vec<String> {
        self.ranks.iter_mut().for_each(|rank| rank.send(command));
        self.ranks.iter_mut().map(|rank| rank.read_line(REPORT)).collect()
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

/// CHILD: a part of the other tests: a node service
fn child_is_a_node_service() {
    serve_here(false);
}

/// CHILD: a part of the other tests: a node service in another runtime
fn child_is_an_embedded_service() {
    serve_here(true);
}

fn serve_here(is_embedded: bool) {
    let argument = argument();
    let (name, ranks) = argument.split_once(' ').expect("two words");
    let request = ServeOptions {
        name: name.into(),
        ranks: ranks.parse().expect("a number"),
        engine: EngineKind::Peers,
        cores: 1,
        listen: Some(Ipv4Addr::LOCALHOST.into()),
        is_embedded,
    };
    serve(&request).expect("a new name");
}

/// A rank that starts, waits for and fetches runs of a barrier, by commands.
struct CommandedRank {
    backend: Arc<dyn Backend>,
    schedule_id: ScheduleId,
    sequence: u64,
    run: Option<RunId>,
    rank: u32,
    ranks: u32,
}

impl CommandedRank {
    fn execute(&mut self, command: &str) -> String {
        match command {
            "start" => {
                let started = self.backend.start(self.schedule_id, self.sequence, &[]);
                self.sequence += 1;
                self.run = started.as_ref().ok().copied();
                started.map_or_else(|error| error.to_string(), |_| "started".into())
            }
            "wait briefly" => self.wait(Duration::from_millis(50)),
            "wait" => self.wait(Duration::from_secs(60)),
            "send" | "receive" => self.broadcast(command == "send"),
            "leave" => {
                let deadline = Instant::now() + Duration::from_secs(60);
                match self.backend.drain(deadline, &Vec::new) {
                    Ok(DrainOutcome::Drained) => "left".into(),
                    other => format!("{other:?}"),
                }
            }
            "hundred" => {
                for _ in 0..100 {
                    self.execute("start");
                    let ended = self.execute("wait");
                    if ended != "done" {
                        return ended;
                    }
                }
                "done".into()
            }
            other => panic!("{other:?}"),
        }
    }

    /// Rank 0 sends all others more than the eager limit and does not wait; they check the bytes.
    fn broadcast(&mut self, is_root: bool) -> String {
        const BYTES: u64 = 4 << 20;
        let CommandedRank { rank, ranks, .. } = *self;
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
        let schedule_id = self.backend.register(&context, &schedule, 0).expect("memory");
        let mut bytes = vec![7; BYTES as usize];
        if is_root {
            let run = self.backend.start(schedule_id, 0, &[&bytes]).expect("memory");
            self.backend.discard(run);
            return "sent".into();
        }
        bytes.fill(0);
        let run = self.backend.start(schedule_id, 0, &[&[]]).expect("memory");
        let limit = Instant::now() + Duration::from_secs(60);
        let received = self
            .backend
            .wait(run, Some(limit))
            .and_then(|_| self.backend.fetch(run, &mut [&mut bytes]));
        match received {
            Ok(()) if bytes.iter().all(|byte| *byte == 7) => "done".into(),
            Ok(()) => "wrong bytes".into(),
            Err(error) => error.to_string(),
        }
    }

    fn wait(&mut self, limit: Duration) -> String {
        let run = self.run.expect("started");
        match self.backend.wait(run, Instant::now().checked_add(limit)) {
            Ok(true) => self
                .backend
                .fetch(run, &mut [])
                .map_or_else(|error| error.to_string(), |()| "done".into()),
            Ok(false) => "still waiting".into(),
            Err(error) => error.to_string(),
        }
    }
}

/// CHILD: a part of the other tests: a rank
fn child_is_a_rank() {
    let argument = argument();
    let words: Vec<&str> = argument.split(' ').collect();
    let number = |word: usize| words[word].parse::<u32>().expect("a number");
    let (rank, ranks) = (number(3), number(4));
    let attachment = attachment::enter(words[0], number(1), number(2), Duration::from_secs(60))
        .expect("the service accepts it");
    let backend = attachment.agent.clone().expect("there are other nodes");
    let graph = barrier::graph(Algorithm::Dissemination, rank, ranks).expect("in range");
    let context = CommunicatorContext { number: 0, members: (0..ranks).collect(), rank };
    let schedule = goal::compile::compile(&graph).expect("in order");
    let schedule_id = backend.register(&context, &schedule, 0).expect("memory");
    let mut rank_state =
        CommandedRank { backend, schedule_id, sequence: 0, run: None, rank, ranks };
    for command in std::io::stdin().lines() {
        println!("{REPORT}{}", rank_state.execute(&command.expect("text")));
    }
}

fn ranks_of_several_nodes_synchronize_and_leave() {
    for (count, each) in [(2, 1), (2, 2), (3, 1)] {
        let mut job = Job::start(count, each);
        assert!(job.execute_all("hundred").iter().all(|outcome| outcome == "done"));
        // All ranks start the last run and none waits for it: the services complete it and end.
        assert!(job.execute_all("start").iter().all(|outcome| outcome == "started"));
        job.end();
    }
}

fn a_rank_that_is_killed_is_reported_on_all_nodes() {
    let mut job = Job::start(3, 2);
    assert!(job.execute_all("hundred").iter().all(|outcome| outcome == "done"));
    let victim = job.ranks.remove(3);
    assert!(job.execute_all("start").iter().all(|outcome| outcome == "started"));
    victim.signal(Signal::KILL);
    let failed = "rank 3 failed: its process is gone";
    let outcomes = job.execute_all("wait");
    assert!(outcomes.iter().all(|outcome| outcome == failed), "{outcomes:?}");
    job.execute_all("start");
    let outcomes = job.execute_all("wait");
    assert!(outcomes.iter().all(|outcome| outcome == failed), "{outcomes:?}");
    job.end();
}

/// The node service completes the run that the rank had started.
fn a_rank_that_is_killed_after_its_start_fails_no_other() {
    let mut job = Job::start(2, 2);
    let mut victim = job.ranks.remove(3);
    assert_eq!(victim.execute("start"), "started");
    victim.signal(Signal::KILL);
    drop(victim);
    job.execute_all("start");
    assert!(job.execute_all("wait").iter().all(|outcome| outcome == "done"));
    job.end();
}

fn a_service_that_is_killed_is_reported_like_a_rank() {
    let mut job = Job::start(3, 2);
    assert!(job.execute_all("hundred").iter().all(|outcome| outcome == "done"));
    let slow = job.ranks.remove(5);
    job.execute_all("start");
    let service = job.services.remove(1);
    service.signal(Signal::KILL);
    drop(service);
    let unreachable = format!("node 1 ({}) is unreachable: ", job.addresses[1]);
    let outcomes = job.execute_all("wait");
    assert!(outcomes.iter().all(|outcome| outcome.starts_with(&unreachable)), "{outcomes:?}");
    job.ranks.push(slow);
    job.end();
}

fn a_stopped_rank_is_waited_for() {
    let mut job = Job::start(2, 1);
    assert!(job.execute_all("hundred").iter().all(|outcome| outcome == "done"));
    job.ranks[1].signal(Signal::STOP);
    assert_eq!(job.ranks[0].execute("start"), "started");
    assert_eq!(job.ranks[0].execute("wait briefly"), "still waiting");
    job.ranks[1].signal(Signal::CONT);
    assert_eq!(job.ranks[1].execute("start"), "started");
    assert!(job.execute_all("wait").iter().all(|outcome| outcome == "done"));
    job.end();
}

/// A process manager that kills everything on a node as soon as the node's ranks have ended, as
/// Slurm does with `proctrack/cgroup`.
fn started_sends_arrive_although_the_node_service_is_killed_after_its_last_rank() {
    for round in 0..5 {
        let mut job = Job::start(3, 1);
        let root = job.ranks.remove(0);
        let service = job.services.remove(0);
        let others = std::thread::scope(|scope| {
            let manager = scope.spawn(|| {
                let mut root = root;
                assert_eq!(root.execute("send"), "sent");
                // Reports only after the others have started to receive.
                assert_eq!(root.execute("leave"), "left");
                assert!(root.end(), "the root failed");
                service.signal(Signal::KILL);
            });
            // A root that does not wait has ended before they receive.
            std::thread::sleep(Duration::from_millis(200));
            let others = job.execute_all("receive");
            manager.join().expect("no assertion fails");
            others
        });
        assert_eq!(others, ["done", "done"], "round {round}");
        // The other nodes continue without it.
        assert!(job.ranks.iter_mut().all(|rank| rank.execute("leave") == "left"), "round {round}");
        drop(service);
        job.end();
    }
}

/// The node service outlives a rank while another rank of its node runs.
fn only_the_last_rank_of_a_node_waits_to_leave() {
    let mut job = Job::start(2, 2);
    assert_eq!(job.ranks[0].execute("send"), "sent");
    assert_eq!(job.ranks[0].execute("leave"), "left");
    let received: Vec<String> =
        job.ranks[1..].iter_mut().map(|rank| rank.execute("receive")).collect();
    assert_eq!(received, ["done", "done", "done"]);
    job.end();
}

fn an_embedded_service_ends_with_its_output_before_all_ranks_have_joined() {
    let name = shm::broker::unguessable_name("tradewind-test").expect("random bytes");
    let mut service = Process::start("nodes::child_is_an_embedded_service", &format!("{name} 2"));
    service.read_line("ready ");
    service.output = None;
    assert!(service.end(), "it has reported an error");
}

fn an_embedded_service_stays_for_ranks_that_have_joined() {
    let mut job = Job::start_with("nodes::child_is_an_embedded_service", 2, 2);
    assert!(job.execute_all("hundred").iter().all(|outcome| outcome == "done"));
    job.services.iter_mut().for_each(|service| service.output = None);
    // The services run these collectives.
    assert!(job.execute_all("hundred").iter().all(|outcome| outcome == "done"));
    job.end();
}
