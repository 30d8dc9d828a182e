//! Names of ports, and the entries of destination tables that follow from them.

use super::Directory;
use crate::names::records::{JobId, PortId, ProcessSlot};
use queues::id::{NAMES, QueueName};
use queues::names::{NameState, Refusal};

impl Directory {
    /// Returns the meaning of a name.
    pub(in crate::names) fn meaning(&self, job: JobId, name: QueueName) -> Option<PortId> {
        self.jobs.get(&job)?.names.get(usize::from(name.number())).copied()
    }

    /// Returns all names of a port.
    pub(in crate::names) fn names_of(&self, place: PortId) -> Vec<(JobId, QueueName)> {
        self.known_as.get(&place).into_iter().flatten().copied().collect()
    }

    /// Returns the name that a job has for a port of a job to which it may send.
    pub(in crate::names) fn look_up(
        &mut self,
        job: JobId,
        place: PortId,
    ) -> Result<QueueName, Refusal> {
        if self.may_send(job, place.job) != Some(true) {
            return Err(Refusal::NoRight);
        }
        let name = self.name(job, place)?;
        self.settle();
        Ok(name)
    }

    /// Returns the name that a job has for a port; assigns one if it has none.
    pub(in crate::names) fn name(
        &mut self,
        job: JobId,
        place: PortId,
    ) -> Result<QueueName, Refusal> {
        let record = self.jobs.get_mut(&job).ok_or(Refusal::UnknownJob)?;
        if place.job == job {
            let number = place.process * u32::from(record.plan.ports) + u32::from(place.port);
            return Ok(QueueName::from_bits(number.into()));
        }
        if let Some(name) = record.foreign.get(&place) {
            return Ok(*name);
        }
        let name = if record.names.len() < usize::from(record.plan.names) {
            record.names.push(place);
            QueueName::from_bits(record.names.len() as u64 - 1)
        } else {
            self.take_over_name(job, place)?
        };
        if let Some(record) = self.jobs.get_mut(&job) {
            record.foreign.insert(place, name);
        }
        self.known_as.entry(place).or_default().insert((job, name));
        self.stale.insert((job, name));
        Ok(name)
    }

    /// Assigns to a port the name of a port of an ended job, when all names of `job` are in use.
    ///
    /// Of several such names, the one of the job that was added first is taken, so that a process
    /// that still uses the former meaning of a name has the longest time to observe its end.
    fn take_over_name(&mut self, job: JobId, place: PortId) -> Result<QueueName, Refusal> {
        let record = self.jobs.get(&job).ok_or(Refusal::UnknownJob)?;
        let names = record.names.iter().zip(0..NAMES);
        let ended = names.filter_map(|(place, number)| {
            let name = QueueName::from_bits(number.into());
            let is_free = !self.jobs.contains_key(&place.job) && !record.revoked.contains(&name);
            is_free.then_some((*place, name))
        });
        let (former, name) = ended.min_by_key(|(place, _)| place.job).ok_or(Refusal::TableFull)?;
        self.forget_name(former, job, name);
        let record = self.jobs.get_mut(&job).ok_or(Refusal::UnknownJob)?;
        record.foreign.remove(&former);
        if let Some(meaning) = record.names.get_mut(usize::from(name.number())) {
            *meaning = place;
        }
        Ok(name)
    }

    /// Revokes a name of a job.
    pub(in crate::names) fn revoke(&mut self, job: JobId, name: QueueName) {
        if let Some(record) = self.jobs.get_mut(&job) {
            record.revoked.insert(name);
        }
        self.stale.insert((job, name));
        self.settle();
    }

    /// Re-points a name to another port.
    pub(in crate::names) fn repoint(&mut self, job: JobId, name: QueueName, to: PortId) {
        // Names of the old and the new port change together with the meaning, so `known_as` always
        // lists the names of a port.
        let names = self.jobs.get_mut(&job).map(|record| &mut record.names);
        let Some(meaning) = names.and_then(|names| names.get_mut(usize::from(name.number())))
        else {
            return;
        };
        let before = std::mem::replace(meaning, to);
        self.forget_name(before, job, name);
        self.known_as.entry(to).or_default().insert((job, name));
        self.stale.insert((job, name));
        self.settle();
    }

    /// Removes a name from those of a port.
    pub(super) fn forget_name(&mut self, place: PortId, job: JobId, name: QueueName) {
        if let Some(known_as) = self.known_as.get_mut(&place) {
            known_as.remove(&(job, name));
            if known_as.is_empty() {
                self.known_as.remove(&place);
            }
        }
    }

    pub(super) fn outdate_place(&mut self, place: PortId) {
        if let Some(names) = self.known_as.get(&place) {
            self.stale.extend(names);
        }
    }

    /// Writes the stale entries. Writing one may assign a name to the sender in the receiver's job,
    /// which makes further entries stale. That terminates, because every port gets one name in each
    /// job.
    pub(super) fn settle(&mut self) {
        // An entry is computed from the current state when it is written, so an entry that becomes
        // stale twice is written with the last state at least once.
        while let Some((job, name)) = self.stale.pop_first() {
            for from in self.open_ports(job) {
                self.write_entry(from, name);
            }
        }
    }

    fn open_ports(&self, job: JobId) -> Vec<PortId> {
        let slots = self.jobs.get(&job).into_iter().flat_map(|record| record.slots.iter().zip(0..));
        let members = slots.filter_map(|(slot, process)| match slot {
            ProcessSlot::Taken(member) => self.members.get(member).map(|member| (process, member)),
            _ => None,
        });
        members
            .flat_map(|(process, member)| {
                member.ports.keys().map(move |&port| PortId { job, process, port })
            })
            .collect()
    }

    pub(super) fn write_entry(&mut self, from: PortId, name: QueueName) {
        // A sender needs a name in the receiver's job. If the names of that job are used up, it
        // cannot send there.
        let name_state = self.name_state(from, name).unwrap_or(NameState::Unknown);
        if let Some((_, open)) = self.owner(from) {
            // Cannot fail: the table has an entry for every name.
            let _ = open.table.set(name, name_state);
        }
    }

    /// Returns the state of a name for a transmit queue's table.
    pub(in crate::names) fn name_state(
        &mut self,
        from: PortId,
        name: QueueName,
    ) -> Result<NameState, Refusal> {
        // A revocation outlives the port and its process: it is checked first.
        let Some(to) = self.meaning(from.job, name) else { return Ok(NameState::Unknown) };
        if self.jobs.get(&from.job).is_some_and(|record| record.revoked.contains(&name)) {
            return Ok(NameState::Revoked);
        }
        match self.may_send(from.job, to.job) {
            None if self.jobs.contains_key(&to.job) => return Ok(NameState::Unknown),
            Some(false) => return Ok(NameState::Revoked),
            None | Some(true) => {}
        }
        let Some((_, open)) = self.owner(to) else {
            // Names for the ports of a job that has been removed report the end, also those of ports
            // that were never open.
            let record = self.jobs.get(&to.job);
            let slot = record.and_then(|record| record.slots.get(to.process as usize));
            return Ok(match slot {
                None | Some(ProcessSlot::Left) => NameState::Gone,
                Some(_) => NameState::Unknown,
            });
        };
        let node = self.node;
        let queue = open.queue;
        let source = self.name(to.job, from)?.into();
        Ok(NameState::Open { node, queue, source })
    }
}
