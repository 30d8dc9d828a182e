//! What the owner of a post office says: which jobs there are, who may send where, and where names
//! lead.

use super::super::directory::{JobNumber, Place};
use super::super::protocol::{Closing, Notice};
use super::super::{Address, JobKey, JobPlan, PostError};
use super::{Lane, Traffic};
use crate::name::QueueName;

impl Traffic {
    pub(in crate::post) fn add_job(&mut self, plan: JobPlan) -> Result<JobKey, PostError> {
        self.directory.add_job(plan)
    }

    fn job(&self, name: &str) -> Result<JobNumber, PostError> {
        self.directory.job(name).ok_or_else(|| PostError::UnknownJob { name: name.to_owned() })
    }

    pub(in crate::post) fn set_right(
        &mut self,
        from: &str,
        to: &str,
        may: bool,
    ) -> Result<(), PostError> {
        let (from, to) = (self.job(from)?, self.job(to)?);
        self.directory.set_right(from, to, may);
        if !may {
            self.close_where(Closing::Revoked, |lane, _| {
                (lane.route.from.job, lane.to.job) == (from, to)
            });
        }
        Ok(())
    }

    pub(in crate::post) fn revoke(&mut self, job: &str, name: QueueName) -> Result<(), PostError> {
        let number = self.job(job)?;
        if self.directory.meaning(number, name).is_none() {
            return Err(PostError::UnknownName { job: job.to_owned(), name });
        }
        self.directory.revoke(number, name);
        self.close_where(Closing::Revoked, |lane, _| {
            lane.route.from.job == number && lane.route.name == name
        });
        Ok(())
    }

    /// Lets every name of one port lead to another port of the same job.
    pub(in crate::post) fn move_port(
        &mut self,
        from: &Address,
        to: &Address,
    ) -> Result<(), PostError> {
        let place = |address: &Address| {
            let wrong = |why| PostError::Address { address: address.clone(), why };
            self.directory.place(address).map_err(|_| wrong("does not exist"))
        };
        let (from_place, to_place) = (place(from)?, place(to)?);
        if from_place.job != to_place.job {
            let why = "is of another job: a port moves within its job";
            return Err(PostError::Address { address: to.clone(), why });
        }
        if self.directory.owner(to_place).is_none() {
            return Err(PostError::Address { address: to.clone(), why: "is not open" });
        }
        for (job, name) in self.directory.names_of(from_place) {
            self.repoint_name(job, name, to_place);
        }
        Ok(())
    }

    /// Lets one name of a job lead to another port. Lanes go there if it is one of the same job as
    /// before.
    pub(in crate::post) fn repoint(
        &mut self,
        job: &str,
        name: QueueName,
        to: &Address,
    ) -> Result<(), PostError> {
        let number = self.job(job)?;
        let wrong = |why| PostError::Address { address: to.clone(), why };
        let place = self.directory.place(to).map_err(|_| wrong("does not exist"))?;
        if self.directory.meaning(number, name).is_none() {
            return Err(PostError::UnknownName { job: job.to_owned(), name });
        }
        if self.directory.may_send(number, place.job) != Some(true) {
            return Err(wrong("is one to which the job may not send"));
        }
        self.repoint_name(number, name, place);
        Ok(())
    }

    fn repoint_name(&mut self, job: JobNumber, name: QueueName, to: Place) {
        self.directory.repoint(job, name, to);
        let is_concerned =
            |lane: &Lane| lane.route.from.job == job && lane.route.name == name && lane.to != to;
        if self.directory.owner(to).is_none() {
            return self.close_where(Closing::Revoked, |lane, _| is_concerned(lane));
        }
        self.close_where(Closing::Revoked, |lane, _| is_concerned(lane) && lane.to.job != to.job);
        let mut moving = Vec::new();
        // Who sends through a hall finds in its table that the name leads elsewhere.
        for (&number, lane) in
            self.lanes.iter_mut().filter(|(_, lane)| lane.has_ring() && is_concerned(lane))
        {
            lane.moving = Some(to);
            moving.push((number, lane.receiver));
        }
        for (lane, receiver) in moving {
            self.notify(receiver, &Notice::MoveLane { lane }, None, Vec::new());
        }
    }
}
