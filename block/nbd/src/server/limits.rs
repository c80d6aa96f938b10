//! Limits for clients.

use thermo_units::{Bytes, Nanos};

/// Limits for clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of clients. Further clients are disconnected. The last eighth is only for peers without
    /// another connection.
    pub connections: usize,
    /// Maximum number of clients from one IP address, or of one user at Unix sockets. Further clients are
    /// disconnected.
    pub connections_per_peer: usize,
    /// Maximum size of the unsent replies of one client, in bytes. At that size, no further requests are
    /// read. In addition, each worker may hold one chunk.
    pub client_bytes: Bytes,
    /// A client that stops in the middle of a request, or does not receive its reply, is disconnected after
    /// this time, and so is a client whose handshake lasts as long. Fewer than 16 KiB in this time count as a
    /// stop.
    pub stall_timeout: Nanos,
    /// Serve virtual machines whose memory may shrink. One that shrinks its memory then ends the server.
    pub allow_unsealed_memory: bool,
    /// Threads that serve clients. A thread that waits for storage serves no other client.
    pub workers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            connections: 1024,
            connections_per_peer: 512,
            client_bytes: Bytes::mib(4),
            stall_timeout: Nanos::secs(30),
            allow_unsealed_memory: false,
            workers: (2 * cpus).clamp(4, 16),
        }
    }
}

impl Limits {
    /// Whether another client is accepted while `connected` are, `of_peer` of them from the same peer.
    pub(super) fn admit(&self, connected: usize, of_peer: usize) -> bool {
        let reserved = if of_peer == 0 {
            0
        } else {
            self.connections.div_ceil(8)
        };
        connected < self.connections - reserved && of_peer < self.connections_per_peer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_connections_are_for_new_peers() {
        let limits = Limits {
            connections: 16,
            connections_per_peer: 16,
            ..Limits::default()
        };
        assert!(limits.admit(13, 13) && !limits.admit(14, 14));
        assert!(limits.admit(15, 0) && !limits.admit(16, 0));
        let single = Limits {
            connections: 1,
            ..limits
        };
        assert!(single.admit(0, 0) && !single.admit(1, 0) && !single.admit(1, 1));
    }
}
