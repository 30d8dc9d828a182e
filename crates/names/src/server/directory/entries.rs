//! Names of programs, and the entries of destination tables that follow from them.

use super::{Directory, NAMES};
use crate::server::records::{ProgramId, Slot};
use crate::table::NameState;
use crate::wire::Refusal;
use queues::id::QueueName;

impl Directory {
    /// Returns the meaning of a name.
    pub(in crate::server) fn meaning(&self, id: ProgramId, name: QueueName) -> Option<ProgramId> {
        self.programs.get(&id)?.names.get(usize::from(name.number())).copied()
    }

    /// Returns the name that a program has for another one, unless that excludes it.
    pub(in crate::server) fn look_up(
        &mut self,
        id: ProgramId,
        other: ProgramId,
    ) -> Result<QueueName, Refusal> {
        if self.excludes(other, id) {
            return Err(Refusal::Excluded);
        }
        let name = self.name(id, other)?;
        self.settle();
        Ok(name)
    }

    /// Returns the name that a program has for another one; assigns one if it has none.
    fn name(&mut self, id: ProgramId, other: ProgramId) -> Result<QueueName, Refusal> {
        let program = self.programs.get_mut(&id).ok_or(Refusal::UnknownProgram)?;
        if other == id {
            return Ok(QueueName::default());
        }
        if let Some(name) = program.known.get(&other) {
            return Ok(*name);
        }
        let name = if program.names.len() < usize::from(NAMES) {
            program.names.push(other);
            QueueName::from_bits(program.names.len() as u64 - 1)
        } else {
            self.take_over_name(id, other)?
        };
        if let Some(program) = self.programs.get_mut(&id) {
            program.known.insert(other, name);
        }
        self.known_as.entry(other).or_default().insert((id, name));
        self.stale.insert((id, name));
        Ok(name)
    }

    /// Assigns the name of an ended program to another one, when all names of `id` are in use.
    ///
    /// Of several such names, the one of the program that was added first is taken, so that a
    /// process that still uses the former meaning has the longest time to observe its end.
    fn take_over_name(&mut self, id: ProgramId, other: ProgramId) -> Result<QueueName, Refusal> {
        let program = self.programs.get(&id).ok_or(Refusal::UnknownProgram)?;
        let ended = program.names.iter().zip(0..NAMES);
        let ended = ended.filter(|(meaning, _)| !self.programs.contains_key(meaning));
        let (former, number) = ended.min().ok_or(Refusal::TableFull)?;
        let former = *former;
        let name = QueueName::from_bits(number.into());
        self.forget_name(former, id, name);
        let program = self.programs.get_mut(&id).ok_or(Refusal::UnknownProgram)?;
        program.known.remove(&former);
        program.names[usize::from(number)] = other;
        Ok(name)
    }

    /// Re-points the names that other programs have for one program to another.
    pub(super) fn repoint(&mut self, from: ProgramId, to: ProgramId) {
        // Neither program's own name changes, nor what the new one has for the old one.
        let is_other = |(id, _): &(ProgramId, QueueName)| *id != from && *id != to;
        let known_as = self.known_as.entry(from).or_default();
        let moved: Vec<_> = known_as.extract_if(.., is_other).collect();
        for (id, name) in moved {
            let Some(program) = self.programs.get_mut(&id) else { continue };
            program.names[usize::from(name.number())] = to;
            program.known.remove(&from);
            program.known.entry(to).or_insert(name);
            self.known_as.entry(to).or_default().insert((id, name));
            self.write_entry(id, name, true);
        }
        self.settle();
    }

    /// Removes a name from those of a program.
    pub(super) fn forget_name(&mut self, meaning: ProgramId, id: ProgramId, name: QueueName) {
        if let Some(known_as) = self.known_as.get_mut(&meaning) {
            known_as.remove(&(id, name));
            if known_as.is_empty() {
                self.known_as.remove(&meaning);
            }
        }
    }

    /// Marks the entries that lead to a program.
    pub(super) fn outdate(&mut self, id: ProgramId) {
        if let Some(names) = self.known_as.get(&id) {
            self.stale.extend(names);
        }
    }

    /// Writes the stale entries. Writing one may assign a name to the sender in the receiver's
    /// table, which makes further entries stale. That terminates, because every program gets one
    /// name in each table.
    pub(super) fn settle(&mut self) {
        // An entry is computed from the current state when it is written, so an entry that becomes
        // stale twice is written with the last state at least once.
        while let Some((id, name)) = self.stale.pop_first() {
            self.write_entry(id, name, false);
        }
    }

    fn write_entry(&mut self, id: ProgramId, name: QueueName, is_moved: bool) {
        if self.process(id).is_none() {
            return;
        }
        // A sender needs a name in the receiver's table. If the names there are used up, it cannot
        // send there.
        let state = self.name_state(id, name).unwrap_or(NameState::Unknown);
        if let Some(process) = self.process(id) {
            process.table.set(name, state, is_moved);
        }
    }

    /// Returns the state of a name for a program's table.
    pub(in crate::server) fn name_state(
        &mut self,
        id: ProgramId,
        name: QueueName,
    ) -> Result<NameState, Refusal> {
        let Some(other) = self.meaning(id, name) else { return Ok(NameState::Unknown) };
        if self.excludes(other, id) {
            return Ok(NameState::Excluded);
        }
        // Names of a program that has been removed report the end, also if it was never opened.
        match self.programs.get(&other).map(|program| &program.slot) {
            None | Some(Slot::Left) => Ok(NameState::Gone),
            Some(Slot::Empty) => Ok(NameState::Unknown),
            Some(Slot::Open(_)) => Ok(NameState::Open(self.name(other, id)?.into())),
        }
    }
}
