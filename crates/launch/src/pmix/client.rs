//! A rank's session with its process manager.

use super::error::Error;
use super::ffi::{Library, Process, Value, WILDCARD};
use super::library::Search;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// A request to the thread of the calls.
enum Request {
    Put(String, String),
    Fence,
    Get(u32, String),
    Finalize,
}

type Answer = Result<Option<Value>, Error>;

/// A rank's session with its process manager. After an error no other method may be called: the
/// answer of a call that has timed out may still arrive, and would be taken for that of the next.
#[derive(Debug)]
pub struct Client {
    requests: Sender<Request>,
    answers: Receiver<Answer>,
    limit: Duration,
    rank: u32,
    ranks: u32,
}

impl Client {
    /// Opens the library of the launcher, and connects with its server. `limit` is the time for
    /// each call.
    ///
    /// # Errors
    /// If there is no usable library, or the launcher has no PMIx.
    pub fn open(search: &Search, limit: Duration) -> Result<Self, Error> {
        let paths = search.candidates();
        let (requests, received) = channel();
        let (answered, answers) = channel();
        let work = move || match connect(&paths) {
            Ok((library, process)) => {
                // The receiver is gone if the rank has not waited so long.
                let _ = answered.send(Ok(Some(Value::Number(process.rank))));
                for request in received {
                    let _ = answered.send(execute(&library, &process, &request));
                }
            }
            Err(error) => drop(answered.send(Err(error))),
        };
        std::thread::Builder::new()
            .name("tradewind-pmix".into())
            .spawn(work)
            .map_err(|error| Error::Thread(error.to_string()))?;
        let mut client = Client { requests, answers, limit, rank: 0, ranks: 0 };
        client.rank = number(client.receive("PMIx_Init")?)
            .ok_or_else(|| Error::Thread("PMIx_Init returns no rank".into()))?;
        let size = client.call("PMIx_Get", Request::Get(WILDCARD, "pmix.job.size".into()))?;
        client.ranks = number(size).ok_or(Error::NoSize)?;
        Ok(client)
    }

    /// Returns this rank and the number of ranks.
    pub fn rank_of_ranks(&self) -> (u32, u32) {
        (self.rank, self.ranks)
    }

    /// Publishes a value under a key that no other rank uses.
    ///
    /// # Errors
    /// If a call fails.
    pub fn put(&mut self, key: &str, value: &str) -> Result<(), Error> {
        self.call("PMIx_Put", Request::Put(key.into(), value.into())).map(drop)
    }

    /// Waits until all ranks have called it.
    ///
    /// # Errors
    /// If a call fails, or does not return in time.
    pub fn fence(&mut self) -> Result<(), Error> {
        self.call("PMIx_Fence", Request::Fence).map(drop)
    }

    /// Looks up the value that `rank` has put under a key before the last fence.
    ///
    /// # Errors
    /// If a call fails.
    pub fn get(&mut self, key: &str, rank: u32) -> Result<Option<String>, Error> {
        match self.call("PMIx_Get", Request::Get(rank, key.into()))? {
            Some(Value::Text(text)) => Ok(Some(text)),
            _ => Ok(None),
        }
    }

    /// Closes the session.
    ///
    /// # Errors
    /// If the call fails.
    pub fn finalize(self) -> Result<(), Error> {
        self.call("PMIx_Finalize", Request::Finalize).map(drop)
    }

    fn call(&self, name: &'static str, request: Request) -> Answer {
        let ended = |_| Error::Thread("their thread has ended".into());
        self.requests.send(request).map_err(ended)?;
        self.receive(name)
    }

    fn receive(&self, call: &'static str) -> Answer {
        self.answers.recv_timeout(self.limit).unwrap_or_else(|error| match error {
            RecvTimeoutError::Timeout => Err(Error::TimedOut { call, waited: self.limit }),
            RecvTimeoutError::Disconnected => Err(Error::Thread("their thread has ended".into())),
        })
    }
}

/// Opens the first usable library of these, and connects with the server of this process.
fn connect(paths: &[PathBuf]) -> Result<(Library, Process), Error> {
    let library = open(paths)?;
    let process = library.init()?;
    Ok((library, process))
}

/// Returns the path and the version of the first usable library of these.
///
/// # Errors
/// If none can be opened, or none has a suitable version.
pub fn usable(paths: &[PathBuf]) -> Result<String, Error> {
    open(paths).map(|library| library.to_string())
}

fn open(paths: &[PathBuf]) -> Result<Library, Error> {
    let mut reasons = Vec::new();
    for path in paths {
        match Library::open(path) {
            Ok(library) => return Ok(library),
            Err(Error::NoLibrary { why }) => reasons.push(why),
            // The next one may be suitable.
            Err(error) if paths.len() > 1 => reasons.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    Err(Error::NoLibrary { why: reasons.join("; ") })
}

fn execute(library: &Library, process: &Process, request: &Request) -> Answer {
    match request {
        Request::Put(key, value) => library.put(key, value).map(|()| None),
        Request::Fence => {
            // Values that are not committed are in this process only.
            library.commit()?;
            library.fence(process).map(|()| None)
        }
        Request::Get(rank, key) => library.get(process, *rank, key),
        Request::Finalize => library.finalize().map(|()| None),
    }
}

fn number(value: Option<Value>) -> Option<u32> {
    match value {
        Some(Value::Number(number)) => Some(number),
        _ => None,
    }
}
