//! A rank's conversation with its process manager.

use super::error::{Error, beginning};
use super::message::{LENGTH_DIGITS, LONGEST_MESSAGE, Message, Version, read_length};
use std::io::{Read, Write};

/// Characters of a key that every process manager takes.
pub const LONGEST_KEY: usize = 63;
/// Characters of a value that every process manager takes. Some take more.
pub const LONGEST_VALUE: usize = 255;

/// A rank's conversation with its process manager. Each method asks once and waits for the answer.
#[derive(Debug)]
pub struct Client<S> {
    stream: S,
    version: Version,
    /// The name of the job's space of keys, where the protocol wants it said.
    space: String,
    /// Bytes that have come and are not read.
    behind: Vec<u8>,
}

impl<S: Read + Write> Client<S> {
    /// Begins the conversation: `rank` and `ranks` are what the environment says.
    ///
    /// # Errors
    /// [`Error::Version`], if the process manager does not speak this version (it may be asked for
    /// the other one behind the same stream); [`Error::Contradiction`]; those of every answer.
    pub fn open(stream: S, rank: u32, ranks: u32, version: Version) -> Result<Self, Error> {
        let mut client = Client { stream, version, space: String::new(), behind: Vec::new() };
        client.agree_on_version()?;
        match version {
            Version::One => {
                let answer = client.ask("get_my_kvsname", &[], "my_kvsname")?;
                client.space =
                    client.expect_word(&answer, "get_my_kvsname", "kvsname", "a name")?.to_owned();
            }
            Version::Two => {
                let number = rank.to_string();
                let words = [("pmirank", number.as_str()), ("threaded", "FALSE")];
                let answer = client.ask("fullinit", &words, "fullinit-response")?;
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
    /// [`Error::Unspeakable`]; [`Error::Refused`], as when there is such a key already; those of
    /// every answer.
    pub fn put(&mut self, key: &str, value: &str) -> Result<(), Error> {
        check("the key", key, LONGEST_KEY)?;
        check("the value", value, LONGEST_VALUE)?;
        let words = [("key", key), ("value", value)];
        match self.version {
            Version::One => {
                let space = self.space.clone();
                self.ask("put", &[("kvsname", space.as_str()), words[0], words[1]], "put_result")?;
            }
            Version::Two => {
                self.ask("kvs-put", &words, "kvs-put-response")?;
            }
        }
        Ok(())
    }

    /// Waits until all ranks have come here.
    ///
    /// # Errors
    /// [`Error::Stream`], when the stream has waited long enough; those of every answer.
    pub fn fence(&mut self) -> Result<(), Error> {
        match self.version {
            Version::One => self.ask("barrier_in", &[], "barrier_out")?,
            Version::Two => self.ask("kvs-fence", &[], "kvs-fence-response")?,
        };
        Ok(())
    }

    /// Looks up the value that a rank has put under a key before the last fence.
    ///
    /// # Errors
    /// [`Error::Unspeakable`]; those of every answer.
    pub fn get(&mut self, key: &str) -> Result<Option<String>, Error> {
        check("the key", key, LONGEST_KEY)?;
        match self.version {
            Version::One => {
                let words = [("kvsname", &*self.space.clone()), ("key", key)];
                let answer = self.ask_anyhow("get", &words, "get_result")?;
                // It says that there is no such key as it says that something is wrong; a space of
                // keys that is there is not.
                if outcome(&answer, "get")? != 0 {
                    return Ok(None);
                }
                self.expect_word(&answer, "get", "value", "what was put")
                    .map(|value| Some(value.to_owned()))
            }
            Version::Two => {
                let answer = self.ask("kvs-get", &[("key", key)], "kvs-get-response")?;
                self.found(&answer, "kvs-get")
            }
        }
    }

    /// Ends the conversation in order. A rank that ends without it has failed, for some process
    /// managers.
    ///
    /// # Errors
    /// Those of every answer.
    pub fn finalize(mut self) -> Result<(), Error> {
        match self.version {
            Version::One => self.ask("finalize", &[], "finalize_ack")?,
            Version::Two => self.ask("finalize", &[], "finalize-response")?,
        };
        Ok(())
    }

    /// The line that both versions begin with.
    fn agree_on_version(&mut self) -> Result<(), Error> {
        let (version, subversion) = match self.version {
            Version::One => ("1", "1"),
            Version::Two => ("2", "0"),
        };
        let words = [("pmi_version", version), ("pmi_subversion", subversion)];
        // In the form of the first version, also for the second one: the form is agreed on by this
        // line.
        self.say(&Message::new("init", &words).write(Version::One))?;
        let answer = self.hear("init", Version::One)?;
        expect_command(&answer, "init", "response_to_init")?;
        // A process manager may answer success and name the version that it has instead.
        let agreed = outcome(&answer, "init")? == 0
            && answer.word("pmi_version").is_none_or(|found| found == version);
        if agreed { Ok(()) } else { Err(Error::Version(self.version)) }
    }

    /// Asks, and refuses an answer that says no.
    fn ask(
        &mut self,
        command: &'static str,
        words: &[(&str, &str)],
        expected: &'static str,
    ) -> Result<Message, Error> {
        let answer = self.ask_anyhow(command, words, expected)?;
        match outcome(&answer, command)? {
            0 => Ok(answer),
            code => {
                let said =
                    answer.word("msg").or(answer.word("errmsg")).map(|said| said.replace('_', " "));
                Err(Error::Refused {
                    command,
                    why: said.unwrap_or_else(|| format!("its code is {code}")),
                })
            }
        }
    }

    /// Asks and gives the answer, whatever it says.
    fn ask_anyhow(
        &mut self,
        command: &'static str,
        words: &[(&str, &str)],
        expected: &'static str,
    ) -> Result<Message, Error> {
        self.say(&Message::new(command, words).write(self.version))?;
        let answer = self.hear(command, self.version)?;
        expect_command(&answer, command, expected)?;
        Ok(answer)
    }

    fn say(&mut self, text: &str) -> Result<(), Error> {
        self.stream.write_all(text.as_bytes())?;
        self.stream.flush()?;
        Ok(())
    }

    /// The next message.
    fn hear(&mut self, command: &'static str, version: Version) -> Result<Message, Error> {
        let malformed = |text: &[u8], why| {
            let text = beginning(&String::from_utf8_lossy(text));
            Error::Malformed { command, version, text, why }
        };
        let bytes = match version {
            Version::One => self.hear_line().map_err(|failed| failed.into_error(malformed))?,
            Version::Two => {
                self.hear_bytes(LENGTH_DIGITS)?;
                let digits: Vec<u8> = self.behind.drain(..LENGTH_DIGITS).collect();
                let length = digits.first_chunk().ok_or("it is cut off").and_then(read_length);
                let length = length.map_err(|why| malformed(&digits, why))?;
                self.hear_bytes(length)?;
                self.behind.drain(..length).collect()
            }
        };
        let text = std::str::from_utf8(&bytes).map_err(|_| malformed(&bytes, "it is not text"))?;
        Message::read(text, version).map_err(|why| malformed(&bytes, why))
    }

    /// The bytes up to the end of a line, which is taken away.
    fn hear_line(&mut self) -> Result<Vec<u8>, LineError> {
        // The line may come in many pieces; bytes before this position contain no end.
        let mut looked_at = 0;
        loop {
            if let Some(end) = self.behind[looked_at..].iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.behind.drain(..=looked_at + end).collect();
                line.pop();
                return Ok(line);
            }
            looked_at = self.behind.len();
            // Bounds the memory for a stream that is no process manager's.
            if looked_at > LONGEST_MESSAGE {
                return Err(LineError::TooLong(std::mem::take(&mut self.behind)));
            }
            self.hear_more().map_err(LineError::Stream)?;
        }
    }

    /// Waits until so many bytes have come.
    fn hear_bytes(&mut self, count: usize) -> Result<(), Error> {
        while self.behind.len() < count {
            self.hear_more()?;
        }
        Ok(())
    }

    fn hear_more(&mut self) -> Result<(), Error> {
        let mut buffer = [0; 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(Error::Closed),
                Ok(count) => {
                    self.behind.extend_from_slice(&buffer[..count]);
                    return Ok(());
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
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

    /// The value that an answer of PMI-2 has, if it says that there is one.
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
        let what = if field == "rank" { "this rank" } else { "the number of ranks" };
        if found == expected { Ok(()) } else { Err(Error::Contradiction { what, found, expected }) }
    }
}

/// Why there is no line.
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

/// Refuses what would be cut or divided on its way.
fn check(what: &'static str, text: &str, limit: usize) -> Result<(), Error> {
    let speakable = |byte: u8| byte.is_ascii_graphic() && byte != b';' && byte != b'=';
    if !text.is_empty() && text.len() <= limit && text.bytes().all(speakable) {
        return Ok(());
    }
    Err(Error::Unspeakable { what, text: beginning(text), limit })
}
