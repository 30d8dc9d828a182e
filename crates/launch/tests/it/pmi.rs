//! Ranks that speak with a process manager of a few lines, and with one that sends any bytes.

use launch::pmi::{self, Client, Error, Message};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier, Mutex};

/// The values of a job's ranks, and their fence.
struct Space {
    values: Mutex<BTreeMap<String, String>>,
    fence: Barrier,
}

/// The side of the process manager, for one rank, until the rank finalizes.
fn manage(mut stream: UnixStream, space: &Space) {
    let reader = BufReader::new(stream.try_clone().expect("a second handle"));
    for line in reader.lines() {
        let request = Message::read(&line.expect("text")).expect("a message");
        let answer = answer(&request, space).write();
        // In pieces, because a stream keeps no borders of messages.
        for piece in answer.as_bytes().chunks(7) {
            stream.write_all(piece).expect("the rank listens");
        }
    }
}

fn answer(request: &Message, space: &Space) -> Message {
    let word = |name: &str| request.word(name).unwrap_or_default().to_owned();
    match request.command.as_str() {
        "init" => Message::new("response_to_init", &[("pmi_version", "1"), ("rc", "0")]),
        "get_my_kvsname" => Message::new("my_kvsname", &[("kvsname", "job-7")]),
        "put" => {
            let mut values = space.values.lock().expect("no panic");
            let is_taken = values.insert(word("key"), word("value")).is_some();
            let code = if is_taken { "-1" } else { "0" };
            Message::new("put_result", &[("rc", code), ("msg", "duplicate_key")])
        }
        "barrier_in" => {
            space.fence.wait();
            Message::new("barrier_out", &[])
        }
        "get" => match space.values.lock().expect("no panic").get(&word("key")) {
            Some(value) => Message::new("get_result", &[("rc", "0"), ("value", value)]),
            None => {
                let words = [("rc", "-1"), ("msg", "no_such_key"), ("value", "unknown")];
                Message::new("get_result", &words)
            }
        },
        "finalize" => Message::new("finalize_ack", &[]),
        other => panic!("{other}"),
    }
}

/// Runs a body on every rank of a job with a process manager.
fn job(ranks: u32, body: impl Fn(u32, Client<UnixStream>) -> Result<(), Error> + Sync) {
    let values = Mutex::default();
    let space = Space { values, fence: Barrier::new(ranks as usize) };
    std::thread::scope(|scope| {
        for rank in 0..ranks {
            let (ours, theirs) = UnixStream::pair().expect("sockets");
            let (space, body) = (&space, &body);
            scope.spawn(move || manage(theirs, space));
            scope.spawn(move || {
                let client = Client::open(ours).expect("a process manager that answers");
                body(rank, client).unwrap_or_else(|error| panic!("rank {rank}: {error}"));
            });
        }
    });
}

#[test]
fn every_rank_gets_the_values_put_before_a_fence() {
    job(4, |rank, mut client| {
        let value = |rank: u32| format!("{rank}:blue,(green)");
        client.put(&format!("colour-{rank}"), &value(rank))?;
        client.fence()?;
        for other in 0..4 {
            assert_eq!(client.get(&format!("colour-{other}"))?, Some(value(other)));
        }
        assert_eq!(client.get("nobody")?, None);
        client.fence()?;
        client.finalize()
    });
}

#[test]
fn a_refusal_has_the_reason() {
    job(1, |_, mut client| {
        client.put("key", "a")?;
        let error = client.put("key", "b").expect_err("the key is taken").to_string();
        assert!(error.contains("answers put") && error.contains("duplicate key"), "{error}");
        client.finalize()
    });
}

#[test]
fn words_that_would_not_survive_are_not_put() {
    job(1, |_, mut client| {
        let long = "x".repeat(300);
        for wrong in ["", "a b", "a;b", "a=b", "a\nb", "é", &long] {
            let results =
                [client.put(wrong, "value"), client.put("key", wrong), client.get(wrong).map(drop)];
            for result in results {
                assert!(matches!(result, Err(Error::Unsendable { .. })), "{wrong:?}");
            }
        }
        client.put(&"k".repeat(pmi::LONGEST_KEY), &"v".repeat(pmi::LONGEST_VALUE))?;
        client.finalize()
    });
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

fn converse(bytes: &[u8], piece: usize) -> Result<(), Error> {
    let mut client = Client::open(Answers { bytes: bytes.into(), at: 0, piece })?;
    client.put("key", "value")?;
    client.fence()?;
    client.get("key")?;
    client.finalize()
}

/// All answers of a conversation without an error.
const SOUND: &str = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n\
                     cmd=my_kvsname kvsname=job\n\
                     cmd=put_result rc=0 msg=success\n\
                     cmd=barrier_out\n\
                     cmd=get_result rc=0 value=blue\n\
                     cmd=finalize_ack\n";

#[test]
fn a_conversation_may_come_in_any_pieces_and_be_cut_off_anywhere() {
    for piece in 1..20 {
        let result = converse(SOUND.as_bytes(), piece);
        result.unwrap_or_else(|error| panic!("pieces of {piece}: {error}"));
    }
    for end in 0..SOUND.len() {
        let error = converse(&SOUND.as_bytes()[..end], 9).expect_err("it is cut off");
        assert!(matches!(error, Error::Closed), "cut at {end}: {error}");
    }
}

#[test]
fn a_wrong_answer_is_an_error_that_names_question_and_answer() {
    for (from, to, expected) in [
        ("response_to_init", "something", "answers init with \"cmd=something"),
        ("pmi_version=1", "pmi_version=2", "it has PMI-2, not PMI-1"),
        ("rc=0", "rc=-1", "answers init with"),
        ("kvsname=", "kvs=", "it has no kvsname"),
        ("rc=0 msg=success", "rc=1 msg=no_space", "it refuses: no space"),
        ("rc=0 msg", "rc=x msg", "its rc is no number"),
        ("barrier_out", "put_result", "answers barrier_in with \"cmd=put_result\""),
        ("cmd=get_result", "get_result", "it is no message: it does not begin with cmd="),
    ] {
        let text = SOUND.replacen(from, to, 1);
        let error = converse(text.as_bytes(), 100).expect_err("it is wrong").to_string();
        assert!(error.contains(expected), "{from} → {to}: {error}");
    }
}

#[test]
fn a_line_without_end_is_not_kept() {
    let error = converse(&vec![b'x'; 1 << 20], 1 << 16).expect_err("no line");
    assert!(error.to_string().contains("longer than any message"), "{error}");
}

proptest! {
    #[test]
    fn noise_is_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(converse(&bytes, 50).is_err());
    }

    #[test]
    fn a_damaged_conversation_is_an_error_or_sound(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = SOUND.as_bytes().to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        // It may be sound all the same: a value has no meaning here.
        if let Err(error) = converse(&bytes, 50) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
