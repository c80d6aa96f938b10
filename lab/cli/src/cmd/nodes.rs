//! `thermo-lab nodes`: on which memory nodes the memory of a process is, as the kernel says.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};
use thermo_kernel::maps::{self, Mapping};
use thermo_kernel::move_pages::{self, MAX_PAGES};
use thermo_kernel::pagemap::Pagemap;
use thermo_kernel::process_vm;
use thermo_term::exit::Exit;
use thermo_term::output;
use thermo_units::{Addr, AddrRange, Bytes, PAGE_SIZE};

/// Print on which memory nodes the memory of a process is.
///
/// The kernel is asked for the node of each resident page (move_pages). --contains counts only the pages that
/// hold a text, such as a mark in the records that a test reads all the time. This reads the pages, which
/// marks them as accessed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  thermo-lab nodes --pid 4242 --contains recent-record
  thermo-lab nodes --pid 4242 --range 0x7f0000000000-0x7f0000800000 --json")]
pub struct Nodes {
    /// The process
    #[arg(long, value_name = "PID")]
    pid: u32,

    /// Count only pages that hold this text
    #[arg(long, value_name = "TEXT")]
    contains: Option<String>,

    /// Count only pages of these addresses, in hexadecimal
    #[arg(long, value_name = "BEGIN-END", value_parser = range)]
    range: Option<AddrRange>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn range(text: &str) -> Result<AddrRange, String> {
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let ends = text
        .split_once('-')
        .and_then(|(begin, end)| Some((number(begin)?, number(end)?)));
    match ends {
        Some((begin, end)) if begin < end => Ok(AddrRange::new(begin, end)),
        _ => Err("give two addresses, the lower one first, like 0x7f0000000000-0x7f0000800000".to_owned()),
    }
}

/// True for addresses without any right, which servers reserve: MariaDB 8 TiB of them. Their list of pages
/// would be larger than memory.
const fn is_reserved(mapping: &Mapping) -> bool {
    !mapping.perms.read && !mapping.perms.write && !mapping.perms.exec
}

/// Bytes by node.
#[derive(Debug, Default)]
struct Placement {
    nodes: BTreeMap<u32, Bytes>,
    /// Bytes without a known node.
    unknown: Bytes,
}

impl Nodes {
    /// Prints the bytes on each node.
    pub fn run(self) -> anyhow::Result<Exit> {
        let placement = self
            .placement()
            .with_context(|| format!("cannot read process {}", self.pid))?;
        if self.json {
            output::json(&placement.json())?;
        } else {
            output::text(&placement.text())?;
        }
        Ok(Exit::Done)
    }

    fn placement(&self) -> anyhow::Result<Placement> {
        let root = Path::new("/");
        let pagemap = Pagemap::open(root, self.pid)?;
        let mut placement = Placement::default();
        let (mut pages, mut statuses) = (Vec::new(), Vec::new());
        for mapping in maps::read(root, self.pid)?
            .iter()
            .filter(|mapping| !mapping.is_special() && !is_reserved(mapping))
        {
            let all = AddrRange::new(0, u64::MAX);
            let Some(range) = mapping.range.intersection(&self.range.unwrap_or(all)) else {
                continue;
            };
            pagemap.read(range, &mut pages)?;
            let first = range.start.align_down();
            let resident = (0..).zip(&pages).filter(|(_, page)| page.is_present());
            let addrs = resident.map(|(nth, _)| first + Bytes(nth * PAGE_SIZE));
            let addrs: Vec<Addr> = addrs.filter(|addr| self.counts(*addr)).collect();
            for addrs in addrs.chunks(MAX_PAGES) {
                move_pages::query(self.pid, addrs, &mut statuses)?;
                statuses.iter().for_each(|status| placement.add(status.node()));
            }
        }
        Ok(placement)
    }

    /// Whether the page at `addr` holds the text.
    fn counts(&self, addr: Addr) -> bool {
        let Some(text) = &self.contains else { return true };
        let mut page = [0; PAGE_SIZE as usize];
        let read = process_vm::read(self.pid, addr, &mut page).unwrap_or(0);
        holds(&page[..read], text.as_bytes())
    }
}

/// Whether `bytes` contains `text`.
fn holds(bytes: &[u8], text: &[u8]) -> bool {
    let Some((first, _)) = text.split_first() else {
        return true;
    };
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| byte == first) {
        rest = &rest[at..];
        if rest.starts_with(text) {
            return true;
        }
        rest = &rest[1..];
    }
    false
}

impl Placement {
    fn add(&mut self, node: Option<u32>) {
        match node {
            Some(nid) => *self.nodes.entry(nid).or_default() += Bytes(PAGE_SIZE),
            None => self.unknown += Bytes(PAGE_SIZE),
        }
    }

    fn json(&self) -> Value {
        let node = |(nid, bytes): (&u32, &Bytes)| json!({ "nid": nid, "bytes": bytes.0 });
        json!({
            "schema": 1,
            "nodes": self.nodes.iter().map(node).collect::<Vec<_>>(),
            "unknown_bytes": self.unknown.0,
        })
    }

    fn text(&self) -> String {
        let node = |(nid, bytes): (&u32, &Bytes)| format!("node {nid}: {} bytes\n", bytes.0);
        let nodes: String = self.nodes.iter().map(node).collect();
        match self.unknown {
            Bytes::ZERO => nodes,
            unknown => nodes + &format!("unknown: {} bytes\n", unknown.0),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;

    #[test]
    fn reserved_addresses_are_left_out() {
        let mapping = |read| Mapping {
            range: AddrRange::new(0x1000, 0x8000_0000_0000),
            perms: maps::Perms {
                read,
                ..maps::Perms::default()
            },
            offset: 0,
            inode: 0,
            name: String::new(),
        };
        assert!(is_reserved(&mapping(false)) && !is_reserved(&mapping(true)));
    }

    #[test]
    fn range_needs_two_addresses_in_order() {
        assert_eq!(range("0x1000-3000"), Ok(AddrRange::new(0x1000, 0x3000)));
        for text in ["1000", "3000-1000", "x-y", "-"] {
            assert!(range(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_pages_that_hold_the_text_are_counted() {
        // Made at run time, so that the text is in no other page.
        let text: String = ["mark", "of", "this", "test"].join("~");
        let mut memory = vec![0_u8; 16 << 12];
        let start = (memory.as_ptr() as u64).next_multiple_of(PAGE_SIZE) - memory.as_ptr() as u64;
        for page in [2, 3, 9] {
            let at = start as usize + page * PAGE_SIZE as usize + 100;
            memory[at..at + text.len()].copy_from_slice(text.as_bytes());
        }
        let begin = memory.as_ptr() as u64 + start;
        let of = |contains: Option<&String>| {
            let nodes = Nodes {
                pid: std::process::id(),
                contains: contains.cloned(),
                range: Some(AddrRange::new(begin, begin + (12 << 12))),
                json: false,
            };
            let placement = nodes.placement();
            placement.map(|found| found.nodes.values().copied().sum::<Bytes>() + found.unknown)
        };
        match of(Some(&text)) {
            Err(error) => eprintln!("SKIP: memory nodes cannot be asked for: {error:#}"),
            Ok(bytes) => {
                assert_eq!(bytes, Bytes(3 * PAGE_SIZE));
                assert!(of(None).unwrap() >= bytes);
            }
        }
        drop(memory);
    }
}
