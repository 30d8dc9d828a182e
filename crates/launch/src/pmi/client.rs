//! A rank's session with its process manager.

use super::error::{Error, beginning};
use super::message::{LENGTH_DIGITS, LONGEST_MESSAGE, Message, Version, read_length};
use std::io::{Read, Write};

/// Characters of a key that every process manager takes.
pub const LONGEST_KEY: usize = 63;
/// Characters of a value that every process manager takes. Some take more.
pub const LONGEST_VALUE: usize = 255;

/// A rank's session with its process manager. Each method sends a command and waits for the answer.
#[derive(Debug)]
pub struct Client<S> {
    stream: S,
    version: Version,
    /// The name of the job's key-value space, which commands of PMI-1 contain.
    space: String,
    /// Bytes that have arrived behind the last message.
    behind: Vec<u8>,
}

impl<S: Read + Write> Client<S> {
    /// Opens the session. `rank` and `ranks` are the numbers in the environment.
    ///
    /// # Errors
    /// [`Error::Version`], if the process manager does not support this version (another session on
    /// the same stream may request the other one); [`Error::Contradiction`]; those of every answer.
    pub fn open(stream: S, rank: u32, ranks: u32, version: Version) -> Result<Self, Error> {
        let mut client = Client { stream, version, space: String::new(), behind: Vec::new() };
        client.agree_on_version()?;
        match version {
            Version::One => {
                let answer = client.request("get_my_kvsname", &[], "my_kvsname")?;
                client.space =
                    client.expect_word(&answer, "get_my_kvsname", "kvsname", "a name")?.to_owned();
            }
            Version::Two => {
                let number = rank.to_string();
                let words = [("pmirank", number.as_str()), ("threaded", "FALSE")];
                let answer = client.request("fullinit", &words, "fullinit-response")?;
                client.compare(&answer, "rank", rank)?;
                client.compare(&answer, "size", ranks)?;
            }
        }
        Ok(client)
    }

    /// Enters a value under a key that no other rank uses. After the next [`fence`](Self::fence)
    /// all ranks can get it.
    ///
    /// # Errors
    /// [`Error::Unsendable`]; [`Error::Refused`], for example of a key that exists already; those
    /// of every answer.
    pub fn put(&mut self, key: &str, value: &str) -> Result<(), Error> {
        check("the key", key, LONGEST_KEY)?;
        check("the value", value, LONGEST_VALUE)?;
        let words = [("key", key), ("value", value)];
        match self.version {
            Version::One => {
                let space = self.space.clone();
                self.request(
                    "put",
                    &[("kvsname", space.as_str()), words[0], words[1]],
                    "put_result",
                )?;
            }
            Version::Two => {
                self.request("kvs-put", &words, "kvs-put-response")?;
            }
        }
        Ok(())
    }

    /// Waits until all ranks have called it.
    ///
    /// # Errors
    /// [`Error::Stream`] after the time limit of the stream; those of every answer.
    pub fn fence(&mut self) -> Result<(), Error> {
        match self.version {
            Version::One => self.request("barrier_in", &[], "barrier_out")?,
            Version::Two => self.request("kvs-fence", &[], "kvs-fence-response")?,
        };
        Ok(())
    }

    /// Looks up the value that a rank has put under a key before the last fence.
    ///
    /// # Errors
    /// [`Error::Unsendable`]; those of every answer.
    pub fn get(&mut self, key: &str) -> Result<Option<String>, Error> {
        check("the key", key, LONGEST_KEY)?;
        match self.version {
            Version::One => {
                let words = [("kvsname", &*self.space.clone()), ("key", key)];
                let answer = self.request_any("get", &words, "get_result")?;
                // PMI-1 has one answer for a missing key and for every error. The key-value space
                // exists and the words were checked, so a missing key is left.
                if outcome(&answer, "get")? != 0 {
                    return Ok(None);
                }
                self.expect_word(&answer, "get", "value", "what was put")
                    .map(|value| Some(value.to_owned()))
            }
            Version::Two => {
                let answer = self.request("kvs-get", &[("key", key)], "kvs-get-response")?;
                self.found(&answer, "kvs-get")
            }
        }
    }

    /// Closes the session. Some process managers regard a rank that ends without it as failed.
    ///
    /// # Errors
    /// Those of every answer.
    pub fn finalize(mut self) -> Result<(), Error> {
        match self.version {
            Version::One => self.request("finalize", &[], "finalize_ack")?,
            Version::Two => self.request("finalize", &[], "finalize-response")?,
        };
        Ok(())
    }

    /// Sends the line that begins a session of either version.
    fn agree_on_version(&mut self) -> Result<(), Error> {
        let (version, subversion) = match self.version {
            Version::One => ("1", "1"),
            Version::Two => ("2", "0"),
        };
        let words = [("pmi_version", version), ("pmi_subversion", subversion)];
        // Also for PMI-2 in the form of PMI-1: this line decides about the form of all others.
        self.send(&Message::new("init", &words).write(Version::One))?;
        let answer = self.receive("init", Version::One)?;
        expect_command(&answer, "init", "response_to_init")?;
        // A process manager may answer success and name the version that it has instead.
        let agreed = outcome(&answer, "init")? == 0
            && answer.word("pmi_version").is_none_or(|found| found == version);
        if agreed { Ok(()) } else { Err(Error::Version(self.version)) }
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
                let reason = answer.word("msg").or(answer.word("errmsg"));
                let reason = reason.map(|reason| reason.replace('_', " "));
                Err(Error::Refused {
                    command,
                    why: reason.unwrap_or_else(|| format!("its code is {code}")),
                })
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
        self.send(&Message::new(command, words).write(self.version))?;
        let answer = self.receive(command, self.version)?;
        expect_command(&answer, command, expected)?;
        Ok(answer)
    }

    fn send(&mut self, text: &str) -> Result<(), Error> {
        self.stream.write_all(text.as_bytes())?;
        self.stream.flush()?;
        Ok(())
    }

    /// Receives the next message.
    fn receive(&mut self, command: &'static str, version: Version) -> Result<Message, Error> {
        let malformed = |text: &[u8], why| {
            let text = beginning(&String::from_utf8_lossy(text));
            Error::Malformed { command, version, text, why }
        };
        let bytes = match version {
            Version::One => self.receive_line().map_err(|failed| failed.into_error(malformed))?,
            Version::Two => {
                self.receive_bytes(LENGTH_DIGITS)?;
                let digits: Vec<u8> = self.behind.drain(..LENGTH_DIGITS).collect();
                let length = digits.first_chunk().ok_or("it is cut off").and_then(read_length);
                let length = length.map_err(|why| malformed(&digits, why))?;
                self.receive_bytes(length)?;
                self.behind.drain(..length).collect()
            }
        };
        let text = std::str::from_utf8(&bytes).map_err(|_| malformed(&bytes, "it is not text"))?;
        Message::read(text, version).map_err(|why| malformed(&bytes, why))
    }

    /// Receives the bytes up to the end of a line, without it.
    fn receive_line(&mut self) -> Result<Vec<u8>, LineError> {
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
                return Err(LineError::TooLong(std::mem::take(&mut self.behind)));
            }
            self.receive_more().map_err(LineError::Stream)?;
        }
    }

    /// Waits until so many bytes have arrived.
    fn receive_bytes(&mut self, count: usize) -> Result<(), Error> {
        while self.behind.len() < count {
            self.receive_more()?;
        }
        Ok(())
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
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                // A process manager that ends with unread bytes resets the connection.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                    return Err(Error::Closed);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn expect_word<'m>(
        &self,
        answer: &'m Message,
        command: &'static str,
        field: &'static str,
        expected: &'static str,
    ) -> Result<&'m str, Error> {
        answer.word(field).ok_or_else(|| Error::Field {
            command,
            field,
            found: "no such word".into(),
            expected,
        })
    }

    /// Returns the value in an answer of PMI-2; `None` if the key is missing.
    fn found(&self, answer: &Message, command: &'static str) -> Result<Option<String>, Error> {
        match self.expect_word(answer, command, "found", "TRUE or FALSE")? {
            "TRUE" => self
                .expect_word(answer, command, "value", "what was put")
                .map(|value| Some(value.to_owned())),
            "FALSE" => Ok(None),
            other => {
                let found = format!("found {:?}", beginning(other));
                Err(Error::Field { command, field: "found", found, expected: "TRUE or FALSE" })
            }
        }
    }

    fn compare(&self, answer: &Message, field: &'static str, expected: u32) -> Result<(), Error> {
        let word = self.expect_word(answer, "fullinit", field, "a number")?;
        let Ok(found) = word.parse() else {
            let found = format!("{field} {:?}", beginning(word));
            return Err(Error::Field { command: "fullinit", field, found, expected: "a number" });
        };
        let what = if field == "rank" { "the number of this rank" } else { "the number of ranks" };
        if found == expected { Ok(()) } else { Err(Error::Contradiction { what, found, expected }) }
    }
}

/// Reason for the lack of a line.
enum LineError {
    TooLong(Vec<u8>),
    Stream(Error),
}

impl LineError {
    fn into_error(self, malformed: impl Fn(&[u8], &'static str) -> Error) -> Error {
        match self {
            LineError::TooLong(bytes) => malformed(&bytes, "it is longer than any message"),
            LineError::Stream(error) => error,
        }
    }
}

/// Returns the word `rc` of the answer; many answers have none, because they report success only.
fn outcome(answer: &Message, command: &'static str) -> Result<i64, Error> {
    let Some(word) = answer.word("rc") else { return Ok(0) };
    word.parse().map_err(|_| {
        let found = format!("rc {:?}", beginning(word));
        Error::Field { command, field: "rc", found, expected: "a number" }
    })
}

fn expect_command(
    answer: &Message,
    command: &'static str,
    expected: &'static str,
) -> Result<(), Error> {
    if answer.command == expected {
        return Ok(());
    }
    Err(Error::Unexpected { command, found: beginning(&answer.command), expected })
}

/// Refuses text that a process manager would cut or divide.
fn check(what: &'static str, text: &str, limit: usize) -> Result<(), Error> {
    let is_sendable = |byte: u8| byte.is_ascii_graphic() && byte != b';' && byte != b'=';
    if !text.is_empty() && text.len() <= limit && text.bytes().all(is_sendable) {
        return Ok(());
    }
    Err(Error::Unsendable { what, text: beginning(text), limit })
}
