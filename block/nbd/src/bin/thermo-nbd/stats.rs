//! The status of a running server, as JSON, text, and Prometheus metrics.

use std::collections::BTreeMap;
use std::io;

use serde_json::{Value, json};
use thermo_nbd::Server;
use thermo_nbd::status_text::counted;
use thermo_pool::{Pools, PressureMonitor, ReclaimBus, Stats};
use thermo_term::output;

/// The server and everything that its status covers.
#[derive(Debug)]
pub struct ServerState {
    pub server: Server,
    pub pools: Pools,
    pub bus: ReclaimBus,
    pub monitor: PressureMonitor,
    /// Reasons for the choice of pressure sources.
    pub reasons: Vec<String>,
}

impl ServerState {
    /// The whole status as JSON.
    pub fn json(&self) -> Value {
        let (status, usage, settings) = (self.server.status(), self.pools.usage(), self.pools.settings());
        let stats = |stats: Stats| stats.named().collect::<BTreeMap<_, _>>();
        let pools = self.pools.stats().into_iter();
        let pools: BTreeMap<_, _> = pools.map(|(name, one)| (name, stats(one))).collect();
        let sources: Vec<_> = self.monitor.sources().into_iter().map(|source| {
            json!({ "name": source.name, "reports": source.reports, "last": source.last, "failed": source.failed })
        }).collect();
        let reclaimers: Vec<_> = self
            .bus
            .reclaimers()
            .into_iter()
            .map(|one| json!({ "name": one.name, "calls": one.calls, "freed_bytes": one.freed.0 }))
            .collect();
        json!({
            "schema": 1,
            "connections": status.connections,
            "vhost_clients": status.vhost_clients,
            "accepted": status.accepted,
            "refused": status.refused,
            "connection_errors": status.connection_errors,
            "last_error": status.last_error,
            "failed_exports": status.failed_exports,
            "requests": status.requests,
            "read_bytes": status.read.0,
            "written_bytes": status.written.0,
            "waiting_for_memory": status.waiting_for_memory,
            "waits_for_memory": status.memory_waits,
            "clients": status.clients_by_export,
            "max_buffer_pages": settings.max_buffer_pages,
            "buffer_squeeze_duration_ms": settings.buffer_squeeze_duration_ms,
            "budget_bytes": usage.limit.0,
            "used_bytes": usage.used.0,
            "peak_bytes": usage.peak.0,
            "reserved_bytes": usage.reserved.0,
            "pressure": { "reasons": self.reasons, "sources": sources, "reclaimers": reclaimers },
            "pools": pools,
        })
    }

    /// All metrics in the Prometheus text format.
    pub fn metrics(&self) -> String {
        let (status, usage) = (self.server.status(), self.pools.usage());
        #[rustfmt::skip]
        let metrics = [
            ("connections", "gauge", "Connected clients.", status.connections as u64),
            ("vhost_clients", "gauge", "Connected virtual machines.", status.vhost_clients as u64),
            ("accepted_total", "counter", "Clients accepted.", status.accepted),
            ("refused_total", "counter", "Clients disconnected because the limit was reached.", status.refused),
            ("connection_errors_total", "counter", "Connections that ended with an error.", status.connection_errors),
            ("failed_exports", "gauge", "Exports whose storage lost acknowledged writes.", status.failed_exports.len() as u64),
            ("requests_total", "counter", "Requests answered.", status.requests),
            ("read_bytes_total", "counter", "Bytes read.", status.read.0),
            ("written_bytes_total", "counter", "Bytes written.", status.written.0),
            ("waiting_for_memory", "gauge", "Clients waiting for memory.", status.waiting_for_memory as u64),
            ("waits_for_memory_total", "counter", "Waits of clients for memory.", status.memory_waits),
            ("budget_bytes", "gauge", "The byte budget.", usage.limit.0),
            ("used_bytes", "gauge", "Bytes held by all pools, lent or free.", usage.used.0),
            ("peak_bytes", "gauge", "Maximum of used_bytes so far.", usage.peak.0),
        ];
        let one = |(name, kind, help, value)| {
            let name = format!("thermo_nbd_{name}");
            format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n")
        };
        let text: String = metrics.into_iter().map(one).collect();
        text + &self.pools.prometheus()
    }
}

/// Prints the final status.
pub fn print_summary(state: &ServerState, as_json: bool) -> io::Result<()> {
    if as_json {
        return output::json(&state.json());
    }
    let (status, peak) = (state.server.status(), state.pools.usage().peak);
    let (accepted, refused) = (counted(status.accepted, "client"), status.refused);
    thermo_kernel::message!("accepted {accepted}, refused {refused}; peak buffer memory {peak}");
    Ok(())
}
