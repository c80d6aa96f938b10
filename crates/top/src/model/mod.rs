//! What is shown, and how keys and answers change it. Pure: no clock, no input, no output.

mod playback;
mod request;
mod sort;
#[cfg(test)]
mod tests;

use std::time::Duration;

use thermo_agent::api::{Policies, Policy, Target, Targets};

pub use playback::{Playback, PlaybackKey};
pub use request::{Answer, Detail, PauseOrder, Request, answer};
pub use sort::{IdleAge, SortKey, idle_from};

use crate::source::{Extent, Facts, SourceError, TargetId};

/// Rows that a page key moves.
const PAGE: usize = 10;

/// The screens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Screen {
    /// The list of targets.
    #[default]
    Targets,
    /// One target.
    Detail,
    /// The list of policies.
    Policies,
}

/// The parts of the detail screen. A small terminal shows one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tab {
    /// Idle ages by kind.
    #[default]
    Ages,
    /// The heatmap.
    Heatmap,
    /// The decisions.
    Decisions,
}

impl Tab {
    /// All tabs, in their order.
    pub const ALL: [Self; 3] = [Self::Ages, Self::Heatmap, Self::Decisions];

    /// The title.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Ages => "Idle ages",
            Self::Heatmap => "Heatmap",
            Self::Decisions => "Decisions",
        }
    }

    const fn next(self) -> Self {
        match self {
            Self::Ages => Self::Heatmap,
            Self::Heatmap => Self::Decisions,
            Self::Decisions => Self::Ages,
        }
    }
}

/// A key that was pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Arrow up.
    Up,
    /// Arrow down.
    Down,
    /// Arrow left.
    Left,
    /// Arrow right.
    Right,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// To the first row.
    Home,
    /// To the last row.
    End,
    /// Enter.
    Enter,
    /// Escape or backspace.
    Escape,
    /// Tab.
    Tab,
    /// A character.
    Char(char),
    /// Ctrl-C.
    Interrupt,
}

/// How the user left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By the key for it.
    Quit,
    /// By Ctrl-C.
    Interrupted,
}

/// What is shown.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Model {
    /// What the source knows.
    pub facts: Facts,
    /// The screen.
    pub screen: Screen,
    /// The part of the detail screen.
    pub tab: Tab,
    /// Whether the help covers the screen.
    pub help: bool,
    /// The question that the user has to answer.
    pub question: Option<PauseOrder>,
    /// The order of targets.
    pub sort: SortKey,
    /// Whether the order is reversed.
    pub reversed: bool,
    /// The idle age of the list.
    pub age: IdleAge,
    /// The replay; `None` for an agent.
    pub playback: Option<Playback>,
    /// The targets.
    pub targets: Targets,
    /// The policies.
    pub policies: Policies,
    /// The target of the detail screen, once it is read.
    pub detail: Option<Detail>,
    /// Number of newer decisions scrolled over.
    pub scroll: usize,
    /// Why the source does not answer; `None` if it does.
    pub lost: Option<String>,
    /// A message until the next key.
    pub notice: Option<String>,
    /// How the user left; `None` while running.
    pub ending: Option<Ending>,
    selected: Option<TargetId>,
    selected_policy: usize,
    order: Option<PauseOrder>,
}

impl Model {
    /// The first screen of a source.
    #[must_use]
    pub fn new(facts: Facts) -> Self {
        Self {
            playback: Playback::new(facts.times_ms.clone()),
            facts,
            ..Self::default()
        }
    }

    /// The targets in their order.
    #[must_use]
    pub fn rows(&self) -> Vec<&Target> {
        let mut rows: Vec<&Target> = self.targets.targets.iter().collect();
        rows.sort_by(|one, other| self.sort.compare(one, other, self.age.seconds()));
        if self.reversed {
            rows.reverse();
        }
        rows
    }

    /// The index in [`Model::rows`] of the selected target; the first if it has ended.
    #[must_use]
    pub fn selected_row(&self) -> usize {
        let selected = self.selected.as_ref();
        let found = |target: &&Target| Some(&id_of(target)) == selected;
        self.rows().iter().position(found).unwrap_or(0)
    }

    /// The selected target.
    #[must_use]
    pub fn selected(&self) -> Option<&Target> {
        match self.screen {
            // The detail screen stays with its target even if it has ended.
            Screen::Detail => {
                let mut targets = self.targets.targets.iter();
                targets.find(|target| Some(&id_of(target)) == self.selected.as_ref())
            }
            _ => self.rows().get(self.selected_row()).copied(),
        }
    }

    /// The name of the target of the detail screen.
    #[must_use]
    pub const fn selected_id(&self) -> Option<&TargetId> {
        self.selected.as_ref()
    }

    /// The index of the selected policy.
    #[must_use]
    pub fn selected_policy(&self) -> usize {
        self.selected_policy
            .min(self.policies.policies.len().saturating_sub(1))
    }

    /// The policy of `target`.
    #[must_use]
    pub fn policy_of(&self, target: &Target) -> Option<&Policy> {
        let mut policies = self.policies.policies.iter();
        policies.find(|policy| policy.name == target.policy)
    }

    /// What the source has to answer to fill the screen, with a heatmap of `cells` (columns, rows).
    pub fn request(&mut self, cells: (usize, usize)) -> Request {
        let extent = |target: &TargetId| Extent {
            target: target.clone(),
            columns: cells.0,
            rows: cells.1,
        };
        let target = self.selected.as_ref().filter(|_| self.screen == Screen::Detail);
        Request {
            at: self.playback.as_ref().map(Playback::time_ms),
            detail: target.map(extent),
            order: self.order.take(),
        }
    }

    /// Takes an answer in.
    pub fn receive(&mut self, answer: Answer) {
        match answer.list {
            Ok((targets, policies)) => {
                (self.targets, self.policies, self.lost) = (targets, policies, None);
            }
            Err(SourceError::Lost(why) | SourceError::Refused(why)) => self.lost = Some(why),
        }
        match answer.detail {
            Some(Ok(detail)) => self.detail = Some(detail),
            Some(Err(SourceError::Refused(why))) => self.notice = Some(why),
            Some(Err(SourceError::Lost(why))) => self.lost = Some(why),
            None => {}
        }
        match answer.order {
            Some((order, Ok(()))) => self.notice = Some(order.done_text()),
            Some((_, Err(why))) => self.notice = Some(why.to_string()),
            None => {}
        }
    }

    /// Lets `elapsed` of real time pass.
    pub fn tick(&mut self, elapsed: Duration) {
        if let Some(playback) = &mut self.playback {
            playback.tick(elapsed);
        }
    }

    /// Obeys a key.
    pub fn update(&mut self, key: Key) {
        self.notice = None;
        match key {
            Key::Interrupt => self.ending = Some(Ending::Interrupted),
            _ if self.help => self.help = false,
            _ if self.question.is_some() => self.answer_question(key),
            Key::Char('q') => self.ending = Some(Ending::Quit),
            Key::Char('?' | 'h') => self.help = true,
            Key::Escape => self.screen = Screen::Targets,
            key if self.replay_key(key) => {}
            key => match self.screen {
                Screen::Targets => self.targets_key(key),
                Screen::Detail => self.detail_key(key),
                Screen::Policies => self.policies_key(key),
            },
        }
    }

    fn answer_question(&mut self, key: Key) {
        match (self.question.take(), key) {
            (order, Key::Char('y' | 'Y')) => self.order = order,
            _ => self.notice = Some("Nothing was changed.".to_owned()),
        }
    }

    /// Whether `key` was for the replay.
    fn replay_key(&mut self, key: Key) -> bool {
        let Some(playback) = &mut self.playback else {
            return false;
        };
        let key = match key {
            Key::Char(' ') => PlaybackKey::Toggle,
            Key::Left => PlaybackKey::Back,
            Key::Right => PlaybackKey::Forward,
            Key::Char('<') => PlaybackKey::LongBack,
            Key::Char('>') => PlaybackKey::LongForward,
            Key::Char('b') => PlaybackKey::Begin,
            Key::Char('e') => PlaybackKey::End,
            Key::Char('+') => PlaybackKey::Faster,
            Key::Char('-') => PlaybackKey::Slower,
            _ => return false,
        };
        playback.update(key);
        true
    }

    fn targets_key(&mut self, key: Key) {
        match key {
            Key::Enter => self.open_detail(),
            Key::Char('p') => self.screen = Screen::Policies,
            Key::Char('a') => self.age = self.age.next(),
            Key::Char('R') => self.reversed = !self.reversed,
            Key::Char(c) => {
                if let Some(sort) = SortKey::from_char(c) {
                    self.reversed = self.sort == sort && !self.reversed;
                    self.sort = sort;
                }
            }
            key => {
                let row = moved(key, self.selected_row(), self.targets.targets.len());
                self.selected = self.rows().get(row).map(|target| id_of(target));
            }
        }
    }

    fn open_detail(&mut self) {
        let Some(id) = self.selected().map(id_of) else {
            return;
        };
        if self.detail.as_ref().is_some_and(|detail| detail.target != id) {
            self.detail = None;
        }
        (self.selected, self.screen, self.scroll) = (Some(id), Screen::Detail, 0);
    }

    fn detail_key(&mut self, key: Key) {
        match key {
            Key::Tab => self.tab = self.tab.next(),
            Key::Char('1') => self.tab = Tab::Ages,
            Key::Char('2') => self.tab = Tab::Heatmap,
            Key::Char('3') => self.tab = Tab::Decisions,
            Key::Char('p') => self.screen = Screen::Policies,
            Key::Char(_) => {}
            key => {
                let decisions = self.detail.as_ref().map_or(0, |detail| detail.decisions.len());
                self.scroll = moved(key, self.scroll, decisions);
            }
        }
    }

    fn policies_key(&mut self, key: Key) {
        match key {
            Key::Char('p') => self.screen = Screen::Targets,
            Key::Enter => self.ask(|policy| !policy.paused),
            Key::Char('r') => self.ask(|_| false),
            Key::Char(_) => {}
            key => self.selected_policy = moved(key, self.selected_policy(), self.policies.policies.len()),
        }
    }

    /// Asks whether the selected policy is to be paused, or resumed.
    fn ask(&mut self, pause: impl Fn(&Policy) -> bool) {
        let Some(policy) = self.policies.policies.get(self.selected_policy()) else {
            return;
        };
        if self.facts.is_agent {
            self.question = Some(PauseOrder {
                policy: policy.name.clone(),
                pause: pause(policy),
            });
        } else {
            self.notice = Some("A replay has nothing to pause.".to_owned());
        }
    }
}

/// The name of `target`.
#[must_use]
pub fn id_of(target: &Target) -> TargetId {
    TargetId {
        policy: target.policy.clone(),
        name: target.name.clone(),
    }
}

/// The row after `key`, of `count` rows.
fn moved(key: Key, row: usize, count: usize) -> usize {
    let row = match key {
        Key::Up => row.saturating_sub(1),
        Key::Down => row + 1,
        Key::PageUp => row.saturating_sub(PAGE),
        Key::PageDown => row + PAGE,
        Key::Home => 0,
        Key::End => usize::MAX,
        _ => row,
    };
    row.min(count.saturating_sub(1))
}
