//! GOAL files that the tests run.

/// Five ranks, everything that the language has: messages of no byte, few and many, tags,
/// wildcards, both kinds of edges, computations on several cpus, two interfaces, a message from a
/// rank to itself.
pub(crate) const EVERYTHING: &str = "\
num_ranks 5
rank 0 {
  a: send 0b to 1
  b: send 300000b to 2 tag 4 cpu 1 nic 1
  c: calc 20000
  d: recv 9b from 1 tag -1
  e: recv 9b from -1 tag 2
  f: send 64b to 0 tag 9
  g: recv 64b from 0 tag 9
  c requires a
  d requires c
  f irequires b
  e irequires d
}
rank 1 {
  a: recv 0b from 0
  b: send 9b to 0 tag 1
  c: send 5000b to 3 nic 1
  d: send 5000b to 3 nic 1
  b requires a
}
rank 2 {
  r: recv 300000b from 0 tag 4
  c: calc 50000 cpu 3
  k: calc 30000 cpu 3
  s: send 9b to 0 tag 2
  t: recv 1b from 4
  s requires r
  s requires c
  c irequires r
}
rank 3 {
  a: recv 5000b from -1
  b: recv 5000b from 1 tag -1
  c: send 200000b to 4
  c requires a
}
rank 4 {
  a: recv 200000b from 3
  b: calc 10000
  c: send 1b to 2
  a requires b
  c requires a
}
";

/// A ring of `ranks` ranks, round `rounds` times; each passes on what it got in the round before.
pub(crate) fn ring(ranks: u32, rounds: u32, bytes: u64) -> String {
    let mut text = format!("num_ranks {ranks}\n");
    for rank in 0..ranks {
        text.push_str(&format!("rank {rank} {{\n"));
        let (before, after) = ((rank + ranks - 1) % ranks, (rank + 1) % ranks);
        for round in 0..rounds {
            text.push_str(&format!(
                "s{round}: send {bytes}b to {after}\nr{round}: recv {bytes}b from {before}\n"
            ));
            if round > 0 {
                text.push_str(&format!("s{round} requires r{}\n", round - 1));
            }
        }
        text.push_str("}\n");
    }
    text
}

/// All ranks send to rank 0, which takes whatever comes.
pub(crate) fn flood(ranks: u32, messages: u32, bytes: u64) -> String {
    let mut text = format!("num_ranks {ranks}\nrank 0 {{\n");
    for _ in 0..(ranks - 1) * messages {
        text.push_str(&format!("recv {bytes}b from -1 tag -1\n"));
    }
    text.push_str("}\n");
    for rank in 1..ranks {
        text.push_str(&format!("rank {rank} {{\n"));
        (0..messages)
            .for_each(|number| text.push_str(&format!("send {bytes}b to 0 tag {}\n", number % 3)));
        text.push_str("}\n");
    }
    text
}
