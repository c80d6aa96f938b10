//! The threads beside the deciding one: one looks at the sources, one reclaims, one brings in.

use std::io;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use thermo_units::{Nanos, Permille};

use super::{Event, Hands, Task, Teller};
use crate::lifecycle::config::AppConfig;
use crate::lifecycle::sources::{Accesses, Watch};
use crate::lifecycle::table::Table;
use crate::lifecycle::throttle::Pace;

/// A new description for the thread that watches.
struct Watched {
    table: Table,
    apps: Vec<AppConfig>,
    poll: Nanos,
}

/// Ends with the senders: a thread whose channel is closed returns after what it is at.
pub(super) struct Threads {
    reclaim: Sender<Task>,
    bring: Sender<Task>,
    watch: Sender<Watched>,
}

impl Threads {
    pub(super) fn start(
        root: &Path,
        teller: &Teller,
        accesses: Option<Box<dyn Accesses>>,
    ) -> io::Result<Self> {
        let hands = |name: &str| {
            let (sender, tasks) = mpsc::channel();
            let (root, teller) = (root.to_owned(), teller.clone());
            let body = move || work(&root, &tasks, &teller);
            thread::Builder::new()
                .name(name.to_owned())
                .spawn(body)
                .map(|_| sender)
        };
        let (watch, watched) = mpsc::channel();
        let (reclaim, bring) = (hands("reclaim")?, hands("bring-in")?);
        let (sources, teller) = (Watch::new(root, accesses), teller.clone());
        thread::Builder::new()
            .name("sources".to_owned())
            .spawn(move || look_on(sources, &watched, &teller))?;
        Ok(Self {
            reclaim,
            bring,
            watch,
        })
    }

    /// Has a job done.
    pub(super) fn give(&self, task: Task) {
        let to = if task.profile.is_some() {
            &self.reclaim
        } else {
            &self.bring
        };
        // The thread lives as long as its sender.
        let _ = to.send(task);
    }

    /// Has these applications watched.
    pub(super) fn watch(&self, table: Table, apps: Vec<AppConfig>, poll: Nanos) {
        let _ = self.watch.send(Watched { table, apps, poll });
    }
}

fn work(root: &Path, tasks: &Receiver<Task>, teller: &Teller) {
    let mut hands = Hands {
        root: root.to_owned(),
        pace: Pace::new(Permille(1000)),
    };
    for task in tasks {
        hands.pace = hands.pace.begin_again(task.duty);
        // One that panicked left nothing half done.
        let mut hold = task
            .hold
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let cost = match task.profile {
            Some(profile) => hands.reclaim(&mut hold, profile, task.swap_low, task.since, &task.cancel),
            None => hands.prefetch(&hold, task.since, &task.cancel),
        };
        drop(hold);
        teller.tell(Event::Ended(task.job, cost));
    }
}

fn look_on(mut sources: Watch, watched: &Receiver<Watched>, teller: &Teller) {
    let mut poll = Duration::from_secs(1);
    let mut next = Instant::now();
    loop {
        match watched.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(new) => {
                sources.configure(new.table, new.apps);
                poll = Duration::from_nanos(new.poll.0);
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                sources.look(&mut |app, word| teller.tell(Event::Heard(app.to_owned(), word)));
                // From now and not from when it was due: a look that took long is not made up for.
                next = Instant::now() + poll;
            }
        }
    }
}
