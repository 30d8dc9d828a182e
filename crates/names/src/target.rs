//! Names that programs publish, and the targets that a program connects to.

use crate::peer_error::PeerError;
use std::fmt;

/// Longest published name in bytes.
const MAX_NAME: usize = 64;

/// Longest host of a target in bytes: with a port, it fits into a request to the name server.
const MAX_HOST: usize = 180;

/// Destination of a connect: `solver` on this node, `solver@host` or `solver@host:port` on
/// another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) node: Option<RemoteNode>,
}

/// Another node, as the program has named it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RemoteNode {
    pub(crate) host: String,
    /// Port of its name server; `None` for the default one.
    pub(crate) port: Option<u16>,
}

impl Target {
    /// Parses a target.
    pub(crate) fn parse(text: &str) -> Result<Target, PeerError> {
        let Some((name, node)) = text.split_once('@') else {
            return Ok(Target { name: check_name(text)?.to_owned(), node: None });
        };
        let name = check_name(name)?.to_owned();
        let invalid = |why| PeerError::InvalidName { name: text.to_owned(), why };
        // The colons of an IPv6 address are inside brackets.
        let (host, port) = match node.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port),
            None => node.split_at(node.find(':').unwrap_or(node.len())),
        };
        let port = match port.strip_prefix(':') {
            Some(port) => Some(port.parse().map_err(|_| invalid("the port is no number"))?),
            None if port.is_empty() => None,
            None => return Err(invalid("only a colon and a port may follow the host")),
        };
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:%".contains(&byte);
        if host.is_empty() || host.len() > MAX_HOST || !host.bytes().all(is_host) {
            return Err(invalid(
                "a host name or an address of at most 180 characters must follow the @",
            ));
        }
        // A name of an interface is not resolved.
        let scope = host.split_once('%').map(|(_, scope)| scope);
        if scope.is_some_and(|scope| scope.parse::<u32>().is_err()) {
            return Err(invalid(
                "behind the % of an address follows the number of an interface, which `ip link` shows",
            ));
        }
        Ok(Target { name, node: Some(RemoteNode { host: host.to_owned(), port }) })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)?;
        self.node.as_ref().map_or(Ok(()), |node| write!(formatter, "@{node}"))
    }
}

impl fmt::Display for RemoteNode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.host.contains(':'), self.port) {
            (true, Some(port)) => write!(formatter, "[{}]:{port}", self.host),
            (true, None) => write!(formatter, "[{}]", self.host),
            (false, Some(port)) => write!(formatter, "{}:{port}", self.host),
            (false, None) => formatter.write_str(&self.host),
        }
    }
}

/// Checks a name that a program publishes.
pub(crate) fn check_name(name: &str) -> Result<&str, PeerError> {
    let invalid = |why| Err(PeerError::InvalidName { name: name.to_owned(), why });
    if name.is_empty() || name.len() > MAX_NAME {
        return invalid("a name has 1 to 64 characters");
    }
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if !name.bytes().all(is_allowed) {
        return invalid("a name consists of letters, digits, dots, dashes and underscores");
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_parsed_and_shown() {
        for text in [
            "solver",
            "solver@node1",
            "a.b-c_9@node1.example:7411",
            "s@10.0.0.1:1",
            "s@[fd54::1]",
            "s@[fe80::1%2]:7411",
        ] {
            assert_eq!(Target::parse(text).expect(text).to_string(), text);
        }
        let node = Target::parse("s@[fd54::1]:7411").expect("valid").node.expect("a node");
        let scoped = "[fe80::1%2]:7411".parse::<std::net::SocketAddrV6>();
        assert_eq!(scoped.expect("the library resolves numbers").scope_id(), 2);
        assert_eq!(node, RemoteNode { host: "fd54::1".to_owned(), port: Some(7411) });
    }

    #[test]
    fn odd_names_and_targets_are_errors_that_quote_them() {
        let long = "x".repeat(MAX_NAME + 1);
        let hosts = [
            "s@",
            "s@:1",
            "s@h:",
            "s@h:x",
            "s@h:70000",
            "s@[::1]x",
            "s@a b",
            "s@h/1",
            "s@[fe80::1%eth0]",
        ];
        let names = ["", "a b", "ä", "a:b", "a/b", "a\0", "a\n", &long, "@host", "a@b@c"];
        for text in hosts.into_iter().chain(names) {
            let error = Target::parse(text).expect_err(text).to_string();
            assert!(error.contains(&format!("{text:?}")) || text.contains('@'), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }
}
