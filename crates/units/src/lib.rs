//! Quantities that carry their unit in their type, and the one grammar for reading them: in flags, scheme
//! files and experiment files.
//!
//! `5ms`, `12s`, `64M`, `5%`: a number (digits, an optional fraction, optional thousands commas), an optional
//! space, a unit. Sizes are binary (`K`, `KB` and `KiB` are all 1024 bytes), as in the kernel and in damo.

pub mod addr;
mod arithmetic;
mod bytes;
mod nanos;
mod number;
mod permille;
mod printable;
mod rate;
pub mod template;
pub mod text;
mod turn;

pub use addr::{Addr, AddrRange, PAGE_SIZE};
pub use bytes::Bytes;
pub use nanos::Nanos;
pub use number::UnitError;
pub use permille::{BasisPoints, Permille};
pub use printable::printable;
pub use rate::SharePerMinute;
pub use turn::Turn;
