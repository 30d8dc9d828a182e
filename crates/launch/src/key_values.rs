//! The space of keys and values through which the ranks of a job exchange their addresses.

use crate::error::LaunchError;
use crate::pmi;
use crate::pmix;
use crate::secret::Secret;
use crate::store;
use std::io::{Read, Write};

/// A space of keys and values that all ranks of a job share.
pub trait KeyValueSpace: Send {
    /// Publishes a value under a key that no other rank uses.
    ///
    /// # Errors
    /// If the process manager fails.
    fn put(&mut self, key: &str, value: &str) -> Result<(), LaunchError>;

    /// Waits until all ranks have called it. The values from before are visible to all then.
    ///
    /// # Errors
    /// If the process manager fails.
    fn fence(&mut self) -> Result<(), LaunchError>;

    /// Looks up a value that `rank` has put before the last fence.
    ///
    /// # Errors
    /// If the process manager fails.
    fn get(&mut self, key: &str, rank: u32) -> Result<Option<String>, LaunchError>;

    /// Length of the longest value.
    fn longest_value(&self) -> usize;

    /// Returns the secret that all ranks have without having published one, if there is one.
    fn secret(&self) -> Option<Secret> {
        None
    }

    /// Ends the exchange of this rank in order. A rank that ends without it has failed, for some
    /// process managers.
    ///
    /// # Errors
    /// If the process manager fails.
    fn finish(self: Box<Self>) -> Result<(), LaunchError>;
}

impl<S: Read + Write + Send> KeyValueSpace for pmi::Client<S> {
    fn put(&mut self, key: &str, value: &str) -> Result<(), LaunchError> {
        Ok(pmi::Client::put(self, key, value)?)
    }

    fn fence(&mut self) -> Result<(), LaunchError> {
        Ok(pmi::Client::fence(self)?)
    }

    fn get(&mut self, key: &str, _: u32) -> Result<Option<String>, LaunchError> {
        Ok(pmi::Client::get(self, key)?)
    }

    fn longest_value(&self) -> usize {
        pmi::LONGEST_VALUE
    }

    fn finish(self: Box<Self>) -> Result<(), LaunchError> {
        Ok(pmi::Client::finalize(*self)?)
    }
}

impl KeyValueSpace for pmix::Client {
    fn put(&mut self, key: &str, value: &str) -> Result<(), LaunchError> {
        Ok(pmix::Client::put(self, key, value)?)
    }

    fn fence(&mut self) -> Result<(), LaunchError> {
        Ok(pmix::Client::fence(self)?)
    }

    fn get(&mut self, key: &str, rank: u32) -> Result<Option<String>, LaunchError> {
        Ok(pmix::Client::get(self, key, rank)?)
    }

    fn longest_value(&self) -> usize {
        pmix::LONGEST_VALUE
    }

    fn finish(self: Box<Self>) -> Result<(), LaunchError> {
        Ok(pmix::Client::finalize(*self)?)
    }
}

/// A rank's connection with the key-value space over TCP. In rank 0 the process is also the server.
pub(crate) struct StoreSpace {
    // Dropped first: the server reports the end of this rank to the others.
    pub(crate) client: store::Client,
    pub(crate) server: Option<store::Server>,
}

impl KeyValueSpace for StoreSpace {
    fn put(&mut self, key: &str, value: &str) -> Result<(), LaunchError> {
        self.client.put(key, value);
        Ok(())
    }

    fn fence(&mut self) -> Result<(), LaunchError> {
        Ok(self.client.fence()?)
    }

    fn get(&mut self, key: &str, _: u32) -> Result<Option<String>, LaunchError> {
        Ok(self.client.get(key))
    }

    fn longest_value(&self) -> usize {
        store::LONGEST_VALUE
    }

    fn secret(&self) -> Option<Secret> {
        Some(self.client.secret())
    }

    fn finish(self: Box<Self>) -> Result<(), LaunchError> {
        let StoreSpace { client, server } = *self;
        client.finish()?;
        // Rank 0 must not exit before the others have received their values.
        server.into_iter().for_each(store::Server::finish);
        Ok(())
    }
}
