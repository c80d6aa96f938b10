//! What the agent tells whom. It may read what `/proc` refuses to other users: the addresses of a process,
//! the paths of its program and of its files, its environment. Only admins get these from it. SECURITY.md
//! lists what each role sees.

use crate::api::{Heatmap, HeatmapRow};

/// For whom an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// Whoever may read: nothing that `/proc` refuses to other users.
    Reader,
    /// Whoever may also give orders: everything.
    Admin,
}

/// Names of mappings that are the same in every process.
const PLAIN_NAMES: [&str; 7] = [
    "",
    "[anon]",
    "[heap]",
    "[stack]",
    "[vdso]",
    "[vvar]",
    "[vsyscall]",
];

/// What readers get as the name of a mapping. Programs name files, and anonymous memory as well.
fn plain_name(name: &str) -> &str {
    match name {
        plain if PLAIN_NAMES.contains(&plain) => plain,
        named if named.starts_with("[anon") => "[anon]",
        stack if stack.starts_with("[stack") => "[stack]",
        _ => "[file]",
    }
}

impl Heatmap {
    /// The heatmap as `audience` may see it. For readers, addresses are offsets from the begin of the
    /// mapping: of the first row where rows of one name follow each other without a gap.
    #[must_use]
    pub fn told_to(mut self, audience: Audience) -> Self {
        if audience == Audience::Admin {
            return self;
        }
        let mut begin = 0;
        let mut previous: Option<(u32, String, String)> = None;
        for row in &mut self.rows {
            let (start, end) = (address(&row.start), address(&row.end));
            let place = (row.pid, row.name.clone(), row.start.clone());
            if previous.as_ref() != Some(&place) {
                begin = start;
            }
            previous = Some((row.pid, row.name.clone(), row.end.clone()));
            *row = HeatmapRow {
                start: format!("{:#x}", start.saturating_sub(begin)),
                end: format!("{:#x}", end.saturating_sub(begin)),
                name: plain_name(&row.name).to_owned(),
                ..std::mem::take(row)
            };
        }
        self
    }
}

/// The address of a text that [`HeatmapRow`] has. A text that is none tells nothing.
fn address(text: &str) -> u64 {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: u32, start: u64, end: u64, name: &str) -> HeatmapRow {
        HeatmapRow {
            pid,
            start: format!("{start:#x}"),
            end: format!("{end:#x}"),
            name: name.to_owned(),
            heat: vec![1],
        }
    }

    #[test]
    fn readers_get_offsets_in_mappings_without_names_of_files() {
        let rows = vec![
            row(7, 0x5500_0000_1000, 0x5500_0000_3000, "/root/secret"),
            row(7, 0x5500_0000_3000, 0x5500_0000_4000, "/root/secret"),
            row(7, 0x5500_0000_4000, 0x5500_0000_5000, "/root/other"),
            row(7, 0x7f00_0000_0000, 0x7f00_0000_2000, "[anon:password]"),
            row(7, 0x7f00_0000_8000, 0x7f00_0000_9000, "[anon:password]"),
            row(8, 0x7f00_0000_9000, 0x7f00_0000_a000, "[heap]"),
        ];
        let map = Heatmap {
            rows,
            ..Heatmap::default()
        };
        assert_eq!(map.clone().told_to(Audience::Admin), map);
        let told: Vec<_> = map.told_to(Audience::Reader).rows;
        let told: Vec<_> = told
            .iter()
            .map(|row| (row.pid, row.start.as_str(), row.end.as_str(), row.name.as_str()))
            .collect();
        let expected = [
            (7, "0x0", "0x2000", "[file]"),
            (7, "0x2000", "0x3000", "[file]"),
            (7, "0x0", "0x1000", "[file]"),
            (7, "0x0", "0x2000", "[anon]"),
            (7, "0x0", "0x1000", "[anon]"),
            (8, "0x0", "0x1000", "[heap]"),
        ];
        assert_eq!(told, expected);
    }
}
