//! Jobs with ranks that exchange their addresses themselves, as those of an MPI program do by calls
//! of its library.
//!
//! Each step ends with one exchange, in which a rank that has failed sends the reason instead. So
//! all ranks enter the job or none does, and none waits for one that has given up.

use crate::attach::engine_kind;
use crate::attachment::Attachment;
use crate::error::ServiceError;
use crate::many_nodes::{self, NodeServices};
use crate::spawn::Lifeline;
use launch::LaunchError;
use launch::environment::{Environment, InternodeEngine, Lookup};
use launch::key_values::KeyValueSpace;
use std::collections::HashMap;
use std::path::Path;

/// Enters the job of `ranks` ranks as rank `rank`, and waits for the other ranks of this node. The
/// first rank of each node starts its node service; `command` is the `tradewind` command, unless
/// TRADEWIND_COMMAND names another; `None` is the one in PATH.
///
/// `exchange` sends bytes to all ranks and returns those of every rank, in rank order, or `None` if
/// that fails, on all ranks. All ranks call it equally often.
///
/// # Errors
/// If this rank or another one cannot enter: all ranks return an error then.
pub fn enter(
    (rank, ranks): (u32, u32),
    command: Option<&Path>,
    exchange: impl FnMut(&[u8]) -> Option<Vec<Vec<u8>>> + Send,
) -> Result<Attachment, ServiceError> {
    let _occupied = shm::inherited::occupy_standard_numbers();
    let mut space = ExchangedSpace::new(exchange);
    // Ends when all ranks are there or none will be.
    let mut lifeline = None;
    let entered = enter_through(&mut space, (rank, ranks), command, &mut lifeline);
    let attachment = space.agree(entered)?;
    attachment.member.wait_for_all(Environment.start_timeout()?)?;
    Ok(attachment)
}

fn enter_through(
    space: &mut dyn KeyValueSpace,
    (rank, ranks): (u32, u32),
    command: Option<&Path>,
    lifeline: &mut Option<Lifeline>,
) -> Result<Attachment, ServiceError> {
    let limit = Environment.start_timeout()?;
    let services = NodeServices {
        launcher: rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned()),
        engine: engine_kind(&Environment)?,
        command: command.map(Into::into),
        // The first start of a collective in the kernel waits until all ranks agree on it, which a
        // start of such a program must not.
        internode: InternodeEngine::Agent,
        is_embedded: true,
    };
    let mut placed = many_nodes::place(&Environment, space, (rank, ranks), services)?;
    *lifeline = placed.lifeline.take();
    placed.enter(&Environment, limit)
}

/// The values of all ranks, exchanged in one piece at each fence.
struct ExchangedSpace<E> {
    exchange: E,
    /// Values of this rank since the last fence.
    own: Vec<(String, String)>,
    all: HashMap<String, String>,
    /// A rank has failed, so no rank exchanges anything any more.
    is_over: bool,
}

/// First byte of the values of a rank.
const VALUES: u8 = b'+';
/// First byte of the reason for which a rank has failed.
const FAILURE: u8 = b'-';

impl<E: FnMut(&[u8]) -> Option<Vec<Vec<u8>>> + Send> ExchangedSpace<E> {
    fn new(exchange: E) -> Self {
        ExchangedSpace { exchange, own: Vec::new(), all: HashMap::new(), is_over: false }
    }

    /// Returns the attachment if every rank has one.
    fn agree(
        &mut self,
        entered: Result<Attachment, ServiceError>,
    ) -> Result<Attachment, ServiceError> {
        match entered {
            Ok(attachment) => self.fence().map(|()| attachment).map_err(ServiceError::from),
            Err(error) => {
                // All ranks call `exchange` equally often. The others are at their next fence, or
                // in this method, so one call with the reason answers theirs. If the exchange is
                // over, all of them have seen the same failure, and a further call would wait for
                // ever.
                if !self.is_over {
                    self.is_over = true;
                    let mut message = vec![FAILURE];
                    message.extend(error.to_string().bytes());
                    (self.exchange)(&message);
                }
                Err(error)
            }
        }
    }
}

impl<E: FnMut(&[u8]) -> Option<Vec<Vec<u8>>> + Send> KeyValueSpace for ExchangedSpace<E> {
    fn put(&mut self, key: &str, value: &str) -> Result<(), LaunchError> {
        self.own.push((key.to_owned(), value.to_owned()));
        Ok(())
    }

    fn fence(&mut self) -> Result<(), LaunchError> {
        let mut message = vec![VALUES];
        // Neither keys nor values contain a zero.
        for (key, value) in std::mem::take(&mut self.own) {
            message.extend([key.as_bytes(), &[0], value.as_bytes(), &[0]].concat());
        }
        let Some(received) = (self.exchange)(&message) else {
            self.is_over = true;
            return Err(LaunchError::Exchange);
        };
        // Every rank gets the same messages in the same order, so all of them fail with the first
        // failed rank, at the same fence.
        for (rank, message) in (0..).zip(&received) {
            let text = String::from_utf8_lossy(message.get(1..).unwrap_or_default());
            if message.first() != Some(&VALUES) {
                self.is_over = true;
                return Err(LaunchError::OtherRank { rank, why: text.into_owned() });
            }
            let mut parts = text.split_terminator('\0').map(str::to_owned);
            while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
                self.all.insert(key, value);
            }
        }
        Ok(())
    }

    fn get(&mut self, key: &str, _: u32) -> Result<Option<String>, LaunchError> {
        Ok(self.all.get(key).cloned())
    }

    fn longest_value(&self) -> usize {
        /// More addresses than any node has.
        const LONGEST: usize = 4096;
        LONGEST
    }

    fn finish(self: Box<Self>) -> Result<(), LaunchError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Barrier, Mutex};

    type Exchange<'a> = Box<dyn FnMut(&[u8]) -> Option<Vec<Vec<u8>>> + Send + 'a>;

    /// Runs `body` on two threads, which exchange through memory.
    fn two_ranks<T: Send>(
        body: impl Fn(u32, &mut ExchangedSpace<Exchange<'_>>) -> T + Sync,
    ) -> Vec<T> {
        let barrier = Barrier::new(2);
        let messages = Mutex::new(vec![Vec::new(); 2]);
        let run = |rank: u32| {
            let exchange = |own: &[u8]| {
                messages.lock().ok()?[rank as usize] = own.to_vec();
                barrier.wait();
                let all = messages.lock().ok()?.clone();
                barrier.wait();
                Some(all)
            };
            body(rank, &mut ExchangedSpace::new(Box::new(exchange)))
        };
        std::thread::scope(|scope| {
            let run = &run;
            let ranks = [0, 1].map(|rank| scope.spawn(move || run(rank)));
            ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
        })
    }

    #[test]
    fn values_are_visible_after_a_fence() {
        let seen = two_ranks(|rank, space| {
            space.put(&format!("first-{rank}"), "").expect("it is kept");
            space.put(&format!("second-{rank}"), "a=b;c d").expect("it is kept");
            space.fence().expect("both are here");
            ["first-0", "second-1", "third"].map(|key| space.get(key, 0).expect("it is memory"))
        });
        let expected = [Some(String::new()), Some("a=b;c d".to_owned()), None];
        assert_eq!(seen, [expected.clone(), expected]);
    }

    #[test]
    fn a_rank_that_fails_between_two_fences_fails_the_others() {
        let errors = two_ranks(|rank, space| {
            space.fence().expect("both are here");
            let outcome = match rank {
                0 => Err(ServiceError::Refused("there is no space".into())),
                _ => space.fence().map_err(ServiceError::from),
            };
            let entered = outcome.and(Err(ServiceError::Answer));
            space.agree(entered).expect_err("one rank has failed").to_string()
        });
        assert!(errors[1].contains("rank 0") && errors[1].contains("no space"), "{errors:?}");
        assert!(errors[0].contains("no space"), "{errors:?}");
    }
}
