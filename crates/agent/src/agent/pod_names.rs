//! Names of pods, from the thread that asks the kubelet.

use thermo_units::Nanos;

use super::Agent;

impl Agent {
    /// Takes the kubelet's answer, if there is one. Returns whether a process has another policy or target.
    pub(super) fn take_pods(&mut self, now: Nanos) -> bool {
        let answer = self.kubelet.as_ref().and_then(|kubelet| kubelet.answer());
        match answer {
            None => false,
            Some(Ok(pods)) => {
                self.kubelet_error = None;
                self.table.set_pods(pods, &self.config, now)
            }
            Some(Err(error)) => {
                self.table.pods_mut().set_failed(now);
                self.set_kubelet_error(format!("the names of pods are not known: {error}"));
                false
            }
        }
    }

    /// Asks the kubelet if names are missing and it is time.
    pub(super) fn ask_for_pods(&mut self, now: Nanos) {
        let Some(kubelet) = self.kubelet.as_ref().filter(|_| self.table.pods().is_due(now)) else {
            return;
        };
        let is_asked = kubelet.request();
        self.table.pods_mut().set_asked(now);
        if !is_asked {
            self.set_kubelet_error(
                "the thread that asks the kubelet has ended: restart the agent".to_owned(),
            );
        }
    }

    /// Keeps the error until a list comes, and prints it if it is another than before.
    fn set_kubelet_error(&mut self, error: String) {
        if self.kubelet_error.as_ref() != Some(&error) {
            thermo_kernel::message!("thermo: {}", thermo_units::printable(&error));
        }
        self.kubelet_error = Some(error);
    }
}
