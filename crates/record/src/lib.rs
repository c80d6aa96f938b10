//! Recordings: what was seen and done, append-only, readable up to the last whole batch after a crash.

pub mod model;
