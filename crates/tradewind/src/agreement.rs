//! Small allgathers by which ranks agree on something before a collective starts.

use crate::communicator::Communicator;
use crate::error::{Error, Result};
use crate::internode::group::InternodeGroup;
use crate::internode::request::InternodeRequest;
use crate::internode::schedule::InternodeSchedule;
use crate::link_key::LinkKey;
use crate::path::ExecutionPath;
use collectives::{Algorithm, Tuning};
use engine::signature::{CallKind, Signature};
use goal::compile::compile;
use goal::graph::Graph;
use models::decision::CallForm;
use models::machine_file::Engine;
use network::backend::Backend;
use std::sync::Arc;

/// Number of words that a rank contributes to one allgather, as within a node.
pub(crate) const WORDS: usize = 6;

impl Communicator {
    /// Gathers a few words of every rank on all ranks, in rank order. Waits for all ranks.
    pub(crate) fn allgather_words(
        &self,
        words: [u64; WORDS],
        call: Signature,
    ) -> Result<Vec<[u64; WORDS]>> {
        let Some(internode) = self.internode() else {
            return Ok(self.group().exchange_words(words, call)?);
        };
        let schedule = self.allgather_schedule(internode, call)?;
        let mut gathered = vec![[0; WORDS]; internode.ranks() as usize];
        let output = bytemuck::cast_slice_mut(&mut gathered);
        let contents = [bytemuck::cast_slice(&words), &[]];
        let mut request =
            InternodeRequest::start_with_bytes(&schedule, CallForm::Blocking, &contents)?;
        request.wait(None, &mut [])?;
        request.fetch(&mut [&mut [], output])?;
        Ok(gathered)
    }

    /// Gathers a number of every rank on all ranks, in rank order. Waits for all ranks.
    pub(crate) fn allgather_word(&self, number: u64, call: Signature) -> Result<Vec<u64>> {
        let gathered = self.allgather_words([number, 0, 0, 0, 0, 0], call)?;
        Ok(gathered.into_iter().map(|[number, ..]| number).collect())
    }

    /// Agrees on whether all ranks have opened their parts of an object; fails on all ranks if one
    /// rank has failed. Once a call has returned on one rank, the parts of all ranks are open, so a
    /// rank that closes its part at once closes nothing that another one has still to open.
    pub(crate) fn opened_by_all<E>(
        &self,
        what: &'static str,
        call: Signature,
        opened: Result<E>,
    ) -> Result<E> {
        // Before the own error is returned: the others wait for the word of every rank.
        let all = self.allgather_word(u64::from(opened.is_err()), call)?;
        let opened = opened?;
        match all.iter().position(|failed| *failed != 0) {
            Some(rank) => Err(Error::CreationFailed { rank: rank as u32, what }),
            None => Ok(opened),
        }
    }

    /// Gathers two times of every rank on all ranks, in rank order. Waits for all ranks.
    pub(crate) fn allgather_times(&self, times: [i64; 2]) -> Result<Vec<[i64; 2]>> {
        let [first, second] = times.map(i64::cast_unsigned);
        let call = Signature::new(CallKind::Link, 0, 0);
        let gathered = self.allgather_words([first, second, 0, 0, 0, 0], call)?;
        let times = |[first, second, ..]: [u64; WORDS]| [first, second].map(u64::cast_signed);
        Ok(gathered.into_iter().map(times).collect())
    }

    /// Gathers a list of every rank on all ranks, in rank order, in rounds of a few words. Waits
    /// for all ranks.
    pub(crate) fn allgather_lists(&self, words: &[u64], call: Signature) -> Result<Vec<Vec<u64>>> {
        let call = Signature { kind: CallKind::Link, ..call };
        let lengths = self.allgather_word(words.len() as u64, call)?;
        let mut lists = vec![Vec::new(); lengths.len()];
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let mut pieces = words.chunks(WORDS);
        // As many rounds on every rank as the longest list needs: each round is an allgather, which
        // all ranks must call. All lists grow alike, so the first one counts the rounds.
        while (lists[0].len() as u64) < longest {
            let mut round = [0; WORDS];
            let piece = pieces.next().unwrap_or(&[]);
            round[..piece.len()].copy_from_slice(piece);
            let gathered = self.allgather_words(round, call)?;
            lists.iter_mut().zip(gathered).for_each(|(list, words)| list.extend(words));
        }
        lists.iter_mut().zip(lengths).for_each(|(list, length)| list.truncate(length as usize));
        Ok(lists)
    }

    /// The schedule of an allgather of words between nodes: registered once, on the general
    /// backend, which accepts every schedule.
    fn allgather_schedule(
        &self,
        internode: &Arc<InternodeGroup>,
        call: Signature,
    ) -> Result<Arc<InternodeSchedule>> {
        let key = LinkKey {
            call,
            algorithm: "allgather of words",
            tuning: Tuning::default(),
            ranks_per_node: None,
            engine: None,
            arguments: 0,
            sizes: Vec::new(),
        };
        let register = || {
            let schedule = compile(&allgather_graph(internode.rank(), internode.ranks())?)?;
            let general = &internode.job().backends.general;
            InternodeSchedule::register(internode, general, &schedule, call, false)
        };
        match self.cached_path(key, || Ok(ExecutionPath::Internode(register()?)))? {
            ExecutionPath::Internode(schedule) => Ok(schedule),
            ExecutionPath::Flat(_) | ExecutionPath::Linked(_) => register(),
        }
    }

    /// Registers this rank's graph with a backend between nodes. The ranks agree on the backend: a
    /// special one is used only if it accepts the graphs of all ranks. `needs_no_thread` is as for
    /// [`InternodeSchedule::register`].
    pub(crate) fn register_graph(
        &self,
        internode: &Arc<InternodeGroup>,
        graph: &Graph,
        call: Signature,
        engine: Option<Engine>,
        needs_no_thread: bool,
    ) -> Result<Arc<InternodeSchedule>> {
        let schedule = compile(graph)?;
        let backends = &internode.job().backends;
        let is_wanted = |backend: &&Arc<dyn Backend>| {
            engine.is_none_or(|engine| engine.name() == backend.name())
        };
        for backend in backends.special.iter().filter(is_wanted) {
            let accepted = InternodeSchedule::register(internode, backend, &schedule, call, false);
            let own = u64::from(accepted.is_ok());
            let call = Signature { kind: CallKind::Link, ..call };
            // Also after a refusal, for which the other ranks wait.
            let all = self.allgather_word(own, call)?;
            if let Ok(accepted) = accepted
                && all.iter().all(|accepted| *accepted == 1)
            {
                return Ok(accepted);
            }
        }
        let general = &backends.general;
        InternodeSchedule::register(internode, general, &schedule, call, needs_no_thread)
    }
}

/// An allgather of words in few rounds.
fn allgather_graph(rank: u32, ranks: u32) -> Result<Graph> {
    let sizes = collectives::Sizes::equal(ranks, (WORDS * size_of::<u64>()) as u64)?;
    Ok(collectives::allgather::graph(Algorithm::Bruck, rank, &sizes)?)
}
