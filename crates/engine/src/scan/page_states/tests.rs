//! Page states over several passes, compared with results computed by hand.

use super::*;
use crate::access_tables::{NR_KINDS, PageKind};

const PAGE: u64 = PAGE_SIZE;
/// Pages that were not accessed for a second are idle.
const RECENT: Nanos = Nanos::secs(1);

/// Start of a pass that ends at second `at`.
fn pass_start(at: u64) -> Nanos {
    Nanos::secs(at) - Nanos::millis(1)
}

/// One pass at second `at` over `pages` pages, of which `accessed` were accessed.
fn pass_over(states: &mut PageStates, at: u64, pages: u64, accessed: impl Fn(u64) -> bool) {
    states.begin_pass(pass_start(at));
    scan_pages(states, at, 0..pages, accessed);
    states.end_pass(Nanos::secs(at));
}

fn scan_pages(states: &mut PageStates, at: u64, pages: std::ops::Range<u64>, accessed: impl Fn(u64) -> bool) {
    let mut scan = ScanChunk::default();
    scan.reset(AddrRange::new(pages.start * PAGE, pages.end * PAGE));
    for page in pages {
        scan.set(Addr(page * PAGE), accessed(page));
    }
    states.update(&scan, Nanos::secs(at));
}

/// One pass over eight pages at second `at`.
fn pass(states: &mut PageStates, at: u64, accessed: &[u64]) {
    pass_over(states, at, 8, |page| accessed.contains(&page));
}

/// The runs at second `at`, in pages.
fn runs(states: &PageStates, at: u64) -> Vec<(u64, u64, State)> {
    states
        .runs(Nanos::secs(at), RECENT)
        .map(|run| (run.range.start.0 / PAGE, run.range.end.0 / PAGE, run.state))
        .collect()
}

/// Pages by idle age, over all kinds, at second `at`.
fn ages(states: &mut PageStates, at: u64) -> Vec<u64> {
    let ages = states.take_tables(Nanos::secs(at)).ages();
    ages.iter().map(|bytes| bytes.0 / PAGE).collect()
}

/// Asserts that the maintained counts equal counts computed from the chunks.
fn assert_counts_are_right(states: &PageStates) {
    let mut expected = Counts::default();
    for chunk in states.chunks.values() {
        chunk.count(states.nr_passes, &mut expected, Counts::add);
    }
    let groups = |counts: &Counts| {
        let groups = counts.groups();
        groups
            .map(|group| (group.kind, group.byte, group.scanned, group.pages))
            .collect::<Vec<_>>()
    };
    assert_eq!(groups(&states.counts), groups(&expected));
}

#[test]
fn accessed_pages_become_idle_since_last_accessed_pass() {
    let mut states = PageStates::default();
    for at in 1..=3 {
        pass(&mut states, at, &[2, 3]);
    }
    // Accessed in both passes that can find accesses, so in the whole window.
    assert_eq!(
        runs(&states, 3),
        [
            (0, 2, State::Idle(Nanos::secs(1))),
            (2, 4, State::Accessed(7)),
            (4, 8, State::Idle(Nanos::secs(1)))
        ]
    );
    for at in 4..=12 {
        pass(&mut states, at, &[]);
        assert_eq!(
            runs(&states, at)[1],
            (2, 4, State::Idle(Nanos::secs(3))),
            "at {at}"
        );
        assert_counts_are_right(&states);
    }
}

#[test]
fn recently_accessed_pages_are_not_idle() {
    let mut states = PageStates::default();
    for at in 1..=8 {
        pass(&mut states, at, &[2]);
    }
    pass(&mut states, 9, &[]);
    assert_eq!(
        states
            .runs(Nanos::millis(8_900), RECENT)
            .nth(1)
            .map(|run| run.state),
        Some(State::Accessed(6))
    );
    assert_eq!(runs(&states, 9)[1].2, State::Idle(Nanos::secs(8)));
}

#[test]
fn tables_count_pages_by_idle_age() {
    let mut states = PageStates::default();
    pass(&mut states, 100, &[7]);
    pass(&mut states, 101, &[0, 1, 7]);
    pass(&mut states, 104, &[1]);
    let tables = states.take_tables(Nanos::secs(104));
    let pages = tables.ages().map(|bytes| bytes.0 / PAGE);
    // Page 1 was accessed in the last pass. The others were not accessed since the first pass or a later one,
    // at most four seconds ago.
    assert_eq!(pages[..5], [1, 0, 7, 0, 0]);
    assert_eq!((tables.unknown(), tables.known()), (Bytes(0), Bytes(8 * PAGE)));
    assert_eq!((tables.nr_passes, tables.as_of), (3, pass_start(104)));
    assert_eq!(tables.pass, Nanos::secs(3), "time between two scans");
    assert_eq!(ages(&mut states, 200)[..7], [1, 0, 0, 0, 0, 0, 7]);
}

#[test]
fn idle_age_includes_half_a_pass() {
    let mut states = PageStates::default();
    for at in (4..=24).step_by(4) {
        pass(&mut states, at, if at == 20 { &[3] } else { &[] });
    }
    // Accessed between the scans that ended at 16 and 20 s.
    assert_eq!(ages(&mut states, 24)[..5], [0, 0, 0, 1, 7]);
    assert_eq!(
        runs(&states, 24)[1].2,
        State::Idle(Nanos::secs(20)),
        "the idle age for schemes must not include it"
    );
}

#[test]
fn reaccesses_are_counted_once() {
    let mut states = PageStates::default();
    for at in 1..=20 {
        // Page 5 is accessed after 12 s (first found idle in second 1), page 6 in every other pass.
        pass_over(&mut states, at, 8, |page| {
            page == 5 && at == 13 || page == 6 && at % 2 == 0 || page == 7
        });
    }
    let tables = states.take_tables(Nanos::secs(20));
    let pages = tables.reaccessed.map(|bytes| bytes.0 / PAGE);
    assert_eq!(pages[4], 1, "page 5, after 12 s: {pages:?}");
    assert_eq!(pages[2], 9, "page 6, after two seconds: {pages:?}");
    assert_eq!(
        pages.iter().sum::<u64>(),
        11,
        "and one after one second: {pages:?}"
    );
    let again = states.take_tables(Nanos::secs(20));
    assert_eq!(again.reaccessed, [Bytes(0); NR_AGES]);
}

#[test]
fn snapshot_within_pass_handles_scanned_and_unscanned_chunks() {
    let mut states = PageStates::default();
    for at in [10, 20, 30] {
        pass_over(&mut states, at, 1024, |page| page == 0 || page == 600);
    }
    for at in [40, 50] {
        pass_over(&mut states, at, 1024, |_| false);
    }
    states.begin_pass(Nanos::secs(60));
    scan_pages(&mut states, 60, 0..512, |_| false);
    let since = |states: &PageStates, page: u64| {
        let runs = runs(states, 60);
        runs.iter().find(|run| run.0 == page).map(|run| run.2)
    };
    // The last access to both was found by the pass that ended at 30 s. Only page 0 was scanned again in this
    // pass.
    assert_eq!(since(&states, 0), Some(State::Idle(Nanos::secs(30))));
    assert_eq!(since(&states, 600), Some(State::Idle(Nanos::secs(30))));
    let tables = states.take_tables(Nanos::secs(61));
    assert_eq!(tables.ages()[5], Bytes(1024 * PAGE), "all of it for 30 to 60 s");
    assert_eq!(tables.as_of, pass_start(50));
    assert_counts_are_right(&states);
    // The chunk that the pass did not scan is not mapped any more.
    states.end_pass(Nanos::secs(70));
    assert_eq!(states.take_tables(Nanos::secs(70)).known(), Bytes(512 * PAGE));
    assert_counts_are_right(&states);
}

#[test]
fn kinds_follow_backings_and_huge_pages() {
    let mut states = PageStates::default();
    let pages = |from: u64, to: u64| AddrRange::new(from * PAGE, to * PAGE);
    states.set_backings(Arc::new([
        (pages(0, 100), Backing::File),
        (pages(100, 200), Backing::Anon),
        (pages(512, 2048), Backing::Shmem),
    ]));
    let mut scan = ScanChunk::default();
    for at in 1..=2 {
        states.begin_pass(pass_start(at));
        scan.reset(pages(0, 2048));
        scan.set_range(pages(0, 200), false);
        scan.set_range(pages(512, 1536), at == 2);
        scan.set_huge(pages(1024, 1536));
        states.update(&scan, Nanos::secs(at));
        states.end_pass(Nanos::secs(at));
        assert_counts_are_right(&states);
    }
    let tables = states.take_tables(Nanos::secs(2));
    let of_kind = |kind: PageKind| {
        let ages = tables.idle[kind.index()];
        (
            ages[0].0 / PAGE,
            ages.iter().map(|bytes| bytes.0).sum::<u64>() / PAGE,
        )
    };
    let expected = [(0, 100), (0, 0), (0, 100), (0, 0), (512, 512), (512, 512)];
    let found: [(u64, u64); NR_KINDS] = PageKind::ALL.map(of_kind);
    assert_eq!(found, expected);
}

#[test]
fn uniform_chunks_use_little_memory() {
    let mut states = PageStates::default();
    for at in 1..=10 {
        pass_over(&mut states, at, 512 * 64, |page| page >= 512 * 32);
    }
    let small = states.state_size();
    assert!(small < Bytes(64 * 128 + 4096), "{small} for 64 chunks");
    // The limit, 0.03 % of 128 MiB, is 39 KiB.
    pass_over(&mut states, 11, 512 * 64, |page| page % 7 == 0);
    let each = states.state_size();
    assert!(
        each > Bytes(64 * 512) && each < Bytes((512 * 64 * PAGE) * 3 / 10_000),
        "{each}"
    );
}

#[test]
fn timestamps_never_run_out_or_increase_ages() {
    let mut states = PageStates::default();
    pass(&mut states, 1, &[]);
    for at in 2..2000 {
        // Page 1 is accessed now and then, page 0 never.
        pass(&mut states, at, if at % 100 == 0 { &[1] } else { &[] });
    }
    let State::Idle(since) = runs(&states, 2000)[0].2 else {
        panic!("page 0 was never accessed")
    };
    assert!(since >= Nanos::secs(1) && since < Nanos::secs(1000), "{since}");
    assert_eq!(runs(&states, 2000)[1], (1, 2, State::Idle(Nanos::secs(1900))));
    assert_counts_are_right(&states);
}

#[test]
fn restart_age_and_keep_only_update_states() {
    let mut states = PageStates::default();
    pass(&mut states, 1, &[0]);
    states.restart_ages(std::iter::once(AddrRange::new(0, 4 * PAGE)), true, Nanos::secs(9));
    assert_eq!(runs(&states, 10)[1].2, State::Idle(Nanos::secs(9)));
    assert_eq!(runs(&states, 10)[2].2, State::Idle(Nanos::secs(1)));
    assert_counts_are_right(&states);
    states.keep_only(&[AddrRange::new(CHUNK, 2 * CHUNK)]);
    assert!(runs(&states, 10).is_empty() && states.chunks.is_empty());
    assert_counts_are_right(&states);
}

#[test]
fn last_page_is_updated_by_unaligned_scan() {
    let mut states = PageStates::default();
    states.end_pass(Nanos::ZERO);
    let mut scan = ScanChunk::default();
    scan.reset(AddrRange::new(CHUNK - PAGE, 2 * CHUNK));
    scan.set(Addr(2 * CHUNK - PAGE), true);
    states.update(&scan, Nanos::secs(1));
    assert_eq!(ages(&mut states, 1)[0], 1);
}

#[test]
fn restart_age_skips_absent_pages() {
    let mut states = PageStates::default();
    pass(&mut states, 1, &[0]);
    states.set_absent(AddrRange::new(2 * PAGE, 4 * PAGE));
    states.restart_ages(std::iter::once(AddrRange::new(0, 8 * PAGE)), true, Nanos::secs(9));
    let resident: Vec<_> = runs(&states, 20).iter().map(|run| (run.0, run.1)).collect();
    assert_eq!(resident, [(0, 1), (1, 2), (4, 8)]);
    assert_counts_are_right(&states);
}

#[test]
fn nr_passes_counts_from_zero() {
    let mut states = PageStates::default();
    assert_eq!(states.nr_passes(), 0);
    for at in 1..=3 {
        pass(&mut states, at, &[]);
    }
    assert_eq!(states.nr_passes(), 3);
}

#[test]
fn keep_only_is_page_exact() {
    let mut states = PageStates::default();
    pass(&mut states, 1, &[]);
    states.keep_only(&[
        AddrRange::new(2 * PAGE, 3 * PAGE),
        AddrRange::new(6 * PAGE, 9 * PAGE),
    ]);
    let idle = State::Idle(Nanos::secs(1));
    assert_eq!(runs(&states, 2), [(2, 3, idle), (6, 8, idle)]);
    assert_counts_are_right(&states);
}

#[test]
fn first_pass_does_not_trust_accessed_bits() {
    let mut states = PageStates::default();
    pass(&mut states, 1, &[0, 1]);
    assert_eq!(runs(&states, 1)[0], (0, 2, State::Unknown));
    let tables = states.take_tables(Nanos::secs(1));
    assert_eq!(tables.unknown[UnknownReason::FirstScan.index()], Bytes(2 * PAGE));
    pass(&mut states, 2, &[1]);
    assert_eq!(
        runs(&states, 3)[..2],
        [(0, 1, State::Idle(Nanos::secs(1))), (1, 2, State::Accessed(7))]
    );
    assert_eq!(states.take_tables(Nanos::secs(3)).unknown(), Bytes(0));
}

#[test]
fn first_pass_trusts_accessed_bits_of_new_target() {
    let mut states = PageStates::new(true);
    pass(&mut states, 1, &[0, 1]);
    assert_eq!(
        ages(&mut states, 1)[..2],
        [8, 0],
        "no page is older than a second"
    );
    let tables = states.take_tables(Nanos::secs(3));
    assert_eq!((tables.ages()[0], tables.unknown()), (Bytes(2 * PAGE), Bytes(0)));
    assert_eq!(runs(&states, 3)[0].2, State::Accessed(7));
}

/// The states after `passes` over 64 pages.
fn passes_of_64(passes: std::ops::RangeInclusive<u64>, accessed: impl Fn(u64, u64) -> bool) -> PageStates {
    let mut states = PageStates::default();
    for at in passes {
        pass_over(&mut states, at, 64, |page| accessed(at, page));
    }
    states
}

/// The runs if every access in the window counts as recent.
fn runs_by_history(states: &PageStates) -> Vec<(u64, u64, State)> {
    let runs = states.runs(Nanos::secs(21), Nanos::secs(1000));
    runs.map(|run| (run.range.start.0 / PAGE, run.range.end.0 / PAGE, run.state))
        .collect()
}

#[test]
fn many_pages_take_new_state_after_two_passes() {
    // The first half is accessed until 18 s, the second from 19 s on.
    let states = passes_of_64(1..=20, |at, page| (page < 32) == (at < 19));
    assert_eq!(
        runs_by_history(&states),
        [
            (0, 32, State::Idle(Nanos::secs(18))),
            (32, 64, State::Accessed(WINDOW))
        ]
    );
    // One pass earlier the change may still be a pause.
    let states = passes_of_64(1..=19, |at, page| (page < 32) == (at < 19));
    assert_eq!(
        runs_by_history(&states),
        [(0, 32, State::Accessed(6)), (32, 64, State::Accessed(1))]
    );
}

#[test]
fn few_pages_and_pauses_use_whole_window() {
    let states = passes_of_64(1..=20, |at, page| (page < 8) == (at < 19));
    assert_eq!(runs_by_history(&states)[0], (0, 8, State::Accessed(5)));
    // Accessed in two passes of four, again and again.
    let states = passes_of_64(1..=20, |at, _| at % 4 < 2);
    assert!(matches!(
        runs_by_history(&states)[..],
        [(0, 64, State::Accessed(3 | 4))]
    ));
}

#[test]
fn restart_age_keeps_accessed_ranges_accessed() {
    let mut states = passes_of_64(1..=20, |at, page| page >= 8 && at < 19 || page >= 32);
    states.restart_ages(
        std::iter::once(AddrRange::new(0, 24 * PAGE)),
        false,
        Nanos::secs(21),
    );
    let expected = [
        (0, 8, State::Idle(Nanos::secs(21))),
        (8, 32, State::Idle(Nanos::secs(18))),
        (32, 64, State::Accessed(WINDOW)),
    ];
    assert_eq!(runs_by_history(&states), expected);
    states.restart_ages(
        std::iter::once(AddrRange::new(8 * PAGE, 32 * PAGE)),
        true,
        Nanos::secs(22),
    );
    assert_eq!(runs_by_history(&states)[1], (8, 32, State::Idle(Nanos::secs(22))));
}

#[test]
fn words_accessed_in_last_two_passes_are_steady() {
    let states = passes_of_64(1..=20, |at, _| at != 18);
    let steady = |states: &PageStates, range| {
        let mut scan = ScanChunk::default();
        scan.reset(range);
        states.mark_steadily_accessed(&mut scan);
        [0, 64].map(|page| scan.is_steadily_accessed(AddrRange::new(page * PAGE, (page + 64) * PAGE)))
    };
    let all = AddrRange::new(0, 128 * PAGE);
    assert_eq!(steady(&states, all), [true, false]);
    let behind = AddrRange::new(64 * PAGE, 128 * PAGE);
    assert_eq!(steady(&states, behind), [false, false]);
    let states = passes_of_64(1..=20, |at, page| page > 0 || at != 19);
    assert_eq!(steady(&states, all), [false, false]);
}

#[test]
fn steadily_accessed_words_are_marked_in_every_chunk() {
    let mut states = PageStates::default();
    for at in 1..=4 {
        pass_over(&mut states, at, 1024, |page| page % 128 >= 64 && page != 900);
    }
    let mut scan = ScanChunk::default();
    scan.reset(AddrRange::new(0, 1024 * PAGE));
    states.mark_steadily_accessed(&mut scan);
    for word in 0..16 {
        let range = AddrRange::new(word * WORD, (word + 1) * WORD);
        // Page 900 is in word 14.
        let expected = word % 2 == 1;
        assert_eq!(scan.is_steadily_accessed(range), expected, "word {word}");
    }
    states.begin_pass(pass_start(5));
    scan_pages(&mut states, 5, 0..1024, |page| page % 128 >= 64 && page != 1023);
    scan.reset(AddrRange::new(0, 1024 * PAGE));
    states.mark_steadily_accessed(&mut scan);
    assert!(!scan.is_steadily_accessed(AddrRange::new(15 * WORD, 16 * WORD)));
}

#[test]
fn keep_only_forgets_highest_addresses() {
    // The highest page with five levels of page tables.
    let highest = Addr((1 << 56) - PAGE);
    let mut states = PageStates::default();
    let mut scan = ScanChunk::default();
    scan.reset(AddrRange::new(highest.0, highest.0 + PAGE));
    scan.set(highest, false);
    states.begin_pass(pass_start(1));
    states.update(&scan, Nanos::secs(1));
    states.end_pass(Nanos::secs(1));
    states.keep_only(&[AddrRange::new(0, PAGE)]);
    assert_eq!(runs(&states, 1), []);
}

#[test]
fn action_at_the_start_of_a_pass_keeps_its_time() {
    let mut states = PageStates::default();
    pass_over(&mut states, 1, 4, |_| false);
    states.restart_ages(std::iter::once(AddrRange::new(0, 4 * PAGE)), true, Nanos::secs(5));
    states.begin_pass(Nanos::secs(5));
    // Pages 4 to 7 are new. They count from the end of the pass.
    scan_pages(&mut states, 6, 0..8, |_| false);
    states.end_pass(Nanos::secs(8));
    let expected = [(0, 4, 5), (4, 8, 8)].map(|(from, to, at)| (from, to, State::Idle(Nanos::secs(at))));
    assert_eq!(runs(&states, 8), expected);
}

#[test]
fn idle_age_of_reaccess_includes_half_a_pass() {
    let mut states = PageStates::default();
    for at in (4..=40).step_by(4) {
        // Page 0 is accessed after 8 s, page 1 after 24 s; 2 s are half a pass.
        pass(
            &mut states,
            at,
            match at {
                16 => &[0, 1],
                24 => &[0],
                40 => &[1],
                _ => &[],
            },
        );
    }
    let mut expected = [Bytes(0); NR_AGES];
    // 10 and 26 s; both first accesses came after 14 s.
    expected[4] = Bytes(4 * PAGE);
    assert_eq!(states.take_tables(Nanos::secs(40)).reaccessed, expected);
}

#[test]
fn kind_changes_with_page_size_and_mapping() {
    let mut states = PageStates::default();
    let mut scan = ScanChunk::default();
    let all = AddrRange::new(0, 1024 * PAGE);
    let mut kinds = |states: &mut PageStates, at: u64, huge: bool| {
        states.begin_pass(pass_start(at));
        scan.reset(all);
        // The first chunk is resident, of the second only a part.
        scan.set_range(AddrRange::new(0, 768 * PAGE), false);
        if huge {
            scan.set_huge(AddrRange::new(0, 512 * PAGE));
        }
        states.update(&scan, Nanos::secs(at));
        states.end_pass(Nanos::secs(at));
        assert_counts_are_right(states);
        let idle = states.take_tables(Nanos::secs(at)).idle;
        idle.map(|ages| ages.iter().map(|bytes| bytes.0 / PAGE).sum::<u64>())
    };
    assert_eq!(kinds(&mut states, 1, false), [768, 0, 0, 0, 0, 0]);
    assert_eq!(kinds(&mut states, 2, true), [256, 512, 0, 0, 0, 0]);
    states.set_backings(Arc::new([(
        AddrRange::new(512 * PAGE, 1024 * PAGE),
        Backing::Shmem,
    )]));
    assert_eq!(kinds(&mut states, 3, true), [0, 512, 0, 0, 256, 0]);
    assert_eq!(kinds(&mut states, 4, false), [512, 0, 0, 0, 256, 0]);
}

#[test]
fn counts_stay_right_in_partly_and_wholly_hot_chunks() {
    let mut states = PageStates::default();
    for at in 1..=20 {
        pass_over(&mut states, at, 1536, |page| {
            page < 256 || (512..1024).contains(&page)
        });
        assert_counts_are_right(&states);
    }
    assert_eq!(ages(&mut states, 20)[..5], [768, 0, 0, 0, 768]);
    states.begin_pass(pass_start(21));
    scan_pages(&mut states, 21, 0..1024, |page| !(256..512).contains(&page));
    assert_counts_are_right(&states);
}

#[test]
fn backing_is_that_of_the_mapping_at_an_address() {
    let mut states = PageStates::default();
    states.set_backings(Arc::new([
        (AddrRange::new(PAGE, 2 * PAGE), Backing::File),
        (AddrRange::new(3 * PAGE, 4 * PAGE), Backing::Shmem),
    ]));
    let backings = [0, 1, 2, 3, 4].map(|page| states.backing_at(Addr(page * PAGE)));
    use Backing::{Anon, File, Shmem};
    assert_eq!(backings, [Anon, File, Anon, Shmem, Anon]);
}

#[test]
fn tables_before_the_first_complete_pass_are_as_of_now() {
    let mut states = PageStates::default();
    states.begin_pass(Nanos::secs(1));
    scan_pages(&mut states, 2, 0..8, |_| false);
    let tables = states.take_tables(Nanos::secs(3));
    assert_eq!((tables.nr_passes, tables.as_of), (0, Nanos::secs(3)));
}

#[test]
fn idle_for_finds_pages_by_their_idle_time() {
    let mut states = PageStates::default();
    for at in 1..=10 {
        pass(&mut states, at, if at <= 6 { &[2, 5] } else { &[2] });
    }
    let idle_for = |age: u64| -> Vec<(u64, u64)> {
        let ranges = states.idle_for(Nanos::secs(age), Nanos::secs(10));
        ranges
            .map(|range| (range.start.0 / PAGE, range.end.0 / PAGE))
            .collect()
    };
    // Page 5 was accessed last in the sixth pass, page 2 in the last.
    assert_eq!(idle_for(0), [(0, 2), (3, 5), (5, 6), (6, 8)]);
    assert_eq!(idle_for(4), [(0, 2), (3, 5), (5, 6), (6, 8)]);
    assert_eq!(idle_for(5), [(0, 2), (3, 5), (6, 8)]);
    assert_eq!(idle_for(9), [(0, 2), (3, 5), (6, 8)]);
    assert_eq!(idle_for(10), []);
}

#[test]
fn restart_age_changes_only_pages_in_range_of_uniform_chunk() {
    let mut states = PageStates::default();
    for at in 1..=2 {
        pass_over(&mut states, at, 1024, |_| false);
    }
    states.restart_ages(
        std::iter::once(AddrRange::new(600 * PAGE, 700 * PAGE)),
        true,
        Nanos::secs(9),
    );
    let idle = |at| State::Idle(Nanos::secs(at));
    let expected = [(0, 600, idle(1)), (600, 700, idle(9)), (700, 1024, idle(1))];
    assert_eq!(runs(&states, 10), expected);
    assert_counts_are_right(&states);
}

#[test]
fn counts_stay_right_when_parts_of_chunks_restart() {
    let mut states = PageStates::default();
    let pages = |from: u64, to: u64| AddrRange::new(from * PAGE, to * PAGE);
    states.set_backings(Arc::new([
        (pages(0, 100), Backing::File),
        (pages(100, 512), Backing::Anon),
        (pages(512, 1024), Backing::Shmem),
    ]));
    for at in 1..=4 {
        pass_over(&mut states, at, 1024, |page| page % 3 == at % 2);
    }
    for (from, to) in [(90, 110), (3, 4), (300, 700), (512, 1024), (0, 1024)] {
        states.restart_ages(std::iter::once(pages(from, to)), true, Nanos::secs(9 + from));
        assert_counts_are_right(&states);
        states.set_absent(pages(from, from + 1));
        assert_counts_are_right(&states);
    }
}

/// Pages accessed again since the last call, by the bucket of their idle age, at second `at`.
fn reaccessed(states: &mut PageStates, at: u64) -> Vec<(usize, u64)> {
    let tables = states.take_tables(Nanos::secs(at));
    let pages = tables.reaccessed.iter().map(|bytes| bytes.0 / PAGE);
    pages.enumerate().filter(|(_, pages)| *pages > 0).collect()
}

#[test]
fn page_that_was_paged_out_and_came_back_is_reaccessed_after_its_whole_idle_time() {
    let mut states = PageStates::default();
    for at in 1..=40 {
        pass(&mut states, at, &[0]);
    }
    assert_eq!(reaccessed(&mut states, 40), []);
    states.restart_ages(
        std::iter::once(AddrRange::new(0, 8 * PAGE)),
        true,
        Nanos::secs(40),
    );
    // Pages 4 to 7 stay resident, for example because swap is full. Pages 1 to 3 are paged out.
    for at in 41..=59 {
        pass_of(&mut states, at, &[0], 4..8);
    }
    assert_eq!(reaccessed(&mut states, 59), []);
    pass_of(&mut states, 60, &[0, 2, 5], 4..8);
    assert_eq!(reaccessed(&mut states, 60), [(age_bucket(Nanos::secs(59)), 2)]);
    // Each counts once.
    pass_of(&mut states, 61, &[0, 2, 5], 4..8);
    assert_eq!(reaccessed(&mut states, 61), []);
    assert_counts_are_right(&states);
    // A second action keeps the access before the first one.
    states.restart_ages(
        std::iter::once(AddrRange::new(0, 8 * PAGE)),
        true,
        Nanos::secs(70),
    );
    pass_of(&mut states, 131, &[1, 4], 4..8);
    assert_eq!(reaccessed(&mut states, 131), [(age_bucket(Nanos::secs(130)), 2)]);
}

/// One pass at second `at`: the pages of `resident` and `accessed` are resident, `accessed` were accessed.
fn pass_of(states: &mut PageStates, at: u64, accessed: &[u64], resident: std::ops::Range<u64>) {
    states.begin_pass(pass_start(at));
    let mut scan = ScanChunk::default();
    scan.reset(AddrRange::new(0, CHUNK));
    resident.for_each(|page| scan.set(Addr(page * PAGE), false));
    accessed.iter().for_each(|page| scan.set(Addr(page * PAGE), true));
    states.update(&scan, Nanos::secs(at));
    states.end_pass(Nanos::secs(at));
}

#[test]
fn whole_chunks_that_were_paged_out_keep_their_last_access_until_unmapped() {
    let mut states = PageStates::default();
    for at in 1..=3 {
        pass_over(&mut states, at, 1024, |_| false);
    }
    states.restart_ages(
        std::iter::once(AddrRange::new(0, 2 * CHUNK)),
        true,
        Nanos::secs(3),
    );
    for at in 4..=300 {
        pass_of(&mut states, at, &[], 0..0);
    }
    assert!(states.chunks.is_empty());
    states.keep_only(&[AddrRange::new(0, CHUNK)]);
    pass_over(&mut states, 301, 1024, |_| true);
    assert_eq!(
        reaccessed(&mut states, 301),
        [(age_bucket(Nanos::secs(300)), 512)]
    );
    assert!(states.acted_on.chunks(0..u64::MAX).is_empty());
}

#[test]
fn recently_idle_pages_keep_the_pass_of_their_last_access() {
    let mut states = passes_of_64(1..=20, |at, page| page >= 8 && at < 16);
    states.restart_ages(
        std::iter::once(AddrRange::new(0, 64 * PAGE)),
        true,
        Nanos::secs(21),
    );
    pass_of(&mut states, 41, &[10, 11], 0..64);
    let idle = Nanos::secs(41 - 15);
    assert_eq!(reaccessed(&mut states, 41), [(age_bucket(idle), 2)]);
}

#[test]
fn kept_accesses_survive_renumbered_timestamps() {
    let mut states = PageStates::default();
    pass_over(&mut states, 1, 8, |_| false);
    states.restart_ages(std::iter::once(AddrRange::new(0, PAGE)), true, Nanos::secs(1));
    // Many timestamps, each in use for one page.
    for at in 2..=400 {
        pass_of(&mut states, at, &[8 + at], 8..512);
    }
    reaccessed(&mut states, 400);
    pass_of(&mut states, 401, &[0], 8..512);
    assert_eq!(reaccessed(&mut states, 401), [(age_bucket(Nanos::secs(400)), 1)]);
}

#[test]
fn old_ages_stay_while_every_pass_adds_an_age() {
    let mut states = PageStates::default();
    for at in 1..=2000 {
        pass_of(&mut states, at, &[8 + at % 504], 0..512);
    }
    let old = ages(&mut states, 2000);
    assert_eq!(old[age_bucket(Nanos::secs(1800))], 8, "{old:?}");
}
