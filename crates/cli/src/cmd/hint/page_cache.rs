//! `thermo hint lru_prio --page-cache FILE`: page cache, whether any process maps it or not.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::{Value, json};
use thermo_actions::page_cache::{PageCache, PageCacheError};
use thermo_engine::Action;
use thermo_engine::ops::Applied;
use thermo_term::exit::Exit;
use thermo_term::{interrupt, output};
use thermo_units::Bytes;

use super::until_asked;

/// What is meant, and how far to go.
pub(super) struct Files<'a> {
    pub action: Action,
    pub paths: &'a [PathBuf],
    pub max_bytes: Option<Bytes>,
    pub dry_run: bool,
    pub json: bool,
}

/// A file, and what came of it.
type Row<'a> = (&'a PathBuf, Result<Applied, PageCacheError>);

impl<'a> Files<'a> {
    /// Sorts what is in memory of each file and tells what came of it. A file that cannot be looked at is told of, and
    /// does not keep the others from being done.
    pub(super) fn hint(&self) -> anyhow::Result<Exit> {
        let cancel = std::sync::Arc::default();
        let mut left = self.max_bytes;
        let rows: Vec<_> = until_asked(&cancel, || {
            let one = |path: &'a PathBuf| -> Row<'a> {
                let cache = PageCache {
                    max_bytes: left,
                    dry_run: self.dry_run,
                    cancel: &cancel,
                };
                let done = cache.apply(self.action, path);
                left = left.map(|left| {
                    done.as_ref()
                        .map_or(left, |done| left.saturating_sub(done.applied))
                });
                (path, done)
            };
            self.paths.iter().map(one).collect()
        });
        // What cannot be done to any file is misuse, and so is naming but one that cannot be looked at.
        if let [(_, Err(_))] | [(_, Err(PageCacheError::Action { .. })), ..] = rows.as_slice() {
            let error = rows.into_iter().find_map(|(_, done)| done.err());
            return error.map_or(Ok(Exit::Done), |error| Err(error.into()));
        }
        let failed = rows.iter().any(|(_, done)| done.is_err());
        if self.json {
            output::json(&self.as_json(&rows))?;
        } else {
            output::text(&self.as_text(&rows))?;
        }
        Ok(match () {
            () if interrupt::asked() => Exit::Interrupted,
            () if failed => Exit::Negative,
            () => Exit::Done,
        })
    }

    fn as_json(&self, rows: &[Row<'_>]) -> Value {
        let of = |(path, done): &Row<'_>| match done {
            Ok(done) => {
                let skipped = done.skipped.iter();
                let skipped = skipped.map(|(why, bytes)| json!({"reason": why.name(), "bytes": bytes.0}));
                json!({"path": path, "resident": done.passed_filters.0, "advised": done.applied.0,
                       "skipped": skipped.collect::<Vec<_>>(), "error": null})
            }
            Err(error) => json!({"path": path, "error": error.to_string()}),
        };
        let advised = rows
            .iter()
            .filter_map(|(_, done)| done.as_ref().ok())
            .map(|done| done.applied);
        json!({
            "schema": 1,
            "dry_run": self.dry_run,
            "action": self.action.name(),
            "bytes_advised": advised.sum::<Bytes>().0,
            "files": rows.iter().map(of).collect::<Vec<_>>(),
        })
    }

    fn as_text(&self, rows: &[Row<'_>]) -> String {
        let mut text = String::new();
        for (path, done) in rows {
            let (path, action) = (path.display(), self.action);
            let _ = match done {
                Ok(done) => write!(
                    text,
                    "{path}: {action}: {} of {} in memory",
                    done.applied, done.passed_filters
                ),
                Err(error) => write!(text, "{error}"),
            };
            for (why, bytes) in done.iter().flat_map(|done| &done.skipped) {
                let _ = write!(text, ", {} {bytes}", why.name());
            }
            text.push('\n');
        }
        text
    }
}
