//! Messages of both protocols: a command and words with names, `cmd=put key=colour value=blue`.
//!
//! A message of PMI-1 ends with its line and has spaces between its words, so no word has any; in
//! the text of a `msg`, underscores stand for them. A message of PMI-2 has semicolons behind its
//! words and is preceded by its length in six characters, padded with spaces; a semicolon in a word
//! is doubled by some process managers and cut off by others, so nothing here uses one.

use std::fmt;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// PMI-1, which every process manager supports.
    One,
    /// PMI-2.
    Two,
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Version::One => "PMI-1",
            Version::Two => "PMI-2",
        })
    }
}

/// A message without its frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Command of the request or answer.
    pub command: String,
    /// Names and values, in order.
    pub words: Vec<(String, String)>,
}

/// Characters of the length in front of a message of PMI-2.
pub(crate) const LENGTH_DIGITS: usize = 6;

/// Longest message. A longer one is an error: no process manager sends any.
pub(crate) const LONGEST_MESSAGE: usize = 64 << 10;

impl Message {
    /// A message with these words.
    pub fn new(command: &str, words: &[(&str, &str)]) -> Self {
        let words =
            words.iter().map(|(name, word)| ((*name).to_owned(), (*word).to_owned())).collect();
        Message { command: command.to_owned(), words }
    }

    /// The word of this name, if there is one.
    pub fn word(&self, name: &str) -> Option<&str> {
        self.words.iter().find(|(known, _)| known == name).map(|(_, word)| word.as_str())
    }

    /// Encodes the message with its frame.
    pub fn write(&self, version: Version) -> String {
        let command = [("cmd", self.command.as_str())];
        let words = self.words.iter().map(|(name, word)| (name.as_str(), word.as_str()));
        let all = command.into_iter().chain(words);
        match version {
            Version::One => {
                let words: Vec<String> = all.map(|(name, word)| format!("{name}={word}")).collect();
                words.join(" ") + "\n"
            }
            Version::Two => {
                let words: String = all.map(|(name, word)| format!("{name}={word};")).collect();
                format!("{:LENGTH_DIGITS$}{words}", words.len())
            }
        }
    }

    /// Decodes a message without its frame.
    ///
    /// ```
    /// use launch::pmi::{Message, Version};
    ///
    /// let message = Message::read("cmd=get_result rc=0 msg=success value=blue", Version::One)?;
    /// assert_eq!((message.command.as_str(), message.word("value")), ("get_result", Some("blue")));
    /// assert_eq!(Message::read("cmd=x;a=b c;", Version::Two)?.word("a"), Some("b c"));
    /// # Ok::<(), &'static str>(())
    /// ```
    ///
    /// # Errors
    /// A description of the malformed part.
    pub fn read(text: &str, version: Version) -> Result<Self, &'static str> {
        let separator = match version {
            Version::One => ' ',
            Version::Two => ';',
        };
        let mut words =
            text.split(separator).filter(|word| !word.is_empty()).map(|word| word.split_once('='));
        let command = match words.next() {
            Some(Some(("cmd", command))) if !command.is_empty() => command.to_owned(),
            _ => return Err("it does not begin with cmd="),
        };
        let mut known: Vec<(String, String)> = Vec::new();
        for word in words {
            let Some((name, word)) = word else { return Err("it has a word without =") };
            if name.is_empty() {
                return Err("it has a word without a name");
            }
            if name == "cmd" || known.iter().any(|(other, _)| other == name) {
                return Err("it has a word twice");
            }
            known.push((name.to_owned(), word.to_owned()));
        }
        Ok(Message { command, words: known })
    }
}

/// Decodes the length that precedes a message of PMI-2.
pub(crate) fn read_length(digits: &[u8; LENGTH_DIGITS]) -> Result<usize, &'static str> {
    let text = std::str::from_utf8(digits).map_err(|_| "its length is not made of digits")?;
    let text = text.trim_start_matches(' ');
    // A parser of numbers would take a sign, too.
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("its length is not made of digits");
    }
    match text.parse() {
        Ok(length) if length <= LONGEST_MESSAGE => Ok(length),
        _ => Err("it is longer than any message"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn speakable() -> impl Strategy<Value = String> {
        "[a-zA-Z0-9_.,:()/+-]{1,40}"
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            command in speakable(),
            words in proptest::collection::btree_map(speakable(), speakable(), 0..8),
        ) {
            prop_assume!(!words.contains_key("cmd"));
            let message = Message { command, words: words.into_iter().collect() };
            let line = message.write(Version::One);
            prop_assert_eq!(Message::read(line.trim_end_matches('\n'), Version::One), Ok(message.clone()));
            let framed = message.write(Version::Two);
            let (length, text) = framed.split_at(LENGTH_DIGITS);
            let length = read_length(length.as_bytes().try_into().expect("six characters"));
            prop_assert_eq!(length, Ok(text.len()));
            prop_assert_eq!(Message::read(text, Version::Two), Ok(message));
        }

        #[test]
        fn noise_is_refused_or_can_be_written_again(text in ".{0,80}", two: bool) {
            let version = if two { Version::Two } else { Version::One };
            if let Ok(message) = Message::read(&text, version) {
                let written = message.write(version);
                let bare = if two { &written[LENGTH_DIGITS..] } else { written.trim_end_matches('\n') };
                prop_assert_eq!(Message::read(bare, version), Ok(message));
            }
        }

        #[test]
        fn a_length_is_digits_behind_spaces(digits: [u8; LENGTH_DIGITS]) {
            if let Ok(length) = read_length(&digits) {
                prop_assert!(length <= LONGEST_MESSAGE);
                let text = std::str::from_utf8(&digits).expect("it was accepted");
                prop_assert!(text.trim_start().parse() == Ok(length));
            }
        }
    }

    #[test]
    fn lengths_that_mean_nothing_are_refused() {
        for wrong in [
            b"      ",
            b"    -1",
            b"    +1",
            b"1 2   ",
            b"999999",
            b"0x0001",
            b"\xff\xff\xff\xff\xff\xff",
        ] {
            assert!(read_length(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(read_length(b"    42"), Ok(42));
        assert_eq!(read_length(b"000042"), Ok(42));
    }

    #[test]
    fn what_is_no_message_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "it does not begin with cmd="),
            ("key=a cmd=b", "it does not begin with cmd="),
            ("cmd=", "it does not begin with cmd="),
            ("cmd=x word", "it has a word without ="),
            ("cmd=x =a", "it has a word without a name"),
            ("cmd=x a=1 a=2", "it has a word twice"),
            ("cmd=x cmd=y", "it has a word twice"),
        ] {
            assert_eq!(Message::read(text, Version::One), Err(why), "{text:?}");
        }
    }
}
