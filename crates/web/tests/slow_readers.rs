//! Clients that take their answers slowly or never hold bounded memory, and others are served meanwhile.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use support::{Site, request};

/// More than all answers that may wait, and what the allocator keeps besides.
const MOST: u64 = 64 << 20;
const READERS: usize = 16;

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// A client that asks, sees the begin of the answer, and takes no more.
fn ask_and_stop(site: &Site, path: &str) -> TcpStream {
    let mut stream = site.connect();
    stream
        .write_all(request("GET", path, &[], "").as_bytes())
        .unwrap();
    stream.read_exact(&mut [0; 12]).unwrap();
    stream
}

#[test]
fn slow_readers_hold_bounded_memory() {
    let site = Site::start();
    // Some two thousand targets.
    site.agent.set_copies(300);
    let mut streams: Vec<TcpStream> = (0..READERS)
        .map(|_| ask_and_stop(&site, "/api/v1/stream"))
        .collect();
    for stream in &streams {
        stream.set_nonblocking(true).unwrap();
    }
    let (before, mut peak, mut waiting) = (resident(), 0, Vec::new());
    for _ in 0..60 {
        site.agent.tick();
        // Each answer is another, and none is taken.
        if waiting.len() < READERS - 1 {
            waiting.push(ask_and_stop(&site, "/api/v1/targets"));
        }
        for stream in &mut streams {
            // There is nothing, or a part of an event; or the stream was cut.
            drop(stream.read(&mut vec![0; 64 << 10]));
        }
        assert_eq!(site.ask_locally("GET", "/api/v1/status", &[], "").status, 200);
        peak = peak.max(resident());
    }
    let targets = site.ask_locally("GET", "/api/v1/targets", &[], "");
    assert!(targets.status == 200 && targets.body.len() > 1 << 20);
    let growth = peak.saturating_sub(before);
    assert!(growth < MOST, "{} MiB", growth >> 20);
}
