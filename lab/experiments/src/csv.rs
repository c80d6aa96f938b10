//! Results as comma-separated values: one line for each run, one column for each metric, in base units.

use crate::results::Results;

impl Results {
    /// All successful runs.
    #[must_use]
    pub fn csv(&self) -> String {
        let metrics = self.metrics();
        let mut text = String::from("workload,configuration,repeat,started_s");
        metrics.iter().for_each(|metric| text.extend([",", &metric.key]));
        text.push('\n');
        for run in self.runs.iter().filter(|run| run.failure.is_none()) {
            // The parser of experiment files rejects names with commas or quotes.
            text.push_str(&format!(
                "{},{},{},{}",
                run.workload, run.configuration, run.repeat, run.started_s
            ));
            for metric in &metrics {
                let value = run
                    .measured
                    .get(&metric.key)
                    .map(f64::to_string)
                    .unwrap_or_default();
                text.extend([",", &value]);
            }
            text.push('\n');
        }
        text
    }
}
