//! Operations of the owner of a name server: jobs, rights, and destinations of names.

use super::connections::{Connections, LogicalConnection};
use super::records::{JobId, PortId};
use queues::id::QueueName;
use queues::names::wire::{CloseReason, Notification};
use queues::names::{JobConfig, JobKey, NameError, PortAddress};

impl Connections {
    pub(super) fn add_job(&mut self, plan: JobConfig) -> Result<JobKey, NameError> {
        self.directory.add_job(plan)
    }

    fn job(&self, name: &str) -> Result<JobId, NameError> {
        self.directory.job(name).ok_or_else(|| NameError::UnknownJob { name: name.to_owned() })
    }

    pub(super) fn set_right(&mut self, from: &str, to: &str, may: bool) -> Result<(), NameError> {
        let from = self.job(from)?;
        let to = self.job(to)?;
        self.directory.set_right(from, to, may);
        if !may {
            self.close_where(CloseReason::Revoked, |connection, _| {
                (connection.route.from.job, connection.to.job) == (from, to)
            });
        }
        Ok(())
    }

    pub(super) fn revoke(&mut self, job: &str, name: QueueName) -> Result<(), NameError> {
        let number = self.job(job)?;
        if self.directory.meaning(number, name).is_none() {
            return Err(NameError::UnknownName { job: job.to_owned(), name });
        }
        self.directory.revoke(number, name);
        self.close_where(CloseReason::Revoked, |connection, _| {
            connection.route.from.job == number && connection.route.name == name
        });
        Ok(())
    }

    /// Re-points every name of one port to another port of the same job.
    pub(super) fn move_port(
        &mut self,
        from: &PortAddress,
        to: &PortAddress,
    ) -> Result<(), NameError> {
        let place = |address: &PortAddress| {
            let wrong = |why| NameError::Address { address: address.clone(), why };
            self.directory.place(address).map_err(|_| wrong("does not exist"))
        };
        let from_place = place(from)?;
        let to_place = place(to)?;
        if from_place.job != to_place.job {
            let why = "is of another job: a port moves within its job";
            return Err(NameError::Address { address: to.clone(), why });
        }
        if self.directory.owner(to_place).is_none() {
            return Err(NameError::Address { address: to.clone(), why: "is not open" });
        }
        for (job, name) in self.directory.names_of(from_place) {
            self.repoint_name(job, name, to_place);
        }
        Ok(())
    }

    /// Re-points one name of a job to another port. Its connections move if the port is of the same
    /// job as before.
    pub(super) fn repoint(
        &mut self,
        job: &str,
        name: QueueName,
        to: &PortAddress,
    ) -> Result<(), NameError> {
        let number = self.job(job)?;
        let wrong = |why| NameError::Address { address: to.clone(), why };
        let place = self.directory.place(to).map_err(|_| wrong("does not exist"))?;
        if self.directory.meaning(number, name).is_none() {
            return Err(NameError::UnknownName { job: job.to_owned(), name });
        }
        if self.directory.may_send(number, place.job) != Some(true) {
            return Err(wrong("is one to which the job may not send"));
        }
        self.repoint_name(number, name, place);
        Ok(())
    }

    fn repoint_name(&mut self, job: JobId, name: QueueName, to: PortId) {
        self.directory.repoint(job, name, to);
        let is_concerned = |connection: &LogicalConnection| {
            connection.route.from.job == job && connection.route.name == name && connection.to != to
        };
        if self.directory.owner(to).is_none() {
            return self
                .close_where(CloseReason::Revoked, |connection, _| is_concerned(connection));
        }
        self.close_where(CloseReason::Revoked, |connection, _| {
            is_concerned(connection) && connection.to.job != to.job
        });
        let mut moving = Vec::new();
        // Connections through receive queues stay: their senders find the change in their tables.
        for (&number, connection) in self
            .connections
            .iter_mut()
            .filter(|(_, connection)| connection.has_ring() && is_concerned(connection))
        {
            connection.moving = Some(to);
            moving.push((number, connection.receiver));
        }
        for (connection, receiver) in moving {
            self.notify(receiver, Notification::MoveConnection { connection }, None, Vec::new());
        }
    }
}
