//! The thread that sends requests to the kubelet, so that the agent never waits for it.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use thermo_kernel::capabilities::{self, Capabilities, Capability};

use super::kubelet::{Kubelet, KubeletError};
use super::pod_list::Pod;

/// What the thread keeps of the agent's capabilities: the agent's memory is locked, also what this thread
/// allocates.
const KEPT: &[Capability] = &[Capability::IpcLock];

/// A list, or why there is none.
pub type Answer = Result<Vec<Pod>, KubeletError>;

/// The thread. It ends when this is dropped, after the request that it waits for.
#[derive(Debug)]
pub struct KubeletThread {
    requests: Sender<()>,
    answers: Receiver<Answer>,
}

impl KubeletThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// There can be no further thread, or it cannot give up its capabilities.
    pub fn start(kubelet: Kubelet) -> io::Result<Self> {
        let (requests, inbox) = mpsc::channel::<()>();
        let (outbox, answers) = mpsc::channel();
        let (started, start) = mpsc::channel();
        thread::Builder::new().name("kubelet".to_owned()).spawn(move || {
            let dropped = capabilities::keep_only(Capabilities::of(KEPT));
            let is_ready = dropped.is_ok();
            // The agent waits for this, and ends if it is an error.
            let is_awaited = started.send(dropped).is_ok();
            while is_ready && is_awaited && inbox.recv().is_ok() {
                if outbox.send(kubelet.pods()).is_err() {
                    break;
                }
            }
        })?;
        start.recv().map_err(io::Error::other)??;
        Ok(Self { requests, answers })
    }

    /// Requests a list. Returns whether the thread lives.
    #[must_use]
    pub fn request(&self) -> bool {
        self.requests.send(()).is_ok()
    }

    /// The answer, if there is one by now.
    #[must_use]
    pub fn answer(&self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }
}
