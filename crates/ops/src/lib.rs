//! How processes are watched and acted on: trackers (which pages were touched?) and actors (do this to that).

pub mod kdamond;
