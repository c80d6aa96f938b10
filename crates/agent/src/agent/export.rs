//! Rows for the fleet.

use thermo_engine::access_tables::NR_AGES;
use thermo_fleet::Row;
use thermo_kernel::{clock, statm};
use thermo_units::{Bytes, Nanos};

use super::Agent;
use crate::api;
use crate::export::{ExportError, Exporter, row_of_agent, row_of_target};
use crate::identity::Identity;
use crate::pressure::SwapState;

impl Agent {
    /// Makes the exporter of the configuration. What was finished before stays in its folder.
    pub(super) fn begin_export(&mut self) {
        let now_ms = self.unix_ms(clock::monotonic());
        self.exported_cpu = clock::process_cpu();
        let Some(config) = self.config.export.clone() else {
            self.exporter = None;
            return;
        };
        let (exporter, warning) = Exporter::new(config, &self.config.state_dir, now_ms);
        if let Some(warning) = warning {
            self.warn(warning);
        }
        if let Err(error) = exporter.create_folder() {
            self.warn(format!("the folder for the fleet cannot be made: {error}"));
        }
        match exporter.status() {
            Ok(status) => self.export_status = status,
            Err(error) => self.warn(format!("the files for the fleet cannot be read: {error}")),
        }
        self.exporter = Some(exporter);
    }

    /// Writes the rows of an interval that is over.
    pub(super) fn export_if_due(&mut self, now: Nanos, swap: &SwapState) {
        let now_ms = self.unix_ms(now);
        if self
            .exporter
            .as_ref()
            .is_some_and(|exporter| exporter.is_due(now_ms))
        {
            self.export(now, swap);
        }
    }

    /// Writes the rows of the interval that ends now, if there is an exporter.
    pub(super) fn export(&mut self, now: Nanos, swap: &SwapState) {
        let Some(mut exporter) = self.exporter.take() else {
            return;
        };
        let now_ms = self.unix_ms(now);
        let (mut rows, reaccessed) = self.target_rows(now, swap);
        let acting_us = exporter.sums.take(&mut rows, &reaccessed);
        let cpu = clock::process_cpu();
        let cpu_us = cpu.saturating_sub(self.exported_cpu).0 / 1000;
        self.exported_cpu = cpu;
        let resident = statm::read(&self.root, std::process::id()).map_or(0, |statm| statm.resident.0);
        rows.push(row_of_agent(resident, (cpu_us, acting_us)));
        let result: Result<api::Export, ExportError> =
            exporter.add(now_ms, rows).and_then(|()| exporter.status());
        self.exporter = Some(exporter);
        match result {
            Ok(status) => {
                if status.dropped_files > self.export_status.dropped_files {
                    self.warn(
                        "files for the fleet were dropped, because nobody took them: see to thermo-upload"
                            .to_owned(),
                    );
                }
                self.export_status = status;
            }
            Err(error) => self.warn(format!("the rows for the fleet are not written: {error}")),
        }
    }

    /// The rows of all targets, without sums, and the re-accesses of each since the agent started.
    fn target_rows(&mut self, now: Nanos, swap: &SwapState) -> (Vec<Row>, Vec<[Bytes; NR_AGES]>) {
        let (mut rows, mut reaccessed) = (Vec::new(), Vec::new());
        let wall_clock = self.wall_clock;
        for policy in &mut self.policies {
            let age_ms = policy.pageout_age().map(|age| age.0 / Nanos::millis(1).0);
            for target in policy.published_targets(now, |time| wall_clock.unix_ms(time)) {
                let Some(state) = policy.targets.get(&target.name) else {
                    continue;
                };
                let process = self.table.first_of(&target);
                let pod = process.and_then(Identity::pod_names);
                let would = self.ledger.would_act(&target.policy, &target.name, "pageout");
                rows.push(Row {
                    workload: process.map_or_else(|| target.name.clone(), Identity::workload),
                    namespace: pod.map(|pod| pod.namespace.clone()),
                    pod: pod.map(|pod| pod.name.clone()),
                    container: process.and_then(Identity::container_name).map(str::to_owned),
                    min_age_ms: age_ms,
                    would_page_out_bytes: would.map(|bytes| bytes.0),
                    out_bytes: state.out.still_out.0,
                    out_swap_bytes: state.out.in_swap.0,
                    swap_cost: swap.cost,
                    ..row_of_target(&target, state.file_ages())
                });
                reaccessed.push(state.reaccessed);
            }
        }
        (rows, reaccessed)
    }
}
