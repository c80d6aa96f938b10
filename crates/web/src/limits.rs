//! How many connections and requests each peer may have.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::auth::Peer;

/// Most connections.
pub(crate) const MAX_CONNECTIONS: usize = 64;
/// Connections that only root may take, so that others cannot lock root out.
const RESERVED_FOR_ROOT: usize = 8;
/// Connections that only users of the UNIX socket may take, so that the network cannot lock them out.
const RESERVED_FOR_SOCKET: usize = 16;
/// Most connections of one user or address.
pub(crate) const MAX_CONNECTIONS_OF_PEER: usize = 8;
/// Most connections over the loopback interface: all users and programs of this machine share them.
pub(crate) const MAX_CONNECTIONS_OF_LOOPBACK: usize = 32;
/// Requests that a peer may make at once after a pause.
pub(crate) const BURST: f64 = 200.0;
/// Requests a second that a peer may make for long.
pub(crate) const REQUESTS_PER_S: f64 = 50.0;
/// Peers without a connection that are remembered: their burst may be used up.
const MAX_REMEMBERED: usize = 1024;

#[derive(Debug)]
struct Usage {
    connections: usize,
    /// Requests that may be made now, as of `updated`.
    tokens: f64,
    updated: Instant,
}

impl Usage {
    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.updated).as_secs_f64();
        self.tokens = (self.tokens + passed * REQUESTS_PER_S).min(BURST);
        self.updated = now;
    }
}

/// The connections and recent requests of all peers.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    usage: Mutex<HashMap<Peer, Usage>>,
}

/// A connection's place. Dropping it makes room for another.
#[derive(Debug)]
pub(crate) struct Slot {
    peers: Arc<Peers>,
    peer: Peer,
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(usage) = self.peers.lock().get_mut(&self.peer) {
            usage.connections -= 1;
        }
    }
}

impl Peers {
    fn lock(&self) -> MutexGuard<'_, HashMap<Peer, Usage>> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection of `peer`; `None` if it, or all together, have too many.
    pub(crate) fn connect(self: &Arc<Self>, peer: Peer, now: Instant) -> Option<Slot> {
        let mut peers = self.lock();
        if !has_place(&peers, peer) {
            return None;
        }
        if peers.len() >= MAX_REMEMBERED {
            forget(&mut peers, now);
        }
        let usage = peers.entry(peer).or_insert(Usage {
            connections: 0,
            tokens: BURST,
            updated: now,
        });
        usage.connections += 1;
        Some(Slot {
            peers: Arc::clone(self),
            peer,
        })
    }

    /// Whether `peer` may make a request now. Root always may.
    pub(crate) fn request(&self, peer: Peer, now: Instant) -> bool {
        let mut peers = self.lock();
        let Some(usage) = peers.get_mut(&peer).filter(|_| !peer.is_root()) else {
            return true;
        };
        usage.refill(now);
        let allowed = usage.tokens >= 1.0;
        usage.tokens -= if allowed { 1.0 } else { 0.0 };
        allowed
    }
}

/// Whether `peer` may have one more connection.
fn has_place(peers: &HashMap<Peer, Usage>, peer: Peer) -> bool {
    let sum = |counts: fn(&Peer) -> bool| -> usize {
        let counted = peers.iter().filter(|(peer, _)| counts(peer));
        counted.map(|(_, usage)| usage.connections).sum()
    };
    let own = peers.get(&peer).map_or(0, |usage| usage.connections);
    let for_others = MAX_CONNECTIONS - RESERVED_FOR_ROOT;
    let all = sum(|_| true);
    let network = sum(|peer| !matches!(peer, Peer::User(_)));
    match peer {
        Peer::User(0) => all < MAX_CONNECTIONS,
        Peer::User(_) => all < for_others && own < MAX_CONNECTIONS_OF_PEER,
        Peer::Loopback | Peer::Address(_) => {
            let most = match peer {
                Peer::Loopback => MAX_CONNECTIONS_OF_LOOPBACK,
                _ => MAX_CONNECTIONS_OF_PEER,
            };
            all < for_others && network < for_others - RESERVED_FOR_SOCKET && own < most
        }
    }
}

/// Forgets peers without a connection whose burst is whole again. If there are none, forgets all without a
/// connection: memory has a bound, at the price of a burst.
fn forget(peers: &mut HashMap<Peer, Usage>, now: Instant) {
    peers.retain(|_, usage| {
        usage.refill(now);
        usage.connections > 0 || usage.tokens < BURST
    });
    if peers.len() >= MAX_REMEMBERED {
        peers.retain(|_, usage| usage.connections > 0);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use std::net::IpAddr;
    use std::time::Duration;

    #[test]
    fn peer_has_limited_connections_and_root_always_has_some() {
        let (peers, now) = (Arc::new(Peers::default()), Instant::now());
        let mut held: Vec<Slot> = Vec::new();
        for uid in 1000..1100 {
            let of_user: Vec<Slot> = std::iter::from_fn(|| peers.connect(Peer::User(uid), now)).collect();
            assert!(of_user.len() <= MAX_CONNECTIONS_OF_PEER);
            held.extend(of_user);
        }
        assert_eq!(held.len(), MAX_CONNECTIONS - RESERVED_FOR_ROOT);
        let of_root: Vec<Slot> = std::iter::from_fn(|| peers.connect(Peer::User(0), now)).collect();
        assert_eq!(of_root.len(), RESERVED_FOR_ROOT);
        drop(held);
        assert!(peers.connect(Peer::User(1000), now).is_some());
    }

    #[test]
    fn requests_are_limited_until_time_passes() {
        let (peers, now) = (Arc::new(Peers::default()), Instant::now());
        let peer = Peer::User(1000);
        let _slot = peers.connect(peer, now).unwrap();
        let made = (0..1000).filter(|_| peers.request(peer, now)).count();
        assert_eq!(made, BURST as usize);
        let later = now + Duration::from_secs(2);
        let made = (0..1000).filter(|_| peers.request(peer, later)).count();
        assert_eq!(made, 2 * REQUESTS_PER_S as usize);
        assert!((0..1000).all(|_| peers.request(Peer::User(0), now)));
    }

    #[test]
    fn remembered_peers_are_bounded() {
        let (peers, now) = (Arc::new(Peers::default()), Instant::now());
        for host in 0..10_000_u32 {
            let peer = Peer::from_ip(IpAddr::from(host.to_be_bytes()));
            let _slot = peers.connect(peer, now).unwrap();
            peers.request(peer, now);
        }
        assert!(peers.lock().len() <= MAX_REMEMBERED);
    }
    #[test]
    fn loopback_is_one_peer_and_leaves_places_for_the_socket() {
        let (peers, now) = (Arc::new(Peers::default()), Instant::now());
        let mut held: Vec<Slot> = Vec::new();
        let loopback = (1..=255).map(|host| format!("127.0.0.{host}"));
        let mapped = (1..=255).map(|host| format!("::ffff:127.1.0.{host}"));
        for ip in loopback.chain(mapped).chain(["::1".to_owned()]) {
            let peer = Peer::from_ip(ip.parse().unwrap());
            held.extend(peers.connect(peer, now));
            held.extend(peers.connect(peer, now));
        }
        assert_eq!(held.len(), MAX_CONNECTIONS_OF_LOOPBACK);
        for host in 0..100_u32 {
            held.extend(peers.connect(Peer::from_ip(IpAddr::from((10 << 24 | host).to_be_bytes())), now));
        }
        let of_user: Vec<Slot> = std::iter::from_fn(|| peers.connect(Peer::User(1000), now)).collect();
        let network = MAX_CONNECTIONS - RESERVED_FOR_ROOT - RESERVED_FOR_SOCKET;
        assert_eq!((held.len(), of_user.len()), (network, MAX_CONNECTIONS_OF_PEER));
        let requests = (1..=200).map(|host| Peer::from_ip(format!("127.0.1.{host}").parse().unwrap()));
        let made = requests.filter(|peer| peers.request(*peer, now)).count();
        assert_eq!(made, BURST as usize);
        assert!(!peers.request(Peer::from_ip("127.9.9.9".parse().unwrap()), now));
    }
}
