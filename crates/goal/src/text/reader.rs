//! Reads the text format, statement by statement.

use super::TextError;
use super::lexer::{Lexer, Token, shorten};
use crate::graph::{Block, Graph, Operation, Until, Vertex};
use crate::portable::ANY;
use std::collections::HashMap;

pub(super) fn read(source: &str) -> Result<Vec<Graph>, TextError> {
    let mut reader = Reader { lexer: Lexer::new(source), labels: HashMap::new() };
    match reader.lexer.statement()? {
        Token::Word("num_ranks") => {}
        token => return Err(reader.lexer.unexpected(token, "`num_ranks`")),
    }
    let ranks = reader.number("the number of ranks", u64::from(u32::MAX))? as u32;
    if ranks == 0 {
        return Err(TextError::NoRanks { at: reader.lexer.position() });
    }
    let mut graphs: Vec<Graph> = Vec::new();
    loop {
        match reader.lexer.statement()? {
            Token::Word("rank") => graphs.push(reader.rank(graphs.len() as u32, ranks)?),
            Token::End if graphs.len() == ranks as usize => return Ok(graphs),
            Token::End => {
                let at = reader.lexer.position();
                let rank = graphs.len() as u32;
                return Err(TextError::MissingRank { at, rank, ranks });
            }
            token if graphs.len() == ranks as usize => {
                return Err(reader.lexer.unexpected(token, "nothing more after the last rank"));
            }
            token => return Err(reader.lexer.unexpected(token, "`rank`")),
        }
    }
}

struct Reader<'a> {
    lexer: Lexer<'a>,
    /// The vertices of the present rank that have labels.
    labels: HashMap<&'a str, Vertex>,
}

impl<'a> Reader<'a> {
    /// Reads the rest after `rank`.
    fn rank(&mut self, expected: u32, ranks: u32) -> Result<Graph, TextError> {
        let found = self.number("a rank", u64::from(ANY) - 1)? as u32;
        if found >= ranks {
            return Err(TextError::TooManyRanks { at: self.lexer.position(), found, ranks });
        }
        if found != expected {
            return Err(TextError::RankOrder { at: self.lexer.position(), found, expected });
        }
        let opened = self.lexer.line();
        match self.lexer.next() {
            Token::Open => {}
            token => return Err(self.lexer.unexpected(token, "`{`")),
        }
        self.labels.clear();
        let mut graph = Graph::new(expected, ranks);
        loop {
            match self.lexer.statement()? {
                Token::Close => return Ok(graph),
                Token::End => {
                    return Err(TextError::OpenRank {
                        at: self.lexer.position(),
                        rank: expected,
                        opened,
                    });
                }
                Token::Word(word) => self.in_rank(word, &mut graph)?,
                token => return Err(self.lexer.unexpected(token, "a statement or `}`")),
            }
        }
    }

    /// A statement that begins with this word.
    fn in_rank(&mut self, word: &'a str, graph: &mut Graph) -> Result<(), TextError> {
        match word {
            "send" | "recv" | "calc" => return self.operation(word, None, graph),
            "rank" | "num_ranks" => {
                return Err(self.lexer.unexpected(Token::Word(word), "a statement or `}`"));
            }
            _ => {}
        }
        let label = self.label(word);
        match self.lexer.next() {
            Token::Colon => {
                if let Some(first) = label.vertex {
                    let first = graph.vertices()[first.index()].line.unwrap_or(0);
                    let at = self.lexer.position_of(label.mark);
                    return Err(TextError::DuplicateLabel { at, label: shorten(word), first });
                }
                match self.lexer.next() {
                    Token::Word(kind @ ("send" | "recv" | "calc")) => {
                        self.operation(kind, Some(word), graph)
                    }
                    token => {
                        Err(self.lexer.unexpected(token, "`send`, `recv` or `calc` after a label"))
                    }
                }
            }
            Token::Word("requires") => self.edge(label, Until::Complete, graph),
            Token::Word("irequires") => self.edge(label, Until::Started, graph),
            token => {
                Err(self.lexer.unexpected(token, "`:`, `requires` or `irequires` after a label"))
            }
        }
    }

    /// The label read last.
    fn label(&self, word: &'a str) -> Label<'a> {
        Label { word, mark: self.lexer.mark(), vertex: self.labels.get(word).copied() }
    }

    /// The vertex a label stands for.
    fn vertex(&self, label: &Label<'_>) -> Result<Vertex, TextError> {
        label.vertex.ok_or_else(|| {
            let at = self.lexer.position_of(label.mark);
            TextError::UnknownLabel { at, label: shorten(label.word) }
        })
    }

    /// Reads the rest after `requires` or `irequires`.
    fn edge(&mut self, after: Label<'a>, until: Until, graph: &mut Graph) -> Result<(), TextError> {
        let before = match self.lexer.next() {
            Token::Word(word) => self.label(word),
            token => return Err(self.lexer.unexpected(token, "a label")),
        };
        let waiting = self.vertex(&after)?;
        let awaited = self.vertex(&before)?;
        if waiting == awaited {
            let at = self.lexer.position_of(before.mark);
            return Err(TextError::SelfEdge { at, label: shorten(before.word) });
        }
        match until {
            Until::Complete => graph.requires(waiting, awaited),
            Until::Started => graph.irequires(waiting, awaited),
        }
        let token = self.lexer.next();
        self.end_of_line(token, "the end of the line after a label")
    }

    /// Reads the rest after `send`, `recv` or `calc`.
    fn operation(
        &mut self,
        kind: &str,
        label: Option<&'a str>,
        graph: &mut Graph,
    ) -> Result<(), TextError> {
        let line = self.lexer.line();
        let (operation, attributes) = if kind == "calc" {
            let nanoseconds = self.number("a computation in nanoseconds", u64::MAX)?;
            (Operation::Calc { nanoseconds }, self.attributes(Allowed::Calc)?)
        } else {
            self.message(kind == "send")?
        };
        let vertex = graph.add(operation);
        if let Some(entry) = graph.vertex_mut(vertex) {
            (entry.cpu, entry.nic) = (attributes.cpu, attributes.nic);
            entry.label = label.map(str::to_owned);
            entry.line = Some(line);
        }
        if let Some(label) = label {
            self.labels.insert(label, vertex);
        }
        Ok(())
    }

    /// Reads the rest after `send` or `recv`.
    fn message(&mut self, is_send: bool) -> Result<(Operation, Attributes), TextError> {
        let bytes = self.number("a number of bytes", u64::MAX)?;
        self.word("b", "`b` after the number of bytes")?;
        if is_send {
            self.word("to", "`to`")?;
        } else {
            self.word("from", "`from`")?;
        }
        let peer = match self.lexer.next() {
            Token::Any if !is_send => None,
            token => {
                Some(self.parse(token, "a rank", u64::from(ANY) - 1, "the number of a rank")? as u32)
            }
        };
        let attributes = self.attributes(if is_send { Allowed::Send } else { Allowed::Receive })?;
        let data = Block::unplaced(bytes).into();
        let operation = match (peer, attributes.tag) {
            (Some(peer), Some(tag)) if is_send => Operation::Send { data, peer, tag },
            (source, tag) => Operation::Receive { data, source, tag },
        };
        Ok((operation, attributes))
    }

    /// The rest of a line: `tag T`, `cpu C`, `nic N`, each at most once and in this order.
    fn attributes(&mut self, allowed: Allowed) -> Result<Attributes, TextError> {
        let mut attributes = Attributes { tag: Some(0), cpu: 0, nic: 0 };
        let mut expected = if allowed == Allowed::Calc {
            "`cpu` or the end of the line"
        } else {
            "`tag`, `cpu`, `nic` or the end of the line"
        };
        let mut token = self.lexer.next();
        if token == Token::Word("tag") && allowed != Allowed::Calc {
            attributes.tag = match self.lexer.next() {
                Token::Any if allowed == Allowed::Receive => None,
                token => {
                    Some(self.parse(token, "a tag", u64::from(ANY) - 1, "the number of a tag")?
                        as u32)
                }
            };
            expected = "`cpu`, `nic` or the end of the line";
            token = self.lexer.next();
        }
        if token == Token::Word("cpu") {
            attributes.cpu = self.number("a cpu", u64::from(u8::MAX))? as u8;
            expected = if allowed == Allowed::Calc {
                "the end of the line"
            } else {
                "`nic` or the end of the line"
            };
            token = self.lexer.next();
        }
        if token == Token::Word("nic") && allowed != Allowed::Calc {
            attributes.nic = self.number("a nic", u64::from(u8::MAX))? as u8;
            expected = "the end of the line";
            token = self.lexer.next();
        }
        self.end_of_line(token, expected)?;
        Ok(attributes)
    }

    fn end_of_line(&self, token: Token<'_>, expected: &'static str) -> Result<(), TextError> {
        match token {
            Token::Newline | Token::End => Ok(()),
            token => Err(self.lexer.unexpected(token, expected)),
        }
    }

    fn word(&mut self, word: &str, expected: &'static str) -> Result<(), TextError> {
        match self.lexer.next() {
            Token::Word(found) if found == word => Ok(()),
            token => Err(self.lexer.unexpected(token, expected)),
        }
    }

    fn number(&mut self, what: &'static str, limit: u64) -> Result<u64, TextError> {
        let token = self.lexer.next();
        self.parse(token, what, limit, what)
    }

    /// The value of a token that should be a number.
    fn parse(
        &self,
        token: Token<'_>,
        what: &'static str,
        limit: u64,
        expected: &'static str,
    ) -> Result<u64, TextError> {
        let Token::Number(digits) = token else {
            return Err(self.lexer.unexpected(token, expected));
        };
        digits.parse().ok().filter(|number| *number <= limit).ok_or_else(|| {
            let at = self.lexer.position();
            TextError::NumberTooLarge { at, found: shorten(digits), what, limit }
        })
    }
}

/// A label that was read, and its place.
struct Label<'a> {
    word: &'a str,
    mark: usize,
    /// The vertex it stands for, if it is defined.
    vertex: Option<Vertex>,
}

/// Which attributes an operation may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Allowed {
    /// A tag that is a number, cpu, nic.
    Send,
    /// A tag that may be any, cpu, nic.
    Receive,
    /// A cpu only.
    Calc,
}

/// Reads the end of an operation's line.
struct Attributes {
    tag: Option<u32>,
    cpu: u8,
    nic: u8,
}
