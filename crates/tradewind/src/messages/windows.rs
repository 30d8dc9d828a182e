//! Windows of all ranks, on one node or several.

use super::Windows;
use super::internode::Internode;
use super::peer::Peer;
use super::port::AgentPort;
use crate::communicator::Communicator;
use crate::error::{Error, Result};
use engine::signature::{CallKind, Signature};
use network::flows::table::PortTable;
use network::flows::{ANSWERS, COMMANDS};
use queues::channel::Channel;
use queues::window::{
    CAPACITY, RemoteWindow, Served, Window, WindowEnds, WindowError, WindowRoute,
};
use shm::arena::Arena;
use shm::event::Event;
use shm::liveness::PeerExit;
use shm::segment::Offset;
use std::sync::Arc;

/// Name of the created objects in error messages.
const WHAT: &str = "a window";
/// No object, as an offset.
const NONE: Offset = Offset(0);

impl Communicator {
    /// Opens a window of so many bytes of every rank to all others.
    pub(super) fn open_windows(&self, bytes: u64) -> Result<Windows> {
        let call = Signature::new(CallKind::Windows, 0, 0);
        let port = self.next_port();
        let service = port.as_ref().map(Internode::event).transpose();
        let created = service.and_then(|service| {
            let own = Window::create(self.arena(), bytes)?;
            let own = match port.as_ref().zip(service.as_ref()) {
                Some((port, service)) => self.serve(port, own, service)?,
                None => own,
            };
            Ok((own, service))
        });
        let words = match &created {
            Ok((own, _)) => [0, own.offset().0, own.bytes(), std::process::id().into(), 0, 0],
            Err(_) => [1, 0, 0, 0, 0, 0],
        };
        // Once a rank has returned, all windows are open at their agents.
        let all = self.allgather_words(words, call)?;
        let (own, service) = created?;
        if let Some(rank) = all.iter().position(|words| words[0] != 0) {
            return Err(Error::CreationFailed { rank: rank as u32, what: WHAT });
        }
        let connect = |(rank, [_, at, bytes, owner, ..]): (u32, &[u64; 6])| -> Result<_> {
            let peer = port.as_ref().and_then(|port| Peer::on_other_node(port, rank));
            let Some(peer) = peer else {
                let window = RemoteWindow::connect(self.segment(), Offset(*at))?;
                return Ok(match &service {
                    Some(service) => window.beside_node_service(service),
                    None => window,
                });
            };
            let route = Route { peer, arena: Arc::clone(self.arena()) };
            let window = (Offset(*at), *bytes, *owner as u32);
            Ok(RemoteWindow::on_other_node(window, Box::new(route)))
        };
        let opened: Result<Vec<RemoteWindow>> = (0..).zip(&all).map(connect).collect();
        self.opened_by_all(WHAT, call, opened.map(|all| Windows { own, all }))
    }

    /// Opens this rank's window at the agent, for the ranks on other nodes.
    fn serve(&self, port: &Internode<'_>, own: Window, service: &Event) -> Result<Window> {
        let members = port.group.context().members.iter();
        let ranks = members.map(|member| (*member, NONE)).collect();
        let table = PortTable { set: NONE, lines: 0, ranks }.publish(self.arena())?;
        let opened = port.group.job().agent().open_window(port.port, own.offset(), table);
        // Cannot fail: the agent has read it, or has ended.
        let _ = self.arena().free(table);
        opened?;
        Ok(own.served_by(service, Box::new(ServedByAgent(port.agent()))))
    }
}

/// The agent's connection with a window of this rank.
#[derive(Debug)]
struct ServedByAgent(AgentPort);

impl Served for ServedByAgent {}

impl Drop for ServedByAgent {
    fn drop(&mut self) {
        // A rank that has left has no window open any more.
        if let Some(job) = self.0.job.upgrade() {
            job.agent().close_window(self.0.port);
        }
    }
}

/// The way to a window on another node.
#[derive(Debug)]
struct Route {
    peer: Peer,
    arena: Arc<Arena>,
}

impl Route {
    fn ends(&self) -> Result<WindowEnds> {
        let memory = Channel::create(&self.arena, CAPACITY)?;
        let answers = self.peer.with_mark(ANSWERS).receiver(&memory)?;
        let commands = Channel::create(&self.arena, CAPACITY)?;
        let commands = self.peer.with_mark(COMMANDS).sender(commands)?;
        Ok(WindowEnds { commands, answers, memory })
    }
}

impl WindowRoute for Route {
    fn open(&self) -> std::result::Result<WindowEnds, WindowError> {
        let rank = self.peer.rank();
        let ends = self.ends();
        // Only now: an exit before the channels were open is not reported to them.
        match self.peer.exited() {
            Some(PeerExit::NodeServiceEnded) => Err(WindowError::NodeServiceEnded),
            Some(PeerExit::Left(_) | PeerExit::Failed(_)) => Err(WindowError::RankExited { rank }),
            None => ends.map_err(|_| WindowError::NotOpened { rank }),
        }
    }
}
