//! Bytes of pages over rounds, worked out by hand.

use super::*;

const PAGE: u64 = PAGE_SIZE;

/// One round at second `at` over eight pages of which `touched` were touched.
fn round(heat: &mut PageHeat, at: u64, touched: &[u64]) {
    let mut piece = Piece::default();
    piece.reset(AddrRange::new(0, 8 * PAGE));
    for page in 0..8 {
        piece.set(Addr(page * PAGE), touched.contains(&page));
    }
    heat.take_in(&piece, Nanos::secs(at));
    heat.end_round(Nanos::secs(at));
}

fn states(heat: &PageHeat) -> Vec<(u64, u64, State)> {
    heat.runs()
        .map(|run| (run.range.start.0 / PAGE, run.range.end.0 / PAGE, run.state))
        .collect()
}

#[test]
fn rounds_are_counted_and_then_pages_are_idle_since() {
    let mut heat = PageHeat::default();
    for at in 1..=3 {
        round(&mut heat, at, &[2, 3]);
    }
    assert_eq!(
        states(&heat),
        [
            (0, 2, State::Idle(Nanos::secs(1))),
            // In both of the rounds that could tell.
            (2, 4, State::Touched(7)),
            (4, 8, State::Idle(Nanos::secs(1)))
        ]
    );
    for at in 4..=9 {
        round(&mut heat, at, &[]);
    }
    // Touched last in the round that ended at 3 s; that one is still in the window of seven.
    assert_eq!(states(&heat)[1].2, State::Touched(1));
    round(&mut heat, 10, &[]);
    assert_eq!(states(&heat)[1], (2, 4, State::Idle(Nanos::secs(3))));
}

#[test]
fn sums_are_of_pages() {
    let mut heat = PageHeat::default();
    round(&mut heat, 0, &[]);
    round(&mut heat, 1, &[0, 1]);
    round(&mut heat, 2, &[1]);
    let sums = heat.sums();
    assert_eq!(
        (sums.touched_last.0, sums.touched.0, sums.idle.0),
        (PAGE, 2 * PAGE, 6 * PAGE)
    );
}

#[test]
fn slots_never_run_out_and_nothing_looks_older_than_it_is() {
    let mut heat = PageHeat::default();
    round(&mut heat, 1, &[]);
    for at in 2..2000 {
        // Page 1 is touched now and then, page 0 never.
        round(&mut heat, at, if at % 100 == 0 { &[1] } else { &[] });
        assert!(heat.slots.len() <= SLOTS);
        assert!(heat.slots.is_sorted());
    }
    let State::Idle(since) = states(&heat)[0].2 else {
        panic!("page 0 was never touched")
    };
    assert!(since >= Nanos::secs(1) && since < Nanos::secs(1000), "{since}");
    assert_eq!(states(&heat)[1], (1, 2, State::Idle(Nanos::secs(1900))));
}

#[test]
fn what_goes_is_forgotten_and_what_was_acted_on_begins_anew() {
    let mut heat = PageHeat::default();
    round(&mut heat, 1, &[0]);
    heat.restart_age(AddrRange::new(0, 4 * PAGE), true, Nanos::secs(9));
    assert_eq!(states(&heat)[1].2, State::Idle(Nanos::secs(9)));
    assert_eq!(states(&heat)[2].2, State::Idle(Nanos::secs(1)));
    heat.keep_only(&[AddrRange::new(CHUNK, 2 * CHUNK)]);
    assert!(states(&heat).is_empty());
}

#[test]
fn the_last_page_of_a_chunk_is_seen_wherever_the_piece_begins() {
    let mut heat = PageHeat::default();
    heat.end_round(Nanos::ZERO);
    let mut piece = Piece::default();
    piece.reset(AddrRange::new(CHUNK - PAGE, 2 * CHUNK));
    piece.set(Addr(2 * CHUNK - PAGE), true);
    heat.take_in(&piece, Nanos::secs(1));
    assert_eq!(heat.sums().touched_last, Bytes(PAGE));
}

#[test]
fn codes_stay_right_when_making_room_for_them() {
    let mut heat = PageHeat {
        rounds: vec![Nanos::secs(50)],
        slots: (100..).map(Nanos::secs).take(SLOTS - 1).collect(),
        ..PageHeat::default()
    };
    let (fresh, went_idle) = heat.idle_codes(Nanos::secs(1000));
    assert_eq!(heat.state(fresh), Some(State::Idle(Nanos::secs(1000))));
    assert_eq!(heat.state(went_idle), Some(State::Idle(Nanos::secs(50))));
}

#[test]
fn what_is_unmapped_is_forgotten_to_the_page() {
    let mut heat = PageHeat::default();
    round(&mut heat, 1, &[]);
    heat.keep_only(&[
        AddrRange::new(2 * PAGE, 3 * PAGE),
        AddrRange::new(6 * PAGE, 9 * PAGE),
    ]);
    let idle = State::Idle(Nanos::secs(1));
    assert_eq!(states(&heat), [(2, 3, idle), (6, 8, idle)]);
}

#[test]
fn the_first_round_tells_nothing_of_what_is_marked() {
    let mut heat = PageHeat::default();
    round(&mut heat, 1, &[0, 1]);
    assert_eq!(states(&heat)[0], (0, 2, State::Unknown));
    round(&mut heat, 2, &[1]);
    assert_eq!(
        states(&heat)[..2],
        [(0, 1, State::Idle(Nanos::secs(2))), (1, 2, State::Touched(7))]
    );
}

/// Round after round over 64 pages, the pages of which `touched` says were touched in it.
fn rounds_of_64(rounds: std::ops::RangeInclusive<u64>, touched: impl Fn(u64, u64) -> bool) -> PageHeat {
    let mut heat = PageHeat::default();
    for at in rounds {
        let mut piece = Piece::default();
        piece.reset(AddrRange::new(0, 64 * PAGE));
        for page in 0..64 {
            piece.set(Addr(page * PAGE), touched(at, page));
        }
        heat.take_in(&piece, Nanos::secs(at));
        heat.end_round(Nanos::secs(at));
    }
    heat
}

#[test]
fn neighbours_that_change_together_are_what_they_are_since() {
    // The first half is touched until 18 s, the second from 19 s on.
    let heat = rounds_of_64(1..=20, |at, page| (page < 32) == (at < 19));
    assert_eq!(
        states(&heat),
        [
            (0, 32, State::Idle(Nanos::secs(18))),
            (32, 64, State::Touched(WINDOW))
        ]
    );
    // A round earlier it might have been a pause.
    let heat = rounds_of_64(1..=19, |at, page| (page < 32) == (at < 19));
    assert_eq!(
        states(&heat),
        [(0, 32, State::Touched(6)), (32, 64, State::Touched(1))]
    );
}

#[test]
fn few_pages_and_pauses_are_told_by_the_window() {
    let heat = rounds_of_64(1..=20, |at, page| (page < 8) == (at < 19));
    assert_eq!(states(&heat)[0], (0, 8, State::Touched(5)));
    // Touched in two rounds of four, again and again.
    let heat = rounds_of_64(1..=20, |at, _| at % 4 < 2);
    assert!(matches!(states(&heat)[..], [(0, 64, State::Touched(3 | 4))]));
}

#[test]
fn what_changed_and_was_acted_on_begins_anew() {
    let mut heat = rounds_of_64(1..=20, |at, _| at < 19);
    heat.restart_age(AddrRange::new(0, 32 * PAGE), true, Nanos::secs(21));
    assert_eq!(states(&heat)[0], (0, 32, State::Idle(Nanos::secs(21))));
    assert_eq!(states(&heat)[1], (32, 64, State::Idle(Nanos::secs(18))));
}

#[test]
fn what_was_acted_on_as_touched_stays_touched() {
    let mut heat = rounds_of_64(1..=20, |at, page| page >= 8 && at < 19 || page >= 32);
    heat.restart_age(AddrRange::new(0, 24 * PAGE), false, Nanos::secs(21));
    let expected = [
        (0, 8, State::Idle(Nanos::secs(21))),
        (8, 32, State::Idle(Nanos::secs(18))),
        (32, 64, State::Touched(WINDOW)),
    ];
    assert_eq!(states(&heat), expected);
    // The rest of a run, too short to be told as idle by itself, was told of with the others.
    heat.restart_age(AddrRange::new(8 * PAGE, 24 * PAGE), true, Nanos::secs(22));
    assert_eq!(states(&heat)[2], (24, 32, State::Touched(5)));
    heat.restart_age(AddrRange::new(24 * PAGE, 32 * PAGE), true, Nanos::secs(22));
    assert_eq!(states(&heat)[1], (8, 32, State::Idle(Nanos::secs(22))));
}

#[test]
fn many_that_changed_a_round_ago_are_worth_another_look() {
    let changing = |heat: &PageHeat| {
        let pages = |range: AddrRange| (range.start.0 / PAGE, range.end.0 / PAGE);
        heat.changing(EVERYWHERE).map(pages).collect::<Vec<_>>()
    };
    let until = |end: u64| rounds_of_64(1..=20, move |at, page| page >= 32 || at < end);
    assert_eq!(changing(&until(21)), []);
    assert_eq!(changing(&until(20)), [(0, 32)]);
    assert_eq!(changing(&until(19)), [], "that is told already");
    let of = |count: u64| rounds_of_64(1..=20, move |at, page| page < count && at == 20 || page >= 32);
    assert_eq!(changing(&of(16)), [(0, 16)]);
    assert_eq!(changing(&of(15)), [], "so few may do so by chance");
    let early = rounds_of_64(1..=6, |at, page| page >= 32 || at < 6);
    assert_eq!(changing(&early), []);
}

#[test]
fn a_look_at_some_pages_leaves_the_others_as_they_are() {
    let mut heat = rounds_of_64(1..=20, |at, page| page >= 32 || at < 20);
    let before = states(&heat);
    let mut piece = Piece::default();
    piece.reset(AddrRange::new(0, 64 * PAGE));
    piece.ask_only(heat.changing(EVERYWHERE));
    (0..64).for_each(|page| piece.set(Addr(page * PAGE), false));
    heat.take_in(&piece, Nanos::secs(21));
    heat.end_round(Nanos::secs(21));
    assert_eq!(states(&heat)[0], (0, 32, State::Idle(Nanos::secs(19))));
    assert_eq!(states(&heat)[1], before[1]);
    // What is asked for and gone is forgotten, and nothing else.
    let mut heat = rounds_of_64(1..=20, |at, page| page >= 32 || at < 20);
    piece.reset(AddrRange::new(0, 64 * PAGE));
    piece.ask_only(heat.changing(EVERYWHERE));
    heat.take_in(&piece, Nanos::secs(21));
    assert_eq!(states(&heat), before[1..]);
}

#[test]
fn words_touched_in_both_of_the_last_rounds_are_steady() {
    let heat = rounds_of_64(1..=20, |at, _| at != 18);
    let steady = |heat: &PageHeat, range| {
        let mut piece = Piece::default();
        piece.reset(range);
        heat.tell_steady(&mut piece);
        [0, 64].map(|page| piece.is_steady(AddrRange::new(page * PAGE, (page + 64) * PAGE)))
    };
    let all = AddrRange::new(0, 128 * PAGE);
    assert_eq!(steady(&heat, all), [true, false]);
    assert_eq!(
        steady(&heat, AddrRange::new(64 * PAGE, 128 * PAGE)),
        [false, false]
    );
    let heat = rounds_of_64(1..=20, |at, page| page > 0 || at != 19);
    assert_eq!(steady(&heat, all), [false, false]);
}

#[test]
fn page_table_pages_are_steady_as_a_whole_or_not() {
    let mut heat = PageHeat::default();
    let mut piece = Piece::default();
    let mut round = |idle: AddrRange, at: u64| {
        piece.reset(AddrRange::new(0, 4 * CHUNK));
        piece.set_range(idle, false);
        piece.set_range(AddrRange::new(0, idle.start.0), true);
        piece.set_range(AddrRange::new(idle.end.0, 4 * CHUNK), true);
        heat.take_in(&piece, Nanos::secs(at));
        heat.end_round(Nanos::secs(at));
        heat.clone()
    };
    let steady = |heat: &PageHeat, from: u64, to: u64| {
        let steady = heat.steady(AddrRange::new(from * PAGE, to * PAGE));
        steady.map(|range| range.start.0 / CHUNK).collect::<Vec<_>>()
    };
    (1..=3).for_each(|at| drop(round(AddrRange::default(), at)));
    let heat = round(AddrRange::default(), 4);
    assert_eq!(steady(&heat, 0, 4 * 512), [0, 1, 2, 3]);
    // One that is covered in part is not told of.
    assert_eq!(steady(&heat, 1, 4 * 512 - 1), [1, 2]);
    assert_eq!(steady(&heat, 5, 9), []);
    let heat = round(AddrRange::new(CHUNK + 5 * PAGE, CHUNK + 6 * PAGE), 5);
    assert_eq!(steady(&heat, 0, 4 * 512), [0, 2, 3]);
}
