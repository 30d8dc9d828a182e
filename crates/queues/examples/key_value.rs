//! A key-value server job that answers client jobs which cannot reach each other. Every answer is
//! checked against a `HashMap` that the client keeps itself.
//!
//! ```text
//! cargo run --release -p queues --example key_value -- [clients] [operations of each]
//! ```
//!
//! The program starts itself again for the server and for each client: one job each. It is the post
//! office itself, whose rules let the clients talk to the server and to nobody else.

use queues::names::{JobConfig, JobKey, NameError, NameServer, PortAddress, Refusal};
use queues::port::{Identity, NameClient, PortError, PortEvent, PortReceiver, PortSender};
use shm::broker::unguessable_name;
use std::collections::HashMap;
use std::error::Error;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// How long processes may take to start.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a client asks for, as handlers of the server.
const PUT: u8 = 1;
const GET: u8 = 2;
const REMOVE: u8 = 3;

/// What the server answers, as handlers of the client. For a change: what was there before.
const FOUND: u8 = 1;
const NOTHING: u8 = 2;
const NOT_UNDERSTOOD: u8 = 3;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["server", post, key, clients] => serve(post, key, clients),
        ["client", post, job, key, operations] => ask(post, job, key, operations),
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

/// The post office and the launcher of all jobs.
fn run(clients: &str, operations: &str) -> Outcome<()> {
    let number: u32 = clients.parse()?;
    let post = NameServer::bind(&unguessable_name("tradewind-key-value")?)?;
    let server = post.add_job(JobConfig::new("server"))?;
    let mut keys = Vec::new();
    for number in 0..number {
        let job = format!("client-{number}");
        keys.push((job.clone(), post.add_job(JobConfig::new(&job))?));
        post.allow(&job, "server")?;
        post.allow("server", &job)?;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| post.serve());
        let outcome = run_jobs(post.name(), server, &keys, operations);
        post.stop();
        outcome
    })?;
    println!(
        "{number} clients, {operations} operations each: every answer was right, and no client reached another"
    );
    Ok(())
}

fn run_jobs(
    post: &str,
    server: JobKey,
    clients: &[(String, JobKey)],
    operations: &str,
) -> Outcome<()> {
    let start = |arguments: &[&str]| Command::new(std::env::current_exe()?).args(arguments).spawn();
    let count = clients.len().to_string();
    let mut server = start(&["server", post, &server.to_string(), &count])?;
    let mut children = Vec::new();
    for (job, key) in clients {
        children.push(start(&["client", post, job, &key.to_string(), operations])?);
    }
    let ended = |child: &mut Child| child.wait().is_ok_and(|end| end.success());
    if children.iter_mut().filter_map(|child| (!ended(child)).then_some(())).count() > 0 {
        // One that never came would be waited for.
        server.kill()?;
    }
    if ended(&mut server) { Ok(()) } else { Err("a process has failed".into()) }
}

/// The server: its table, and who is still there.
pub(crate) fn serve(post: &str, key: &str, clients: &str) -> Outcome<()> {
    let registration =
        NameClient::register(post, &Identity::new("server", 0, key.parse()?), PATIENCE)?;
    let (mut answers, mut requests) = registration.open_port(0)?.split();
    let mut table: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    let mut left: u32 = clients.parse()?;
    while left > 0 {
        match requests.recv()? {
            PortEvent::Message(message) => {
                let (handler, value) = look(&mut table, message.handler, message.bytes);
                // Answers have a way of their own, that of replies. A client that asks on without
                // taking them loses those for which there is no room; nobody waits for it.
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

/// Does what a request asks for: the length of the key in two bytes, the key, the value.
fn look(
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

/// A client: asks, and knows what must be answered.
pub(crate) fn ask(post: &str, job: &str, key: &str, operations: &str) -> Outcome<()> {
    let registration = NameClient::register(post, &Identity::new(job, 0, key.parse()?), PATIENCE)?;
    let (outbox, inbox) = registration.open_port(0)?.split();
    let server =
        registration.look_up_open(&PortAddress::new("server", 0, 0), Instant::now() + PATIENCE)?;
    let mut store = Store { outbox, inbox, server, job: job.to_owned() };
    let mut expected: HashMap<u64, Vec<u8>> = HashMap::new();
    let mut random = 0x9e37_79b9_7f4a_7c15 ^ u64::from(std::process::id());
    let (operations, started) = (operations.parse::<u32>()?, Instant::now());
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

/// The rules give no name for another client.
fn check_neighbours(registration: &NameClient, job: &str) -> Outcome<()> {
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
    outbox: PortSender,
    inbox: PortReceiver,
    server: queues::id::QueueName,
    job: String,
}

impl Store {
    /// One operation; gives what the server found.
    fn request(&mut self, handler: u8, number: u64, value: &[u8]) -> Outcome<Option<Vec<u8>>> {
        // Each client has keys of its own, so that it knows what they hold.
        let key = format!("{}/{number}", self.job);
        let mut request = (key.len() as u16).to_le_bytes().to_vec();
        request.extend_from_slice(key.as_bytes());
        request.extend_from_slice(value);
        self.outbox.send(self.server, handler, &request)?;
        match self.inbox.recv()? {
            PortEvent::Message(message) if message.handler == FOUND => {
                Ok(Some(message.bytes.to_vec()))
            }
            PortEvent::Message(message) if message.handler == NOTHING => Ok(None),
            PortEvent::Message(_) => Err("the server has not understood".into()),
            PortEvent::Disconnected(error) => Err(error.into()),
        }
    }
}
