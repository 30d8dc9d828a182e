//! A key-value server job with client jobs that cannot communicate with each other. Each client
//! checks every reply against its own `HashMap`.
//!
//! ```text
//! cargo run --release -p tradewind-service --example key_value -- [clients] [operations of each]
//! ```
//!
//! The program starts itself again for the server and for each client: one job each. The first
//! process runs the name server; its rules permit messages between a client and the server only.

use queues::names::{JobConfig, JobKey, NameError, PortAddress, Refusal};
use queues::port::{Identity, NameClient, PortError, PortEvent, PortReceiver, PortSender};
use service::names::NameServer;
use shm::broker::unguessable_name;
use std::collections::HashMap;
use std::error::Error;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

/// Limit for the start of all processes.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Requests of a client: handler numbers of the server.
const PUT: u8 = 1;
const GET: u8 = 2;
const REMOVE: u8 = 3;

/// Replies of the server: handler numbers of the client. The reply to a change carries the previous
/// value.
const FOUND: u8 = 1;
const NOTHING: u8 = 2;
const NOT_UNDERSTOOD: u8 = 3;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["server", names, key, clients] => serve(names, key, clients),
        ["client", names, job, key, operations] => run_client(names, job, key, operations),
        _ => run(words.first().copied().unwrap_or("3"), words.get(1).copied().unwrap_or("20000")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", words.first().unwrap_or(&"key_value"));
            ExitCode::FAILURE
        }
    }
}

/// Runs the name server and starts all jobs.
fn run(clients: &str, operations: &str) -> Result<(), Box<dyn Error>> {
    let number: u32 = clients.parse()?;
    let names = NameServer::bind(&unguessable_name("tradewind-key-value")?)?;
    let server = names.add_job(JobConfig::new("server"))?;
    let mut keys = Vec::new();
    for number in 0..number {
        let job = format!("client-{number}");
        keys.push((job.clone(), names.add_job(JobConfig::new(&job))?));
        names.allow(&job, "server")?;
        names.allow("server", &job)?;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| names.serve());
        let outcome = run_jobs(names.name(), server, &keys, operations);
        names.stop();
        outcome
    })?;
    println!(
        "{number} clients, {operations} operations each: every answer was right, and no client reached another"
    );
    Ok(())
}

fn run_jobs(
    names: &str,
    server: JobKey,
    clients: &[(String, JobKey)],
    operations: &str,
) -> Result<(), Box<dyn Error>> {
    let start = |arguments: &[&str]| Command::new(std::env::current_exe()?).args(arguments).spawn();
    let count = clients.len().to_string();
    let mut server = start(&["server", names, &server.to_string(), &count])?;
    let mut children = Vec::new();
    for (job, key) in clients {
        children.push(start(&["client", names, job, &key.to_string(), operations])?);
    }
    let ended = |child: &mut Child| child.wait().is_ok_and(|end| end.success());
    if children.iter_mut().filter_map(|child| (!ended(child)).then_some(())).count() > 0 {
        // The server waits for every client, also for one that never started.
        server.kill()?;
    }
    if ended(&mut server) { Ok(()) } else { Err("a process has failed".into()) }
}

/// Runs the server until all clients have disconnected.
pub(crate) fn serve(names: &str, key: &str, clients: &str) -> Result<(), Box<dyn Error>> {
    let registration =
        NameClient::register(names, &Identity::new("server", 0, key.parse()?), START_LIMIT)?;
    let (mut answers, mut requests) = registration.open_port(0)?.split();
    let mut table: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    let mut left: u32 = clients.parse()?;
    while left > 0 {
        match requests.recv()? {
            PortEvent::Message(message) => {
                let (handler, value) = execute(&mut table, message.handler, message.bytes);
                // Replies use the queue's reply class and are never waited for: a client that sends
                // requests without receiving replies loses those beyond the capacity, and other
                // clients are not delayed.
                match answers.try_reply(message.source, handler, &value.unwrap_or_default()) {
                    Ok(true) => {}
                    Ok(false) => eprintln!(
                        "server: source {} does not take its answers: one is lost",
                        message.source
                    ),
                    Err(error) => eprintln!("server: {error}"),
                }
            }
            PortEvent::Disconnected(_) => left -= 1,
        }
    }
    Ok(())
}

/// Executes a request: the length of the key in two bytes, the key, the value.
fn execute(
    table: &mut HashMap<Vec<u8>, Vec<u8>>,
    handler: u8,
    request: &[u8],
) -> (u8, Option<Vec<u8>>) {
    let parts = request
        .split_first_chunk()
        .and_then(|(length, rest)| rest.split_at_checked(u16::from_le_bytes(*length).into()));
    let Some((key, value)) = parts else { return (NOT_UNDERSTOOD, None) };
    let found = match handler {
        PUT => table.insert(key.to_vec(), value.to_vec()),
        GET => table.get(key).cloned(),
        REMOVE => table.remove(key),
        _ => return (NOT_UNDERSTOOD, None),
    };
    (if found.is_some() { FOUND } else { NOTHING }, found)
}

/// Runs a client: sends random operations and compares each reply with a local table.
pub(crate) fn run_client(
    names: &str,
    job: &str,
    key: &str,
    operations: &str,
) -> Result<(), Box<dyn Error>> {
    let registration =
        NameClient::register(names, &Identity::new(job, 0, key.parse()?), START_LIMIT)?;
    let (sender, receiver) = registration.open_port(0)?.split();
    let server = registration
        .look_up_open(&PortAddress::new("server", 0, 0), Instant::now() + START_LIMIT)?;
    let mut store = Store { sender, receiver, server, job: job.to_owned() };
    let mut expected: HashMap<u64, Vec<u8>> = HashMap::new();
    let mut random = 0x9e37_79b9_7f4a_7c15 ^ u64::from(std::process::id());
    let operations = operations.parse::<u32>()?;
    let started = Instant::now();
    for operation in 0..operations {
        // Marsaglia's xorshift.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let number = random >> 32 & 0xff;
        let (answer, right) = match random % 4 {
            0 | 1 => (store.request(GET, number, &[])?, expected.get(&number).cloned()),
            2 => (store.request(REMOVE, number, &[])?, expected.remove(&number)),
            _ => {
                let value = vec![operation as u8; (random >> 8) as usize % 200];
                (store.request(PUT, number, &value)?, expected.insert(number, value))
            }
        };
        if answer != right {
            return Err(format!(
                "operation {operation} on key {number}: {answer:?} instead of {right:?}"
            )
            .into());
        }
    }
    let each = started.elapsed() / operations.max(1);
    for number in 0..0x100 {
        if store.request(GET, number, &[])?.as_ref() != expected.get(&number) {
            return Err(format!("key {number} is not as it was left").into());
        }
    }
    check_neighbours(&registration, job)?;
    println!("{job}: {operations} operations, {:.2} µs each", each.as_secs_f64() * 1e6);
    Ok(())
}

/// Checks that the rules refuse every lookup of another client.
fn check_neighbours(registration: &NameClient, job: &str) -> Result<(), Box<dyn Error>> {
    for other in (0..).map(|number| format!("client-{number}")) {
        match registration.look_up(&PortAddress::new(&other, 0, 0)) {
            Err(PortError::Names(NameError::Refused { refusal: Refusal::NoRight, .. }))
                if other != job => {}
            Err(PortError::Names(NameError::Refused { refusal: Refusal::UnknownJob, .. })) => {
                return Ok(());
            }
            Ok(_) if other == job => {}
            other => return Err(format!("a neighbour can be reached: {other:?}").into()),
        }
    }
    Ok(())
}

struct Store {
    sender: PortSender,
    receiver: PortReceiver,
    server: queues::id::QueueName,
    job: String,
}

impl Store {
    /// Executes one operation and returns the value that the server found.
    fn request(
        &mut self,
        handler: u8,
        number: u64,
        value: &[u8],
    ) -> Result<Option<Vec<u8>>, Box<dyn Error>> {
        // The keys of each client are distinct, so its local table is the expected state.
        let key = format!("{}/{number}", self.job);
        let mut request = (key.len() as u16).to_le_bytes().to_vec();
        request.extend_from_slice(key.as_bytes());
        request.extend_from_slice(value);
        self.sender.send(self.server, handler, &request)?;
        match self.receiver.recv()? {
            PortEvent::Message(message) if message.handler == FOUND => {
                Ok(Some(message.bytes.to_vec()))
            }
            PortEvent::Message(message) if message.handler == NOTHING => Ok(None),
            PortEvent::Message(_) => Err("the server has not understood".into()),
            PortEvent::Disconnected(error) => Err(error.into()),
        }
    }
}
