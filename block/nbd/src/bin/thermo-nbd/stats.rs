//! What a running server tells: as JSON, as lines, in the text form of Prometheus.

use std::collections::BTreeMap;
use std::io;

use serde_json::{Value, json};
use thermo_nbd::Server;
use thermo_pool::{Bus, Keeper, Pools, Stats};
use thermo_term::output;

/// All that can be asked.
#[derive(Debug)]
pub struct Facts {
    pub server: Server,
    pub pools: Pools,
    pub bus: Bus,
    pub keeper: Keeper,
    /// Why these sources of pressure.
    pub reasons: Vec<String>,
}

impl Facts {
    /// Everything, as JSON.
    pub fn json(&self) -> Value {
        let (status, usage, settings) = (self.server.status(), self.pools.usage(), self.pools.settings());
        let stats = |stats: Stats| stats.named().collect::<BTreeMap<_, _>>();
        let pools = self.pools.stats().into_iter();
        let pools: BTreeMap<_, _> = pools.map(|(name, one)| (name, stats(one))).collect();
        let sources: Vec<_> = self.keeper.sources().into_iter().map(|source| {
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
            "machines": status.machines,
            "accepted": status.accepted,
            "refused": status.refused,
            "broken": status.broken,
            "last_error": status.last_error,
            "requests": status.requests,
            "read_bytes": status.read.0,
            "written_bytes": status.written.0,
            "waiting_for_memory": status.parked,
            "waits_for_memory": status.parks,
            "clients": status.clients_of,
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

    /// Everything that is a number, for Prometheus.
    pub fn metrics(&self) -> String {
        let (status, usage) = (self.server.status(), self.pools.usage());
        #[rustfmt::skip]
        let told = [
            ("connections", "gauge", "Clients that are connected.", status.connections as u64),
            ("machines", "gauge", "Virtual machines that are connected.", status.machines as u64),
            ("accepted_total", "counter", "Clients that came.", status.accepted),
            ("refused_total", "counter", "Clients hung up on because there were too many.", status.refused),
            ("broken_total", "counter", "Connections that broke.", status.broken),
            ("requests_total", "counter", "Requests answered.", status.requests),
            ("read_bytes_total", "counter", "Bytes read.", status.read.0),
            ("written_bytes_total", "counter", "Bytes written.", status.written.0),
            ("waiting_for_memory", "gauge", "Clients that wait for memory.", status.parked as u64),
            ("waits_for_memory_total", "counter", "Times that a client waited for memory.", status.parks),
            ("budget_bytes", "gauge", "The byte budget.", usage.limit.0),
            ("used_bytes", "gauge", "Bytes of it in use, lent or free.", usage.used.0),
            ("peak_bytes", "gauge", "The most that ever was.", usage.peak.0),
        ];
        let one = |(name, kind, help, value)| {
            let name = format!("thermo_nbd_{name}");
            format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n")
        };
        let text: String = told.into_iter().map(one).collect();
        text + &self.pools.prometheus()
    }
}

/// Tells at the end what was done.
pub fn end(facts: &Facts, as_json: bool) -> io::Result<()> {
    if as_json {
        return output::json(&facts.json());
    }
    let (status, peak) = (facts.server.status(), facts.pools.usage().peak);
    let (accepted, refused) = (status.accepted, status.refused);
    eprintln!("{accepted} clients came, {refused} were refused; buffers took {peak} at most");
    Ok(())
}
