//! Keys and answers in, what is shown out.

use super::*;
use crate::fixture;

fn press(model: &mut Model, keys: &str) {
    keys.chars().for_each(|key| model.update(Key::Char(key)));
}

fn names(model: &Model) -> Vec<&str> {
    model
        .rows()
        .iter()
        .map(|row| row.name.split('.').next().unwrap_or_default())
        .collect()
}

fn selected(model: &Model) -> &str {
    model.selected().map_or("", |target| &target.name)
}

#[test]
fn targets_are_sorted_by_key_and_reversed_by_same_key() {
    let mut model = fixture::agent();
    let cache = "redis-server@cache-of-the-web-shop";
    assert_eq!(names(&model), ["mariadb", cache, "nginx", "cron"]);
    press(&mut model, "s");
    assert_eq!(names(&model), ["mariadb", "nginx", "cron", cache]);
    press(&mut model, "s");
    assert_eq!(names(&model), [cache, "cron", "nginx", "mariadb"]);
    press(&mut model, "n");
    assert_eq!(names(&model), ["cron", "mariadb", "nginx", cache]);
    press(&mut model, "R");
    assert_eq!(names(&model), [cache, "nginx", "mariadb", "cron"]);
    press(&mut model, "f");
    assert_eq!((names(&model)[0], model.reversed), ("mariadb", false));
    press(&mut model, "r");
    assert_eq!(names(&model)[0], "mariadb");
}

#[test]
fn selection_follows_target_not_row() {
    let mut model = fixture::agent();
    assert_eq!(selected(&model), "mariadb.service");
    model.update(Key::Down);
    model.update(Key::Down);
    assert_eq!(selected(&model), "nginx.service");
    press(&mut model, "s");
    assert_eq!((selected(&model), model.selected_row()), ("nginx.service", 1));
    model.update(Key::End);
    assert_eq!(model.selected_row(), 3);
    model.update(Key::PageUp);
    assert_eq!(model.selected_row(), 0);
    model.update(Key::Home);
    model.update(Key::Up);
    assert_eq!(model.selected_row(), 0);
}

#[test]
fn ended_target_leaves_list_and_stays_on_its_screen() {
    let mut model = fixture::agent();
    model.update(Key::Enter);
    assert_eq!(
        (model.screen, selected(&model)),
        (Screen::Detail, "mariadb.service")
    );
    model
        .targets
        .targets
        .retain(|target| target.name != "mariadb.service");
    assert_eq!((model.selected(), model.selected_id().is_some()), (None, true));
    model.update(Key::Escape);
    assert_eq!(model.screen, Screen::Targets);
    assert_eq!(model.selected_row(), 0);
    assert!(selected(&model).starts_with("redis"));
}

#[test]
fn detail_asks_for_its_target_and_has_tabs() {
    let mut model = fixture::agent();
    assert_eq!(model.request((9, 8)).detail, None);
    model.update(Key::Enter);
    let extent = model.request((9, 8)).detail;
    let extent = extent.map(|extent| (extent.target.name, extent.columns, extent.rows));
    assert_eq!(extent, Some(("mariadb.service".to_owned(), 9, 8)));
    for tab in [Tab::Heatmap, Tab::Decisions, Tab::Ages] {
        model.update(Key::Tab);
        assert_eq!(model.tab, tab);
    }
    press(&mut model, "3");
    assert_eq!(model.tab, Tab::Decisions);
    (0..9).for_each(|_| model.update(Key::Down));
    assert_eq!(model.scroll, 3, "the last decision stays");
    assert!(model.detail.is_some());
    model.update(Key::Escape);
    model.update(Key::Down);
    model.update(Key::Enter);
    assert_eq!((model.scroll, model.detail.is_none()), (0, true));
}

#[test]
fn empty_list_has_nothing_to_open() {
    let mut model = Model::new(Facts::default());
    for key in [Key::Down, Key::End, Key::Enter] {
        model.update(key);
    }
    assert_eq!((model.screen, model.selected()), (Screen::Targets, None));
    press(&mut model, "p");
    model.update(Key::Down);
    model.update(Key::Enter);
    assert_eq!((model.screen, model.question.is_none()), (Screen::Policies, true));
}

#[test]
fn pausing_needs_a_yes() {
    let mut model = fixture::agent();
    press(&mut model, "p");
    model.update(Key::Down);
    model.update(Key::Enter);
    let question = model.question.as_ref().map(PauseOrder::question);
    assert_eq!(
        question.as_deref(),
        Some("Pause policy cache: it will act on no target. (y/n)")
    );
    press(&mut model, "q");
    assert_eq!((model.ending, model.request((1, 1)).order), (None, None));
    assert_eq!(model.notice.as_deref(), Some("Nothing was changed."));
    model.update(Key::Enter);
    press(&mut model, "y");
    let order = model.request((1, 1)).order;
    assert_eq!(
        order.as_ref().map(|order| (order.policy.as_str(), order.pause)),
        Some(("cache", true))
    );
    assert_eq!(model.request((1, 1)).order, None, "an order is given once");
    let mut done = fixture::answer();
    done.order = order.map(|order| (order, Ok(())));
    model.receive(done);
    assert_eq!(model.notice.as_deref(), Some("Policy cache is paused."));
}

#[test]
fn paused_policy_is_resumed() {
    let mut model = fixture::agent();
    press(&mut model, "p");
    model.update(Key::End);
    model.update(Key::Enter);
    press(&mut model, "y");
    let order = model.request((1, 1)).order;
    assert_eq!(
        order.map(|order| (order.policy, order.pause)),
        Some(("web".to_owned(), false))
    );
}

#[test]
fn replay_has_nothing_to_pause() {
    let mut model = fixture::replay();
    press(&mut model, "p");
    model.update(Key::Enter);
    assert_eq!((model.question.is_none(), model.notice.is_some()), (true, true));
}

#[test]
fn lost_agent_keeps_its_last_figures() {
    let mut model = fixture::agent();
    let lost = SourceError::Lost("no answer".to_owned());
    model.receive(Answer {
        list: Err(lost),
        detail: None,
        order: None,
    });
    assert_eq!(
        (model.lost.as_deref(), model.rows().len()),
        (Some("no answer"), 4)
    );
    model.receive(fixture::answer());
    assert_eq!(model.lost, None);
}

#[test]
fn replay_asks_for_its_moment() {
    let mut model = fixture::replay();
    assert_eq!(model.request((1, 1)).at, Some(fixture::NOON_MS));
    model.update(Key::Left);
    assert_eq!(model.request((1, 1)).at, Some(fixture::NOON_MS - 60_000));
    press(&mut model, "b ");
    model.tick(Duration::from_secs(60));
    assert_eq!(model.request((1, 1)).at, Some(fixture::NOON_MS - 3_540_000));
    assert_eq!(fixture::agent().request((1, 1)).at, None);
}

#[test]
fn help_is_closed_by_any_key_but_ctrl_c_ends() {
    let mut model = fixture::agent();
    press(&mut model, "?q");
    assert_eq!((model.help, model.ending), (false, None));
    press(&mut model, "q");
    assert_eq!(model.ending, Some(Ending::Quit));
    let mut model = fixture::agent();
    press(&mut model, "?");
    model.update(Key::Interrupt);
    assert_eq!(model.ending, Some(Ending::Interrupted));
}
