//! Contents of pages as programs have them.

use thermo_compress::Page;
use thermo_engine::rng::Rng;

/// Pages of each content.
const NR_PAGES: usize = 2048;

pub const CONTENTS: [&str; 6] = ["text", "records", "pointers", "program", "random", "same-filled"];

/// [`NR_PAGES`] pages of content `name`, the same each time (apart from `program`).
pub fn content(name: &str) -> Vec<Page> {
    let mut rng = Rng::new(42);
    match name {
        "text" => fill(|page| text(page, &mut rng)),
        "records" => fill(|page| records(page, &mut rng)),
        "pointers" => fill(|page| pointers(page, &mut rng)),
        "program" => program(),
        "random" => fill(|page| page.fill_with(|| rng.next_u64() as u8)),
        "same-filled" => fill(|page| same_filled(page, &mut rng)),
        _ => panic!("no content {name}"),
    }
}

fn fill(mut write: impl FnMut(&mut Page)) -> Vec<Page> {
    let mut pages = vec![[0; 4096]; NR_PAGES];
    pages.iter_mut().for_each(&mut write);
    pages
}

/// Lines of a log: words of unequal frequency, numbers.
fn text(page: &mut Page, rng: &mut Rng) {
    const WORDS: [&str; 16] = [
        "request", "from", "user", "session", "closed", "opened", "error", "timeout", "after", "seconds",
        "bytes", "written", "to", "the", "cache", "INFO",
    ];
    let mut line = String::new();
    while line.len() < page.len() {
        let word = WORDS[(rng.below(16) * rng.below(17) / 16) as usize];
        line.push_str(word);
        line.push(' ');
        if rng.below(4) == 0 {
            line.push_str(&rng.below(100_000).to_string());
            line.push(if rng.below(3) == 0 { '\n' } else { ' ' });
        }
    }
    page.iter_mut()
        .zip(line.bytes())
        .for_each(|(to, from)| *to = from);
}

/// Objects of 64 bytes: a type, two pointers, a counter, a float, a short name, zeros.
fn records(page: &mut Page, rng: &mut Rng) {
    for object in page.chunks_exact_mut(64) {
        let words = [
            0x5555_0000_1230 + rng.below(8) * 0x40,
            0x7f12_3400_0000 + rng.below(1 << 22) * 16,
            0x7f12_3400_0000 + rng.below(1 << 12) * 16,
            rng.below(1000),
            (rng.below(1 << 20) as f64 / 1000.0).to_bits(),
        ];
        for (slot, word) in object.chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        let name = format!("key:{:08}", rng.below(10_000_000));
        object[40..52].copy_from_slice(name.as_bytes());
    }
}

/// A hash table that is mostly empty.
fn pointers(page: &mut Page, rng: &mut Rng) {
    let used = 1 + rng.below(150);
    for _ in 0..used {
        let slot = rng.below(512) as usize * 8;
        let pointer = 0x7f00_0000_0000 + rng.below(1 << 28) * 8;
        page[slot..slot + 8].copy_from_slice(&pointer.to_le_bytes());
    }
}

/// This program's file: code, tables, symbols, debug information.
fn program() -> Vec<Page> {
    let file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let pages: Vec<Page> = file.as_chunks().0.to_vec();
    pages.into_iter().cycle().take(NR_PAGES).collect()
}

/// Half zeros, half another word.
fn same_filled(page: &mut Page, rng: &mut Rng) {
    let word = rng.below(2) * rng.next_u64();
    for slot in page.chunks_exact_mut(8) {
        slot.copy_from_slice(&word.to_le_bytes());
    }
}
