//! The end of physical memory. Every frame number is checked against it before it is followed.

/// The first physical address behind all memory zones, from the text of `/proc/zoneinfo`; `None` if the text
/// has no zone.
pub(crate) fn memory_end(zoneinfo: &str) -> Option<u64> {
    let mut end = None;
    let mut spanned = 0;
    for line in zoneinfo.lines() {
        let mut words = line.split_whitespace();
        match (
            words.next(),
            words.next().and_then(|word| word.parse::<u64>().ok()),
        ) {
            (Some("spanned"), Some(pages)) => spanned = pages,
            // One line a zone, behind its `spanned`.
            (Some("start_pfn:"), Some(start)) if spanned > 0 => {
                end = end.max(start.checked_add(spanned).and_then(|pfn| pfn.checked_mul(4096)));
                spanned = 0;
            }
            _ => {}
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Node 0, zone      DMA\n  pages free     2816\n        spanned  4095\n        present  3998\n  start_unreclaimable: 0\n  start_pfn:           1\nNode 0, zone   Normal\n        spanned  5242880\n  start_pfn:           1048576\nNode 0, zone  Movable\n        spanned  0\n  start_pfn:           0\n";

    #[test]
    fn memory_end_is_end_of_last_zone() {
        assert_eq!(memory_end(TEXT), Some((1_048_576 + 5_242_880) * 4096));
    }

    #[test]
    fn memory_end_is_none_without_zones() {
        assert_eq!(memory_end(""), None);
        assert_eq!(memory_end("spanned 18446744073709551615\nstart_pfn: 5"), None);
    }
}
