//! Changing what a running session does: settings are read anew when a hangup (SIGHUP) asks for it, and take
//! effect all together or not at all. Regions and statistics are kept.

use thermo_engine::tuning::IntervalsGoal;
use thermo_engine::{Action, Attrs, Context, Scheme, scheme};

/// What can change while a session runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// How to look.
    pub attrs: Attrs,
    /// What the intervals are tuned towards, if they are.
    pub intervals_goal: Option<IntervalsGoal>,
    /// What to do: always the same actions in the same order.
    pub schemes: Vec<Scheme>,
}

/// Reads the settings anew.
pub type Read = Box<dyn FnMut() -> anyhow::Result<Settings>>;

/// Brings what was read to the context.
pub struct Reloader {
    read: Read,
    /// What holds now.
    now: Settings,
}

impl Reloader {
    /// A reloader of a session that began with `now`; `read` may give schemes that the host cannot do and that
    /// the session therefore began without.
    pub fn new(read: Read, now: Settings) -> Self {
        Self { read, now }
    }

    /// What has to be done to the context, if anything changed.
    ///
    /// # Errors
    /// The settings cannot be read or contradict themselves; those that hold go on.
    pub fn reload(
        &mut self,
    ) -> anyhow::Result<Option<impl FnOnce(&mut Context) -> anyhow::Result<()> + Send + use<>>> {
        let mut next = (self.read)()?;
        let actions: Vec<Action> = self.now.schemes.iter().map(|scheme| scheme.action).collect();
        next.schemes.retain(|scheme| actions.contains(&scheme.action));
        next.attrs.check()?;
        scheme::check(&next.schemes, &next.attrs)?;
        next.intervals_goal
            .map_or(Ok(()), |goal| goal.check(&next.attrs))?;
        if next == self.now {
            return Ok(None);
        }
        let before = std::mem::replace(&mut self.now, next.clone());
        Ok(Some(move |context: &mut Context| commit(context, &before, next)))
    }
}

/// What did not change is left as it is: a new commit of the same intervals would undo their tuning, and end a budget.
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
    fn what_changed_is_committed_and_the_rest_left_alone() {
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
            "nothing changed but what cannot be done here"
        );
        let mut context = Context::new(Attrs::default(), 1).unwrap();
        reloader.reload().unwrap().unwrap()(&mut context).unwrap();
        assert_eq!(context.attrs().aggr, Nanos::secs(1));
        assert_eq!(context.schemes().len(), 1);
    }

    #[test]
    fn a_contradiction_leaves_all_as_it_was() {
        let wrong = Settings {
            attrs: Attrs {
                sample: Nanos::ZERO,
                ..Attrs::default()
            },
            ..settings()
        };
        let mut reloader = Reloader::new(Box::new(move || Ok(wrong.clone())), settings());
        assert!(reloader.reload().is_err());
        assert_eq!(reloader.now, settings());
    }
}
