//! Pods: which one a process belongs to, and what it is called.
//!
//! [`path`] reads UID and container from the control group of a process. [`kubelet`] asks the kubelet of this
//! node for its list of pods ([`pod_list`]), in a thread of its own ([`kubelet_thread`]). [`pod_names`] keeps
//! the names, and decides when to ask again. Policies match by them: [`crate::matching`].

pub mod kubelet;
pub mod kubelet_thread;
pub mod path;
pub mod pod_list;
pub mod pod_names;
mod tls;
