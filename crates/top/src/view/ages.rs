//! Resident memory of a target by idle age and kind.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Row, Table, Widget};
use thermo_agent::api::{AgeBytes, KindAges, Target};

use super::text;
use super::theme::Theme;
use crate::model::Model;

/// Widths of the columns.
const AGE: usize = 14;
const SIZE: usize = 8;
const REACCESSED: usize = 10;
const KIND: usize = 10;
const MIN_BAR: usize = 6;

/// Draws the table.
pub(super) fn draw(model: &Model, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let Some(target) = model.selected() else {
        return;
    };
    let kinds = kinds(target, usize::from(area.width));
    let fixed = AGE + SIZE + REACCESSED + 3 + kinds.len() * (KIND + 1);
    let bar = usize::from(area.width).saturating_sub(fixed);
    let mut widths = vec![AGE, SIZE, bar.saturating_sub(1)];
    widths.extend(std::iter::repeat_n(KIND, kinds.len()));
    widths.push(REACCESSED);
    let constraints = widths
        .iter()
        .map(|width| Constraint::Length(u16::try_from(*width).unwrap_or(u16::MAX)));
    let largest = target.ages.iter().map(|age| age.bytes);
    let largest = largest.chain([target.unknown_bytes]).max().unwrap_or(0);
    let bar_of = |bytes: u64| {
        let share = bytes as f64 / largest.max(1) as f64;
        let length = (share * widths[2] as f64).round() as usize;
        let length = length.max(usize::from(bytes > 0));
        Cell::from(Span::styled("█".repeat(length), theme.colour(33)))
    };
    let mut rows = age_rows(target, &kinds, bar_of);
    rows.push(unknown_row(target, &kinds, bar_of));
    Table::new(rows, constraints)
        .header(header(theme, &kinds))
        .render(area, buffer);
}

/// The kinds of memory that fit in `width` columns: huge pages are added to the others if they do not.
fn kinds(target: &Target, width: usize) -> Vec<KindAges> {
    let fits = |count: usize| AGE + SIZE + REACCESSED + MIN_BAR + 3 + count * (KIND + 1) <= width;
    if fits(target.kinds.len()) {
        return target.kinds.clone();
    }
    let mut merged: Vec<KindAges> = Vec::new();
    for kind in &target.kinds {
        let name = kind.kind.strip_suffix("_huge").unwrap_or(&kind.kind);
        match merged.iter_mut().find(|known| known.kind == name) {
            Some(known) => {
                for (sum, age) in known.ages.iter_mut().zip(&kind.ages) {
                    sum.bytes = sum.bytes.saturating_add(age.bytes);
                }
            }
            None => merged.push(KindAges {
                kind: name.to_owned(),
                ages: kind.ages.clone(),
            }),
        }
    }
    merged.truncate((0..=merged.len()).rev().find(|count| fits(*count)).unwrap_or(0));
    merged
}

fn header(theme: Theme, kinds: &[KindAges]) -> Row<'static> {
    let right = |text: &str| Cell::from(Text::from(text.to_owned()).right_aligned());
    let mut cells = vec![Cell::from(" idle for"), right("all"), Cell::from("")];
    cells.extend(kinds.iter().map(|kind| right(&text::line(&kind.kind))));
    cells.push(right("reaccessed"));
    Row::new(cells).style(theme.heading())
}

/// The ages up to the oldest with bytes. No row is left out between.
fn age_rows(target: &Target, kinds: &[KindAges], bar: impl Fn(u64) -> Cell<'static>) -> Vec<Row<'static>> {
    let has_bytes = |ages: &[AgeBytes], nth: usize| ages.get(nth).is_some_and(|age| age.bytes > 0);
    let shown = (0..target.ages.len())
        .rev()
        .find(|nth| has_bytes(&target.ages, *nth) || has_bytes(&target.reaccess, *nth));
    let row = |nth: usize| {
        let age = &target.ages[nth];
        let bytes = |ages: &[AgeBytes]| size_cell(ages.get(nth).map_or(0, |age| age.bytes));
        let mut cells = vec![
            Cell::from(format!(" {}", text::age_range(age))),
            size_cell(age.bytes),
            bar(age.bytes),
        ];
        cells.extend(kinds.iter().map(|kind| bytes(&kind.ages)));
        cells.push(bytes(&target.reaccess));
        Row::new(cells)
    };
    (0..=shown.unwrap_or(0).min(target.ages.len().saturating_sub(1)))
        .take(target.ages.len())
        .map(row)
        .collect()
}

/// Bytes of unknown age have no kind.
fn unknown_row(target: &Target, kinds: &[KindAges], bar: impl Fn(u64) -> Cell<'static>) -> Row<'static> {
    let mut cells = vec![
        Cell::from(" unknown"),
        size_cell(target.unknown_bytes),
        bar(target.unknown_bytes),
    ];
    cells.extend(kinds.iter().map(|_| Cell::from("")));
    Row::new(cells)
}

fn size_cell(bytes: u64) -> Cell<'static> {
    let text = if bytes == 0 {
        "-".to_owned()
    } else {
        text::size(bytes)
    };
    Cell::from(Line::raw(text).right_aligned())
}
