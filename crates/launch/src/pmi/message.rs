//! Messages: a line with a command and words with names, `cmd=put key=colour value=blue`.
//!
//! There are spaces between words, so no word has any; in the text of a `msg`, underscores stand for
//! them.

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Command of the request or answer.
    pub command: String,
    /// Names and values, in order.
    pub words: Vec<(String, String)>,
}

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

    /// Encodes the message with the end of its line.
    pub fn write(&self) -> String {
        let words: String =
            self.words.iter().map(|(name, word)| format!(" {name}={word}")).collect();
        format!("cmd={}{words}\n", self.command)
    }

    /// Decodes a line without its end.
    ///
    /// ```
    /// use launch::pmi::Message;
    ///
    /// let message = Message::read("cmd=get_result rc=0 msg=success value=blue")?;
    /// assert_eq!((message.command.as_str(), message.word("value")), ("get_result", Some("blue")));
    /// # Ok::<(), &'static str>(())
    /// ```
    ///
    /// # Errors
    /// A description of the malformed part.
    pub fn read(line: &str) -> Result<Self, &'static str> {
        let mut words =
            line.split(' ').filter(|word| !word.is_empty()).map(|word| word.split_once('='));
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn speakable() -> impl Strategy<Value = String> {
        "[a-zA-Z0-9_.,:()/+-]{1,40}"
    }

    proptest! {
        #[test]
        fn messages_are_decoded_as_they_were_encoded(
            command in speakable(),
            words in proptest::collection::btree_map(speakable(), speakable(), 0..8),
        ) {
            prop_assume!(!words.contains_key("cmd"));
            let message = Message { command, words: words.into_iter().collect() };
            let line = message.write();
            prop_assert_eq!(Message::read(line.trim_end_matches('\n')), Ok(message));
        }

        #[test]
        fn noise_is_refused_or_can_be_written_again(line in ".{0,80}") {
            if let Ok(message) = Message::read(&line) {
                prop_assert_eq!(Message::read(message.write().trim_end_matches('\n')), Ok(message));
            }
        }
    }

    #[test]
    fn malformed_lines_are_refused_with_the_reason() {
        for (line, why) in [
            ("", "it does not begin with cmd="),
            ("key=a cmd=b", "it does not begin with cmd="),
            ("cmd=", "it does not begin with cmd="),
            ("cmd=x word", "it has a word without ="),
            ("cmd=x =a", "it has a word without a name"),
            ("cmd=x a=1 a=2", "it has a word twice"),
            ("cmd=x cmd=y", "it has a word twice"),
        ] {
            assert_eq!(Message::read(line), Err(why), "{line:?}");
        }
    }
}
