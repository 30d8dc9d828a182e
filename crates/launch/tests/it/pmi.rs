//! Ranks that speak with a process manager of a few lines, and with one that says whatever comes to
//! its mind.

use launch::pmi::{self, Client, Error, Message, Version};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier, Mutex};

const BOTH: [Version; 2] = [Version::One, Version::Two];

/// What a job's ranks have put, and where they meet.
struct Space {
    values: Mutex<BTreeMap<String, String>>,
    fence: Barrier,
    ranks: u32,
}

/// The side of the process manager, for one rank, until the rank finalizes.
fn manage(stream: UnixStream, space: &Space, rank: u32) -> Message {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut stream = stream;
    let mut version = Version::One;
    loop {
        let text = match version {
            Version::One => {
                let mut line = String::new();
                reader.read_line(&mut line).expect("text");
                line.trim_end().to_owned()
            }
            Version::Two => {
                let mut digits = [0; 6];
                reader.read_exact(&mut digits).expect("a length");
                let length = std::str::from_utf8(&digits)
                    .expect("digits")
                    .trim_start()
                    .parse()
                    .expect("a length");
                let mut text = vec![0; length];
                reader.read_exact(&mut text).expect("a message");
                String::from_utf8(text).expect("text")
            }
        };
        let asked = Message::read(&text, version).expect("a message");
        let (answer, ends) = answer(&asked, space, rank);
        let written = answer.write(version);
        // In pieces: what comes together need not.
        for piece in written.as_bytes().chunks(7) {
            stream.write_all(piece).expect("the rank listens");
        }
        if asked.word("pmi_version") == Some("2") {
            version = Version::Two;
        }
        if ends {
            return asked;
        }
    }
}

fn answer(asked: &Message, space: &Space, rank: u32) -> (Message, bool) {
    let word = |name: &str| asked.word(name).unwrap_or_default().to_owned();
    let mut values = space.values.lock().expect("no panic");
    let (command, words): (&str, Vec<(&str, String)>) = match asked.command.as_str() {
        "init" => {
            ("response_to_init", vec![("pmi_version", word("pmi_version")), ("rc", "0".into())])
        }
        "get_my_kvsname" => ("my_kvsname", vec![("kvsname", "job-7".into())]),
        "fullinit" => {
            assert_eq!(word("pmirank"), rank.to_string());
            let (rank, ranks) = (rank.to_string(), space.ranks.to_string());
            ("fullinit-response", vec![("rank", rank), ("size", ranks), ("rc", "0".into())])
        }
        put @ ("put" | "kvs-put") => {
            let taken = values.insert(word("key"), word("value")).is_some();
            let code = if taken { "-1" } else { "0" };
            let name = if put == "put" { "put_result" } else { "kvs-put-response" };
            (name, vec![("rc", code.into()), ("msg", "duplicate_key".into())])
        }
        fence @ ("barrier_in" | "kvs-fence") => {
            drop(values);
            space.fence.wait();
            let name = if fence == "barrier_in" { "barrier_out" } else { "kvs-fence-response" };
            return (Message::new(name, &[]), false);
        }
        "get" => match values.get(&word("key")) {
            Some(value) => ("get_result", vec![("rc", "0".into()), ("value", value.clone())]),
            None => (
                "get_result",
                vec![
                    ("rc", "-1".into()),
                    ("msg", "no_such_key".into()),
                    ("value", "unknown".into()),
                ],
            ),
        },
        "kvs-get" => {
            let found = match values.get(&word("key")) {
                Some(value) => {
                    vec![("found", "TRUE".into()), ("value", value.clone()), ("rc", "0".into())]
                }
                None => vec![("found", "FALSE".into()), ("rc", "0".into())],
            };
            ("kvs-get-response", found)
        }
        "finalize" => {
            let name = if asked.words.is_empty() && values.contains_key("two") {
                "finalize-response"
            } else {
                "finalize_ack"
            };
            return (Message::new(name, &[]), true);
        }
        _ => ("unknown", vec![]),
    };
    let words: Vec<(&str, &str)> =
        words.iter().map(|(name, word)| (*name, word.as_str())).collect();
    (Message::new(command, &words), false)
}

/// Runs a body on every rank of a job with a process manager.
fn job(
    ranks: u32,
    version: Version,
    body: impl Fn(u32, Client<UnixStream>) -> Result<(), Error> + Sync,
) {
    let mut values = BTreeMap::new();
    if version == Version::Two {
        values.insert("two".into(), "yes".into());
    }
    let space = Space { values: Mutex::new(values), fence: Barrier::new(ranks as usize), ranks };
    std::thread::scope(|scope| {
        for rank in 0..ranks {
            let (ours, theirs) = UnixStream::pair().expect("sockets");
            let (space, body) = (&space, &body);
            scope.spawn(move || manage(theirs, space, rank));
            scope.spawn(move || {
                let client = Client::open(ours, rank, ranks, version)
                    .expect("a process manager that answers");
                body(rank, client)
                    .unwrap_or_else(|error| panic!("{version}, rank {rank}: {error}"));
            });
        }
    });
}

#[test]
fn what_is_put_before_a_fence_is_got_behind_it() {
    for version in BOTH {
        job(4, version, |rank, mut client| {
            client.put(&format!("colour-{rank}"), &format!("{rank}:blue,(green)"))?;
            client.fence()?;
            for other in 0..4 {
                assert_eq!(
                    client.get(&format!("colour-{other}"))?,
                    Some(format!("{other}:blue,(green)"))
                );
            }
            assert_eq!(client.get("nobody")?, None);
            client.fence()?;
            client.finalize()
        });
    }
}

#[test]
fn a_refusal_says_why() {
    for version in BOTH {
        job(1, version, |_, mut client| {
            client.put("key", "a")?;
            let error = client.put("key", "b").expect_err("it is taken").to_string();
            assert!(error.contains("duplicate key"), "{error}");
            client.finalize()
        });
    }
}

#[test]
fn what_would_not_survive_the_way_is_not_put() {
    for version in BOTH {
        job(1, version, |_, mut client| {
            let long = "x".repeat(300);
            for wrong in ["", "a b", "a;b", "a=b", "a\nb", "é", &long] {
                assert!(
                    matches!(client.put(wrong, "value"), Err(Error::Unsendable { .. })),
                    "{wrong:?}"
                );
                assert!(
                    matches!(client.put("key", wrong), Err(Error::Unsendable { .. })),
                    "{wrong:?}"
                );
                assert!(matches!(client.get(wrong), Err(Error::Unsendable { .. })), "{wrong:?}");
            }
            client.put(&"k".repeat(pmi::LONGEST_KEY), &"v".repeat(pmi::LONGEST_VALUE))?;
            client.finalize()
        });
    }
}

/// A stream that answers everything with the same bytes, as far as they go.
struct Answers {
    bytes: Arc<[u8]>,
    at: usize,
    piece: usize,
}

impl Read for Answers {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let left = &self.bytes[self.at..];
        let count = left.len().min(buffer.len()).min(self.piece);
        buffer[..count].copy_from_slice(&left[..count]);
        self.at += count;
        Ok(count)
    }
}

impl Write for Answers {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn converse(bytes: &[u8], piece: usize, version: Version) -> Result<(), Error> {
    let mut client = Client::open(Answers { bytes: bytes.into(), at: 0, piece }, 1, 4, version)?;
    client.put("key", "value")?;
    client.fence()?;
    client.get("key")?;
    client.finalize()
}

/// All answers of a conversation in which nothing goes wrong.
fn sound(version: Version) -> Vec<u8> {
    let init = |version| {
        Message::new("response_to_init", &[("pmi_version", version), ("rc", "0")])
            .write(Version::One)
    };
    let answers: &[Message] = match version {
        Version::One => &[
            Message::new("my_kvsname", &[("kvsname", "job")]),
            Message::new("put_result", &[("rc", "0"), ("msg", "success")]),
            Message::new("barrier_out", &[]),
            Message::new("get_result", &[("rc", "0"), ("value", "blue")]),
            Message::new("finalize_ack", &[]),
        ],
        Version::Two => &[
            Message::new("fullinit-response", &[("rank", "1"), ("size", "4"), ("rc", "0")]),
            Message::new("kvs-put-response", &[("rc", "0")]),
            Message::new("kvs-fence-response", &[("rc", "0")]),
            Message::new("kvs-get-response", &[("found", "TRUE"), ("value", "blue"), ("rc", "0")]),
            Message::new("finalize-response", &[("rc", "0")]),
        ],
    };
    let first = init(if version == Version::One { "1" } else { "2" });
    let rest: String = answers.iter().map(|answer| answer.write(version)).collect();
    (first + &rest).into_bytes()
}

#[test]
fn a_conversation_may_come_in_any_pieces_and_be_cut_off_anywhere() {
    for version in BOTH {
        let all = sound(version);
        for piece in 1..20 {
            converse(&all, piece, version)
                .unwrap_or_else(|error| panic!("{version}, pieces of {piece}: {error}"));
        }
        for end in 0..all.len() {
            let error = converse(&all[..end], 9, version).expect_err("it is cut off");
            assert!(matches!(error, Error::Closed), "{version}, cut at {end}: {error}");
        }
    }
}

#[test]
fn another_answer_than_the_question_has_is_an_error_that_names_both() {
    let other = |from: &str, to: &str, version| {
        let text = String::from_utf8(sound(version)).expect("text").replacen(from, to, 1);
        converse(text.as_bytes(), 100, version).expect_err("it is wrong").to_string()
    };
    for (from, to, version, expected) in [
        ("response_to_init", "something", Version::One, "answers init with \"something\""),
        ("pmi_version=2", "pmi_version=1", Version::Two, "does not support PMI-2"),
        ("rc=0", "rc=-1", Version::One, "does not support PMI-1"),
        ("kvsname=", "kvs=", Version::One, "should have kvsname, a name"),
        ("rc=0 msg=success", "rc=1 msg=no_space", Version::One, "refuses put: no space"),
        ("rc=0 msg", "rc=x msg", Version::One, "rc \"x\""),
        ("barrier_out", "put_result", Version::One, "answers barrier_in with \"put_result\""),
        (
            "rank=1",
            "rank=2",
            Version::Two,
            "this rank is 2 by the process manager and 1 by the environment",
        ),
        ("size=4", "size=5", Version::Two, "the number of ranks is 5"),
        ("size=4", "size=x", Version::Two, "size \"x\""),
        ("TRUE", "true", Version::Two, "found \"true\""),
        ("    41", "  4444", Version::Two, "closed its connection"),
        ("    41", "9x    ", Version::Two, "not made of digits"),
    ] {
        let error = other(from, to, version);
        assert!(error.contains(expected), "{from} → {to}: {error}");
    }
}

#[test]
fn a_line_without_end_is_not_kept() {
    let error = converse(&vec![b'x'; 1 << 20], 1 << 16, Version::One).expect_err("no line");
    assert!(error.to_string().contains("longer than any message"), "{error}");
}

proptest! {
    #[test]
    fn noise_is_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..400), two: bool) {
        let version = if two { Version::Two } else { Version::One };
        prop_assert!(converse(&bytes, 50, version).is_err());
    }

    #[test]
    fn a_damaged_conversation_is_an_error_or_means_what_it_says(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        two: bool,
    ) {
        let version = if two { Version::Two } else { Version::One };
        let mut bytes = sound(version);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        // It may be sound all the same: a value has no meaning here.
        if let Err(error) = converse(&bytes, 50, version) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
