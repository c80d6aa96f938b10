//! `thermo top`: the targets of the agent, or of a recording, in the terminal.
//!
//! [`source`] answers with the types of the agent's API. [`model`] holds what is shown, and changes it by
//! keys and answers. [`view`] draws it. [`run`] connects the three to the terminal.

mod app;
#[cfg(test)]
mod fixture;
pub mod model;
pub mod source;
pub mod view;

pub use app::{TopError, run};
