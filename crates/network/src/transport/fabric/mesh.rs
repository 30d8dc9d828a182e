//! Connections with nodes and their losses, which the mesh reports.

use super::link::Link;
use super::{DESCRIPTOR, Fabric, GRACE};
use crate::transport::payloads::Payloads;
use crate::transport::{Arrival, Transport};
use std::time::Instant;

impl Fabric {
    /// Reads and sends what has waited for the connection with a node.
    fn resume(&mut self, node: u32, payloads: &mut dyn Payloads, arrivals: &mut Vec<Arrival>) {
        let Some(link) = self.open_link(node) else { return };
        match link.read_early(node, payloads, arrivals) {
            Ok(requests) => {
                for request in requests {
                    self.process(node, request, payloads);
                }
                self.write(node, payloads);
            }
            Err(why) => {
                self.refused += 1;
                self.lose(node, why, payloads);
            }
        }
    }

    /// Processes what has arrived over the mesh.
    pub(super) fn take_mesh_arrivals(
        &mut self,
        payloads: &mut dyn Payloads,
        arrivals: &mut Vec<Arrival>,
    ) {
        for arrival in std::mem::take(&mut self.arrived) {
            match arrival {
                Arrival::Notified(DESCRIPTOR) => {}
                Arrival::NodeLost { node, why } => {
                    // What the node has sent before it ended comes first.
                    while self.progress(payloads, arrivals) {}
                    if self.open_link(node).is_some_and(|link| link.has_injected()) {
                        self.explained_until = Some(Instant::now() + self.unanswered);
                        self.links.iter_mut().flatten().for_each(Link::clear_suspicion);
                    }
                    self.close(node, payloads);
                    self.lost.retain(|(other, _)| *other != node);
                    arrivals.push(Arrival::NodeLost { node, why });
                }
                Arrival::Connected { node } => {
                    arrivals.push(Arrival::Connected { node });
                    self.resume(node, payloads, arrivals);
                }
                // Frames do not come over the mesh.
                Arrival::Frame { .. } | Arrival::InPlace { .. } | Arrival::Unreadable { .. } => {
                    self.refused += 1;
                }
                notified @ Arrival::Notified(_) => arrivals.push(notified),
            }
        }
    }

    /// Ends the connection with a node.
    pub(super) fn lose(&mut self, node: u32, why: String, payloads: &mut dyn Payloads) {
        if self.links[node as usize].is_some() {
            self.close(node, payloads);
            // The end of the mesh's connection reports it to the other node.
            self.mesh.disconnect(node);
            self.mesh.abandon(node);
            let provider = &self.endpoint.provider().name;
            // Reported by the next `wait`: the caller may be in the middle of its sends.
            self.lost.push((node, format!("libfabric's provider {provider}: {why}")));
        }
    }

    pub(super) fn close(&mut self, node: u32, payloads: &mut dyn Payloads) {
        if let Some(mut link) = self.links[node as usize].take() {
            let locations = link.close(&mut self.registered, &mut self.endpoint);
            locations.into_iter().for_each(|location| payloads.sent(location));
            self.reads.lose(node);
        }
    }

    /// Notes that an injected message could not be delivered. The loss of a node that the mesh has
    /// reported, or soon reports, explains it; otherwise it may belong to any link, and leave a gap in
    /// its stream.
    pub(super) fn suspect(&mut self, why: &str) {
        let is_explained = self.explained_until.is_some_and(|end| Instant::now() < end);
        if !is_explained {
            self.links.iter_mut().flatten().for_each(|link| link.suspect(why, GRACE));
        }
    }
}
