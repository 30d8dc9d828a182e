//! The directory of programs and names, from which every destination table is written.
//!
//! A name of a program means another program. A table entry depends on the processes that have
//! opened the two, and on what the receiver excludes. Whenever one of these changes, the entries
//! concerned are marked as stale, and [`Directory::settle`] writes them again.
//!
//! A program is removed when the client that has added it has left and no process has it open. Its
//! number is not used again, so names that other programs have for it report the end, also after
//! another program has published its name. Such a name is used for another program when a program
//! has no unused name left.

mod entries;

use super::records::{ClientId, Process, Program, ProgramId, Slot};
use crate::private_names::PRIVATE;
use crate::table::TableWriter;
use crate::wire::{MAX_CLIENTS, MAX_PROGRAM_NAME, ProgramKey, Refusal};
use queues::id::QueueName;
use shm::process::StartTime;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::time::SystemTime;

/// Number of names of a program.
const NAMES: u16 = MAX_CLIENTS + 1;

/// All programs of a node.
#[derive(Debug, Default)]
pub(super) struct Directory {
    programs: HashMap<ProgramId, Program>,
    next_program: ProgramId,
    by_name: BTreeMap<String, ProgramId>,
    /// The program of each client that has opened one.
    opened: HashMap<ClientId, ProgramId>,
    /// Names of each program, with the programs that have them.
    known_as: HashMap<ProgramId, BTreeSet<(ProgramId, QueueName)>>,
    /// Entries that must be written again.
    stale: BTreeSet<(ProgramId, QueueName)>,
}

impl Directory {
    /// Adds a program for process `pid`. It stays until [`Self::release`] and the end of the process
    /// that has opened it.
    pub(super) fn add(&mut self, name: &str, pid: u32) -> Result<(ProgramId, ProgramKey), Refusal> {
        if name.is_empty() || name.len() > MAX_PROGRAM_NAME {
            return Err(Refusal::Invalid { why: "its name must have 1 to 64 bytes".to_owned() });
        }
        if let Some(other) = self.by_name(name).and_then(|id| self.programs.get(&id)) {
            let pid = other.process().map_or(other.pid, |process| process.pid);
            return Err(Refusal::Taken { pid });
        }
        let id = self.next_program;
        // The last step that can fail: nothing has been entered before it.
        let key = ProgramKey::random().map_err(Refusal::system)?;
        self.next_program += 1;
        self.by_name.insert(name.to_owned(), id);
        self.known_as.entry(id).or_default().insert((id, QueueName::default()));
        let program = Program {
            name: name.to_owned(),
            key,
            is_owned: true,
            pid,
            since: SystemTime::now(),
            slot: Slot::Empty,
            names: vec![id],
            known: HashMap::new(),
            excluded: HashSet::new(),
            is_closed: false,
        };
        self.programs.insert(id, program);
        Ok((id, key))
    }

    /// Ends the ownership of a program. Returns true if the program has been removed.
    pub(super) fn release(&mut self, id: ProgramId) -> bool {
        if let Some(program) = self.programs.get_mut(&id) {
            program.is_owned = false;
        }
        self.remove_if_unused(id)
    }

    /// Removes a program without owner and process. Returns true if it has been removed.
    fn remove_if_unused(&mut self, id: ProgramId) -> bool {
        let is_unused = |program: &Program| !program.is_owned && program.process().is_none();
        if !self.programs.get(&id).is_some_and(is_unused) {
            return false;
        }
        let Some(program) = self.programs.remove(&id) else { return false };
        // Also the names that other programs have given to it.
        self.by_name.retain(|_, named| *named != id);
        for (meaning, number) in program.names.into_iter().zip(0..NAMES) {
            self.forget_name(meaning, id, QueueName::from_bits(number.into()));
        }
        self.outdate(id);
        self.settle();
        true
    }

    /// Returns true if a process has opened a program.
    pub(super) fn has_processes(&self) -> bool {
        !self.opened.is_empty()
    }

    pub(super) fn by_name(&self, name: &str) -> Option<ProgramId> {
        self.by_name.get(name).copied()
    }

    pub(super) fn program(&self, id: ProgramId) -> Option<&Program> {
        self.programs.get(&id)
    }

    /// Returns the program that a client has opened.
    pub(super) fn opened_by(&self, client: ClientId) -> Option<ProgramId> {
        self.opened.get(&client).copied()
    }

    /// Returns the process that has a program open.
    pub(super) fn process(&self, id: ProgramId) -> Option<&Process> {
        self.programs.get(&id)?.process()
    }

    /// Returns the first published name after this one, and its program.
    pub(super) fn published_after(&self, name: &str) -> Option<(&str, ProgramId, &Program)> {
        let later = self.by_name.range::<str, _>((Bound::Excluded(name), Bound::Unbounded));
        let mut public = later.filter(|(name, _)| !name.starts_with(PRIVATE));
        public.find_map(|(name, id)| Some((name.as_str(), *id, self.programs.get(id)?)))
    }

    /// Returns the published names.
    pub(super) fn published(&self) -> Vec<String> {
        self.by_name.keys().filter(|name| !name.starts_with(PRIVATE)).cloned().collect()
    }

    /// Opens a program for a process.
    pub(super) fn open(
        &mut self,
        client: ClientId,
        name: &str,
        key: ProgramKey,
        (pid, started): (u32, StartTime),
    ) -> Result<ProgramId, Refusal> {
        let id = self.by_name(name).ok_or(Refusal::UnknownProgram)?;
        let program = self.programs.get_mut(&id).ok_or(Refusal::UnknownProgram)?;
        if program.key != key {
            return Err(Refusal::WrongKey);
        }
        // The former process may have ended, with its exit not observed yet. Its successor retries.
        if let Some(other) = program.process() {
            return Err(Refusal::Taken { pid: other.pid });
        }
        let table = TableWriter::create(NAMES).map_err(Refusal::system)?;
        program.slot = Slot::Open(Process { client, pid, started, table });
        let names = program.names.len() as u16;
        self.opened.insert(client, id);
        self.outdate(id);
        // The own table is still empty.
        self.stale.extend((0..names).map(|number| (id, QueueName::from_bits(number.into()))));
        self.settle();
        Ok(id)
    }

    /// Removes a process that has ended. Returns its program, and whether that has been removed.
    pub(super) fn leave(&mut self, client: ClientId) -> Option<(ProgramId, bool)> {
        let id = self.opened.remove(&client)?;
        // The slot is marked before the tables are written: they report an end, where an empty slot
        // would mean that the process has yet to start.
        if let Some(program) = self.programs.get_mut(&id) {
            program.slot = Slot::Left;
        }
        self.outdate(id);
        self.settle();
        Some((id, self.remove_if_unused(id)))
    }

    /// Excludes the process of a name of a program from sending to it, or ends that.
    pub(super) fn exclude(
        &mut self,
        id: ProgramId,
        name: QueueName,
        is_excluded: bool,
    ) -> Result<(), Refusal> {
        let other = self.meaning(id, name).ok_or(Refusal::UnknownName)?;
        let sender = self.programs.get(&other).ok_or(Refusal::ProcessGone)?.as_excluded(other);
        let program = self.programs.get_mut(&id).ok_or(Refusal::NotUnderstood)?;
        match is_excluded {
            true => program.excluded.insert(sender),
            false => program.excluded.remove(&sender),
        };
        self.outdate(id);
        self.settle();
        Ok(())
    }

    /// Returns true if a program excludes another one from sending to it.
    pub(super) fn excludes(&self, id: ProgramId, from: ProgramId) -> bool {
        let (Some(program), Some(sender)) = (self.programs.get(&id), self.programs.get(&from))
        else {
            return false;
        };
        !program.excluded.is_empty() && program.excluded.contains(&sender.as_excluded(from))
    }

    /// Closes a program: it receives nothing any more.
    pub(super) fn close(&mut self, id: ProgramId) {
        if let Some(program) = self.programs.get_mut(&id) {
            program.is_closed = true;
        }
    }

    /// Gives the published names of a program to another one, and re-points what all other programs
    /// have for the first one.
    pub(super) fn move_names(&mut self, from: ProgramId, to: &str) -> Result<(), Refusal> {
        let invalid = |why: &str| Err(Refusal::Invalid { why: why.to_owned() });
        let to = self.by_name(to).ok_or(Refusal::UnknownProgram)?;
        if to == from {
            return invalid("a name moves to another program");
        }
        if self.programs.get(&from).is_none_or(|program| program.name.starts_with(PRIVATE)) {
            return invalid("this program has no published name");
        }
        if self.process(to).is_none() {
            return invalid("the other program has not been opened");
        }
        let Some(program) = self.programs.get_mut(&from) else {
            return Err(Refusal::NotUnderstood);
        };
        program.name = format!("{PRIVATE}moved#{from}");
        let private = program.name.clone();
        self.by_name.values_mut().filter(|id| **id == from).for_each(|id| *id = to);
        self.by_name.insert(private, from);
        self.repoint(from, to);
        Ok(())
    }
}
