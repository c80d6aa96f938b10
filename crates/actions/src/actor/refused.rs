//! Reasons for skipped bytes, from the errors of the kernel.

use thermo_engine::ops::{Applied, Skip};
use thermo_kernel::refusal::{Cause, Refusal};
use thermo_units::Bytes;

/// The reason for bytes that the kernel refused for `cause`.
pub(super) const fn skip_for(cause: Cause) -> Skip {
    match cause {
        Cause::Gone => Skip::TargetGone,
        Cause::NotAnswering => Skip::NotAnswering,
        Cause::NotPermitted => Skip::NotPermitted,
        Cause::Unsupported => Skip::Unsupported,
        Cause::NotMapped => Skip::NotPresent,
        Cause::Mapping => Skip::Unadvisable,
        Cause::Unreadable => Skip::Unreadable,
        Cause::NoHugePage => Skip::NoHugePage,
        Cause::CgroupLimit => Skip::CgroupLimit,
        Cause::Busy => Skip::Busy,
        Cause::Shared => Skip::Shared,
        Cause::NodeFull => Skip::NodeFull,
        Cause::Cpuset => Skip::Cpuset,
        Cause::Other => Skip::Refused,
    }
}

/// Counts `bytes` as skipped because of `refusal`, and keeps the first error that needs a sentence.
pub(super) fn skip_refused(applied: &mut Applied, refusal: Refusal, bytes: Bytes) {
    applied.skip(skip_for(refusal.cause()), bytes);
    if applied.error.is_none() && bytes > Bytes::ZERO {
        applied.error = refusal.sentence();
    }
}
