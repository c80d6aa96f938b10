//! Changing the settings of a running session. SIGHUP makes it read them again. New settings take effect all
//! together or not at all; regions and statistics are kept.

use thermo_engine::tuning::IntervalsGoal;
use thermo_engine::{Action, Attrs, Context, Scheme, scheme};

/// Settings that can change while a session runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Intervals and numbers of regions.
    pub attrs: Attrs,
    /// The goal of interval tuning; `None` without tuning.
    pub intervals_goal: Option<IntervalsGoal>,
    /// The schemes: always the same actions in the same order.
    pub schemes: Vec<Scheme>,
}

/// Reads the settings again.
pub type ReadSettings = Box<dyn FnMut() -> anyhow::Result<Settings>>;

/// Reads new settings and applies them to the context.
pub struct Reloader {
    read: ReadSettings,
    /// The settings in effect.
    current: Settings,
}

impl Reloader {
    /// A reloader for a session that began with `current`. `read` may return schemes that the host does not
    /// support; they are dropped, as at the start of the session.
    pub fn new(read: ReadSettings, current: Settings) -> Self {
        Self { read, current }
    }

    /// Reads the settings. Returns a function that commits the changes to the context; `None` if nothing
    /// changed.
    ///
    /// # Errors
    /// The settings cannot be read or contradict each other. The current settings stay in effect.
    pub fn reload(
        &mut self,
    ) -> anyhow::Result<Option<impl FnOnce(&mut Context) -> anyhow::Result<()> + Send + use<>>> {
        let mut next = (self.read)()?;
        let actions: Vec<Action> = self.current.schemes.iter().map(|scheme| scheme.action).collect();
        next.schemes.retain(|scheme| actions.contains(&scheme.action));
        next.attrs.check()?;
        scheme::check(&next.schemes, &next.attrs)?;
        next.intervals_goal
            .map_or(Ok(()), |goal| goal.check(&next.attrs))?;
        if next == self.current {
            return Ok(None);
        }
        let before = std::mem::replace(&mut self.current, next.clone());
        Ok(Some(move |context: &mut Context| commit(context, &before, next)))
    }
}

/// Commits only the changes: a commit of unchanged intervals would reset their tuning and end a CPU budget.
fn commit(context: &mut Context, before: &Settings, next: Settings) -> anyhow::Result<()> {
    let same_goal = next.intervals_goal == before.intervals_goal;
    if !same_goal || next.attrs != before.attrs && !context.set_bounds(&next.attrs)? {
        context.set_intervals_goal(None)?;
        context.set_attrs(next.attrs)?;
        context.set_intervals_goal(next.intervals_goal)?;
    }
    Ok(context.set_schemes(next.schemes)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use super::*;
    use thermo_units::Nanos;

    fn settings() -> Settings {
        Settings {
            attrs: Attrs::default(),
            intervals_goal: None,
            schemes: vec![Scheme::new(Action::LruPrio), Scheme::new(Action::LruDeprio)],
        }
    }

    #[test]
    fn reload_commits_only_changes() {
        let slower = Settings {
            attrs: Attrs {
                aggr: Nanos::secs(1),
                ..Attrs::default()
            },
            ..settings()
        };
        let mut answers = vec![settings(), slower].into_iter();
        let began_with = Settings {
            schemes: vec![Scheme::new(Action::LruDeprio)],
            ..settings()
        };
        let mut reloader = Reloader::new(Box::new(move || Ok(answers.next().unwrap())), began_with);
        assert!(
            reloader.reload().unwrap().is_none(),
            "only an unsupported scheme differs"
        );
        let mut context = Context::new(Attrs::default(), 1).unwrap();
        reloader.reload().unwrap().unwrap()(&mut context).unwrap();
        assert_eq!(context.attrs().aggr, Nanos::secs(1));
        assert_eq!(context.schemes().len(), 1);
    }

    #[test]
    fn contradictory_settings_change_nothing() {
        let wrong = Settings {
            attrs: Attrs {
                sample: Nanos::ZERO,
                ..Attrs::default()
            },
            ..settings()
        };
        let mut reloader = Reloader::new(Box::new(move || Ok(wrong.clone())), settings());
        assert!(reloader.reload().is_err());
        assert_eq!(reloader.current, settings());
    }
}
