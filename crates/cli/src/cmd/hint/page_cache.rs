//! `thermo hint lru_prio --page-cache FILE`: page cache of files, mapped or not.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::{Value, json};
use thermo_actions::page_cache::{PageCacheError, PageCacheSorter};
use thermo_engine::Action;
use thermo_engine::ops::Applied;
use thermo_term::exit::Exit;
use thermo_term::{interrupt, output};
use thermo_units::{Bytes, printable};

use super::results::skipped_text;
use super::{nothing_was_done, run_cancellable};

/// The files, and the limits.
pub(super) struct Files<'a> {
    pub action: Action,
    pub paths: &'a [PathBuf],
    pub max_bytes: Option<Bytes>,
    pub dry_run: bool,
    pub json: bool,
}

/// A file and its result.
type Row<'a> = (&'a PathBuf, Result<Applied, PageCacheError>);

impl<'a> Files<'a> {
    /// Sorts the resident pages of each file and prints the results. An error with one file does not stop the
    /// others.
    ///
    /// # Errors
    /// The action is not possible for files, or the only file failed.
    pub(super) fn hint(&self) -> anyhow::Result<Exit> {
        let cancel = std::sync::Arc::default();
        let mut budget = self.max_bytes;
        let rows: Vec<_> = run_cancellable(&cancel, || {
            let apply = |path: &'a PathBuf| -> Row<'a> {
                let cache = PageCacheSorter {
                    max_bytes: budget,
                    dry_run: self.dry_run,
                    cancel: &cancel,
                };
                let result = cache.apply(self.action, path);
                budget = budget.map(|budget| {
                    result
                        .as_ref()
                        .map_or(budget, |applied| budget.saturating_sub(applied.applied))
                });
                (path, result)
            };
            self.paths.iter().map(apply).collect()
        })?;
        if let [(_, Err(_))] | [(_, Err(PageCacheError::UnsupportedAction { .. })), ..] = rows.as_slice() {
            let error = rows.into_iter().find_map(|(_, result)| result.err());
            return error.map_or(Ok(Exit::Done), |error| Err(error.into()));
        }
        let failed = rows.iter().any(|(_, result)| result.is_err());
        if self.json {
            output::json(&self.as_json(&rows))?;
        } else {
            output::text(&printable(&self.as_text(&rows)))?;
        }
        Ok(match () {
            () if interrupt::requested() => Exit::Interrupted,
            () if failed || self.did_nothing(&rows) => Exit::Negative,
            () => Exit::Done,
        })
    }

    fn did_nothing(&self, rows: &[Row<'_>]) -> bool {
        let applied = || rows.iter().filter_map(|(_, result)| result.as_ref().ok());
        let skipped = applied().flat_map(|applied| &applied.skipped);
        let advised = applied().map(|applied| applied.applied).sum();
        nothing_was_done(self.action, advised, skipped.map(|(why, _)| *why))
    }

    fn as_json(&self, rows: &[Row<'_>]) -> Value {
        let file = |(path, result): &Row<'_>| match result {
            Ok(applied) => {
                let skipped = applied.skipped.iter();
                let skipped = skipped.map(|(why, bytes)| json!({"reason": why.name(), "bytes": bytes.0}));
                json!({"path": path, "resident": applied.passed_filters.0, "advised": applied.applied.0,
                       "skipped": skipped.collect::<Vec<_>>(), "error": applied.error})
            }
            Err(error) => json!({"path": path, "error": error.to_string()}),
        };
        let advised = rows
            .iter()
            .filter_map(|(_, result)| result.as_ref().ok())
            .map(|applied| applied.applied);
        json!({
            "schema": 1,
            "dry_run": self.dry_run,
            "action": self.action.name(),
            "bytes_advised": advised.sum::<Bytes>().0,
            "files": rows.iter().map(file).collect::<Vec<_>>(),
        })
    }

    fn as_text(&self, rows: &[Row<'_>]) -> String {
        let mut text = String::new();
        for (path, result) in rows {
            let (path, action) = (path.display(), self.action);
            let _ = match result {
                Ok(applied) => write!(
                    text,
                    "{path}: {action}: {} advised of {} resident",
                    applied.applied, applied.passed_filters
                ),
                Err(error) => write!(text, "{error}"),
            };
            let skipped = result.iter().flat_map(|applied| &applied.skipped);
            text.push_str(&skipped_text(skipped.map(|(why, bytes)| (why.name(), *bytes))));
            text.push('\n');
            if let Some(error) = result.as_ref().ok().and_then(|applied| applied.error.as_ref()) {
                let _ = writeln!(text, "    incomplete: {error}");
            }
        }
        text
    }
}
