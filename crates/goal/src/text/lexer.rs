//! From characters to the words of the text format.

use super::{Position, TextError};

/// A word of the format. Lines are words, because statements end with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// Digits.
    Number(&'a str),
    /// A letter and what follows of letters, digits and `_`.
    Word(&'a str),
    /// `-1`
    Any,
    /// `:`
    Colon,
    /// `{`
    Open,
    /// `}`
    Close,
    /// The end of a line.
    Newline,
    /// The end of the text.
    End,
    /// Anything else.
    Other(char),
}

/// Goes through a text once, front to back.
pub(super) struct Lexer<'a> {
    source: &'a str,
    /// The next byte.
    at: usize,
    /// The first byte of the token that was read last.
    token: usize,
    /// The line of the next byte, from 1.
    line: u32,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(source: &'a str) -> Self {
        Lexer { source, at: 0, token: 0, line: 1 }
    }

    /// The line of the next byte.
    pub(super) fn line(&self) -> u32 {
        self.line
    }

    /// Start of the last token, for later error messages.
    pub(super) fn mark(&self) -> usize {
        self.token
    }

    /// The place of a mark.
    #[cold]
    pub(super) fn position_of(&self, mark: usize) -> Position {
        Position::end_of(&self.source[..mark])
    }

    /// Start of the last token.
    pub(super) fn position(&self) -> Position {
        self.position_of(self.token)
    }

    /// The next token.
    #[inline]
    pub(super) fn next(&mut self) -> Token<'a> {
        let bytes = self.source.as_bytes();
        while let Some(b' ' | b'\t') = bytes.get(self.at) {
            self.at += 1;
        }
        self.token = self.at;
        let Some(first) = bytes.get(self.at) else { return Token::End };
        self.at += 1;
        match first {
            b'0'..=b'9' => Token::Number(self.rest(u8::is_ascii_digit)),
            b'a'..=b'z' | b'A'..=b'Z' => {
                Token::Word(self.rest(|byte| byte.is_ascii_alphanumeric() || *byte == b'_'))
            }
            b':' => Token::Colon,
            b'{' => Token::Open,
            b'}' => Token::Close,
            b'\n' => self.newline(),
            b'\r' if bytes.get(self.at) == Some(&b'\n') => {
                self.at += 1;
                self.newline()
            }
            b'-' if bytes.get(self.at) == Some(&b'1')
                && !bytes.get(self.at + 1).is_some_and(u8::is_ascii_digit) =>
            {
                self.at += 1;
                Token::Any
            }
            _ => {
                let other = self.source[self.token..].chars().next().unwrap_or_default();
                self.at = self.token + other.len_utf8();
                Token::Other(other)
            }
        }
    }

    /// The token that began with the last byte and continues while `belongs` returns true.
    #[inline]
    fn rest(&mut self, belongs: impl Fn(&u8) -> bool) -> &'a str {
        let bytes = self.source.as_bytes();
        while bytes.get(self.at).is_some_and(&belongs) {
            self.at += 1;
        }
        &self.source[self.token..self.at]
    }

    fn newline(&mut self) -> Token<'a> {
        self.line = self.line.saturating_add(1);
        Token::Newline
    }

    /// The next token that can begin a statement: skips empty lines and comments.
    pub(super) fn statement(&mut self) -> Result<Token<'a>, TextError> {
        loop {
            match self.next() {
                Token::Newline => {}
                Token::Other('/') if self.source[self.at..].starts_with('/') => {
                    // Up to the newline, which is left to be counted.
                    let length = self.source[self.at..].bytes().position(|byte| byte == b'\n');
                    self.at = length.map_or(self.source.len(), |length| self.at + length);
                }
                Token::Other('/') if self.source[self.at..].starts_with('*') => {
                    self.skip_comment()?
                }
                token => return Ok(token),
            }
        }
    }

    /// Skips what follows `/`, up to the end of the comment.
    fn skip_comment(&mut self) -> Result<(), TextError> {
        let inside = self.at + 1;
        let Some(length) = self.source[inside..].find("*/") else {
            return Err(TextError::OpenComment { at: self.position() });
        };
        let lines =
            self.source[inside..inside + length].bytes().filter(|byte| *byte == b'\n').count();
        self.line = self.line.saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
        self.at = inside + length + 2;
        Ok(())
    }

    /// A complaint about the token that was read last.
    #[cold]
    pub(super) fn unexpected(&self, found: Token<'_>, expected: &'static str) -> TextError {
        let found = match found {
            Token::Number(text) | Token::Word(text) => format!("`{}`", shorten(text)),
            Token::Any => "`-1`".into(),
            Token::Colon => "`:`".into(),
            Token::Open => "`{`".into(),
            Token::Close => "`}`".into(),
            Token::Newline => "the end of the line".into(),
            Token::End => "the end of the file".into(),
            Token::Other('/') => {
                "`/` (a comment may stand only where a statement may start)".into()
            }
            Token::Other(other) => format!("`{}`", other.escape_debug()),
        };
        TextError::Unexpected { at: self.position(), found, expected }
    }
}

/// The beginning of a word that may be as long as the file.
pub(super) fn shorten(text: &str) -> String {
    const SHOWN: usize = 40;
    if text.len() <= SHOWN { text.into() } else { format!("{}…", &text[..SHOWN]) }
}
