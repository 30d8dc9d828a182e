//! A rank's session with its process manager.

use super::error::{Error, beginning};
use super::message::{LONGEST_MESSAGE, Message};
use std::io::{ErrorKind, Read, Write};

/// Characters of a key that every process manager takes.
pub const LONGEST_KEY: usize = 63;
/// Characters of a value that every process manager takes. Some take more.
pub const LONGEST_VALUE: usize = 255;

/// A rank's session with its process manager. Each method sends a command and waits for the answer.
#[derive(Debug)]
pub struct Client<S> {
    stream: S,
    /// The name of the job's key-value space.
    space: String,
    /// Bytes that have arrived behind the last message.
    behind: Vec<u8>,
}

impl<S: Read + Write> Client<S> {
    /// Opens the session.
    ///
    /// # Errors
    /// [`Error::Answer`], if the process manager does not support PMI-1; those of every answer.
    pub fn open(stream: S) -> Result<Self, Error> {
        let mut client = Client { stream, space: String::new(), behind: Vec::new() };
        let version = [("pmi_version", "1"), ("pmi_subversion", "1")];
        let answer = client.request("init", &version, "response_to_init")?;
        // A process manager may answer success and name the version that it has instead.
        if let Some(other) = answer.word("pmi_version").filter(|found| *found != "1") {
            return Err(Error::answer("init", format!("it has PMI-{other}, not PMI-1"), &answer));
        }
        let answer = client.request("get_my_kvsname", &[], "my_kvsname")?;
        client.space = word(&answer, "get_my_kvsname", "kvsname")?.to_owned();
        Ok(client)
    }

    /// Enters a value under a key that no other rank uses. After the next [`fence`](Self::fence)
    /// all ranks can get it.
    ///
    /// # Errors
    /// [`Error::Unsendable`]; [`Error::Answer`], for example of a key that exists already; those of
    /// every answer.
    pub fn put(&mut self, key: &str, value: &str) -> Result<(), Error> {
        check("the key", key, LONGEST_KEY)?;
        check("the value", value, LONGEST_VALUE)?;
        let space = self.space.clone();
        let words = [("kvsname", &*space), ("key", key), ("value", value)];
        self.request("put", &words, "put_result").map(drop)
    }

    /// Waits until all ranks have called it.
    ///
    /// # Errors
    /// [`Error::Stream`] after the time limit of the stream; those of every answer.
    pub fn fence(&mut self) -> Result<(), Error> {
        self.request("barrier_in", &[], "barrier_out").map(drop)
    }

    /// Looks up the value that a rank has put under a key before the last fence.
    ///
    /// # Errors
    /// [`Error::Unsendable`]; those of every answer.
    pub fn get(&mut self, key: &str) -> Result<Option<String>, Error> {
        check("the key", key, LONGEST_KEY)?;
        let space = self.space.clone();
        let words = [("kvsname", &*space), ("key", key)];
        let answer = self.request_any("get", &words, "get_result")?;
        // There is one answer for a missing key and for every error. The key-value space exists and
        // the words were checked, so a missing key is left.
        if outcome(&answer, "get")? != 0 {
            return Ok(None);
        }
        word(&answer, "get", "value").map(|value| Some(value.to_owned()))
    }

    /// Closes the session. Some process managers regard a rank that ends without it as failed.
    ///
    /// # Errors
    /// Those of every answer.
    pub fn finalize(mut self) -> Result<(), Error> {
        self.request("finalize", &[], "finalize_ack").map(drop)
    }

    /// Sends a command. An answer with another code than success is an error.
    fn request(
        &mut self,
        command: &'static str,
        words: &[(&str, &str)],
        expected: &'static str,
    ) -> Result<Message, Error> {
        let answer = self.request_any(command, words, expected)?;
        match outcome(&answer, command)? {
            0 => Ok(answer),
            code => {
                let reason = answer.word("msg").map(|reason| reason.replace('_', " "));
                let reason = reason.unwrap_or_else(|| format!("its code is {code}"));
                Err(Error::answer(command, format!("it refuses: {reason}"), &answer))
            }
        }
    }

    /// Sends a command and returns the answer, whatever its code is.
    fn request_any(
        &mut self,
        command: &'static str,
        words: &[(&str, &str)],
        expected: &'static str,
    ) -> Result<Message, Error> {
        self.stream.write_all(Message::new(command, words).write().as_bytes())?;
        self.stream.flush()?;
        let line = self.receive_line(command)?;
        let text = String::from_utf8_lossy(&line);
        let malformed = |why: &str| Error::Answer {
            command,
            text: beginning(&text),
            why: format!("it is no message: {why}"),
        };
        let line = std::str::from_utf8(&line).map_err(|_| malformed("it is not text"))?;
        let answer = Message::read(line).map_err(malformed)?;
        if answer.command != expected {
            return Err(Error::answer(command, format!("it should be {expected}"), &answer));
        }
        Ok(answer)
    }

    /// Receives the bytes up to the end of a line, without it.
    fn receive_line(&mut self, command: &'static str) -> Result<Vec<u8>, Error> {
        // The line may arrive in many pieces; bytes before this position contain no end.
        let mut searched = 0;
        loop {
            if let Some(end) = self.behind[searched..].iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.behind.drain(..=searched + end).collect();
                line.pop();
                return Ok(line);
            }
            searched = self.behind.len();
            // Bounds the memory if the stream is not that of a process manager.
            if searched > LONGEST_MESSAGE {
                let text = beginning(&String::from_utf8_lossy(&self.behind));
                let why = "it is longer than any message".into();
                return Err(Error::Answer { command, text, why });
            }
            self.receive_more()?;
        }
    }

    fn receive_more(&mut self) -> Result<(), Error> {
        let mut buffer = [0; 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(Error::Closed),
                Ok(count) => {
                    self.behind.extend_from_slice(&buffer[..count]);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A process manager that ends with unread bytes resets the connection.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return Err(Error::Closed);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Returns the word `rc` of the answer; many answers have none, because they report success only.
fn outcome(answer: &Message, command: &'static str) -> Result<i64, Error> {
    let Some(code) = answer.word("rc") else { return Ok(0) };
    code.parse().map_err(|_| Error::answer(command, "its rc is no number".into(), answer))
}

fn word<'m>(answer: &'m Message, command: &'static str, name: &str) -> Result<&'m str, Error> {
    let missing = || Error::answer(command, format!("it has no {name}"), answer);
    answer.word(name).ok_or_else(missing)
}

/// Refuses text that a process manager would cut or divide.
fn check(what: &'static str, text: &str, limit: usize) -> Result<(), Error> {
    let is_sendable = |byte: u8| byte.is_ascii_graphic() && byte != b';' && byte != b'=';
    if !text.is_empty() && text.len() <= limit && text.bytes().all(is_sendable) {
        return Ok(());
    }
    Err(Error::Unsendable { what, text: beginning(text), limit })
}
