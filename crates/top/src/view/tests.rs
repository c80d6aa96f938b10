//! Every screen, at two sizes.

use insta::assert_snapshot;
use jiff::tz::Offset;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::fixture;
use crate::model::Key;

fn theme(colours: Colours) -> Theme {
    Theme {
        colours,
        ascii: false,
        offset: Offset::UTC,
    }
}

/// The screen of `model`, without the spaces at the ends of lines.
fn screen_with(model: &Model, theme: Theme, (width, height): (u16, u16)) -> String {
    let terminal = Terminal::new(TestBackend::new(width, height));
    let Ok(mut terminal) = terminal;
    let Ok(_) = terminal.draw(|frame| render(model, theme, frame.area(), frame.buffer_mut()));
    let buffer = terminal.backend().buffer();
    let rows = buffer.content.chunks(usize::from(width));
    let text = |row: &[ratatui::buffer::Cell]| {
        let symbols: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
        symbols.trim_end().to_owned()
    };
    rows.map(text).collect::<Vec<String>>().join("\n")
}

fn small(model: &Model) -> String {
    screen_with(model, theme(Colours::None), (80, 24))
}

fn large(model: &Model) -> String {
    screen_with(model, theme(Colours::True), (200, 50))
}

fn pressed(mut model: Model, keys: &[Key]) -> Model {
    keys.iter().for_each(|key| model.update(*key));
    model
}

#[test]
fn targets_screen_fits_both_sizes() {
    assert_snapshot!("targets_80x24", small(&fixture::agent()));
    let by_name = pressed(fixture::agent(), &[Key::Char('n'), Key::Char('a'), Key::Down]);
    assert_snapshot!("targets_200x50", large(&by_name));
}

#[test]
fn detail_screen_has_tabs_or_all_parts() {
    let detail = |keys: &[Key]| pressed(pressed(fixture::agent(), &[Key::Enter]), keys);
    assert_snapshot!("ages_80x24", small(&detail(&[])));
    assert_snapshot!("heatmap_80x24", small(&detail(&[Key::Tab])));
    assert_snapshot!("decisions_80x24", small(&detail(&[Key::Char('3'), Key::Down])));
    assert_snapshot!("detail_200x50", large(&detail(&[])));
}

#[test]
fn policies_screen_shows_guard_and_question() {
    let policies = pressed(fixture::agent(), &[Key::Char('p')]);
    assert_snapshot!("policies_80x24", small(&policies));
    let question = pressed(policies, &[Key::Down, Key::Enter]);
    assert_snapshot!("question_200x50", large(&question));
}

#[test]
fn replay_has_time_line() {
    let replay = pressed(
        fixture::replay(),
        &[Key::Char('b'), Key::Char('>'), Key::Char('+')],
    );
    assert_snapshot!("replay_80x24", small(&replay));
    assert_snapshot!("replay_help_80x24", small(&pressed(replay, &[Key::Char('?')])));
}

#[test]
fn lost_agent_is_shown_with_last_figures() {
    let mut model = fixture::agent();
    model.lost = Some("no agent at /run/thermo/agent.sock: No such file or directory".to_owned());
    let text = small(&model);
    assert!(text.contains("No such file or directory; retrying"), "{text}");
    assert!(text.contains("mariadb "));
}

#[test]
fn no_screen_panics_at_any_size_or_without_figures() {
    let empty = Model::new(crate::source::Facts::default());
    for model in [fixture::agent(), fixture::replay(), empty] {
        for keys in [
            &[][..],
            &[Key::Enter],
            &[Key::Enter, Key::Char('2')],
            &[Key::Enter, Key::Char('3')],
            &[Key::Char('p'), Key::Enter],
            &[Key::Char('?')],
        ] {
            let model = pressed(model.clone(), keys);
            for size in [
                (1, 1),
                (59, 15),
                (60, 16),
                (61, 40),
                (130, 20),
                (140, 42),
                (300, 17),
                (300, 100),
            ] {
                for colours in [Colours::None, Colours::Indexed] {
                    screen_with(&model, theme(colours), size);
                    let _ = heatmap_cells(&model, theme(colours), Rect::new(0, 0, size.0, size.1));
                }
            }
        }
    }
}

#[test]
fn ascii_terminal_gets_ascii() {
    let ascii = Theme {
        ascii: true,
        ..theme(Colours::Indexed)
    };
    for keys in [&[][..], &[Key::Enter], &[Key::Enter, Key::Tab], &[Key::Char('?')]] {
        let text = screen_with(&pressed(fixture::replay(), keys), ascii, (80, 24));
        assert!(text.is_ascii() && !text.contains("???"), "{text}");
    }
}

#[test]
fn every_line_fits_and_no_word_is_cut() {
    let agent = fixture::agent();
    for keys in [
        &[][..],
        &[Key::Enter],
        &[Key::Enter, Key::Char('3')],
        &[Key::Char('p')],
        &[Key::Char('?')],
    ] {
        let model = pressed(agent.clone(), keys);
        let text = small(&model);
        // Names of users may be cut, marked so; all other words are whole.
        let cut = text.matches('…').count();
        assert!(cut <= 1, "{text}");
    }
}
