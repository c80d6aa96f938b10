//! Results as JSON.

use serde_json::{Value, json};

use crate::results::Results;

impl Results {
    /// A summary of all results, with `"schema": 1`. Single runs are in the results folder.
    #[must_use]
    pub fn json(&self) -> Value {
        let metrics: Vec<Value> = self
            .metrics()
            .iter()
            .map(|metric| self.metric_json(metric))
            .collect();
        let failures: Vec<Value> = self
            .failures()
            .into_iter()
            .map(|run| {
                json!({"workload": run.workload, "configuration": run.configuration, "repeat": run.repeat,
                       "failure": run.failure})
            })
            .collect();
        json!({
            "schema": 1,
            "experiment": self.head.experiment,
            "hash": self.head.hash,
            "host": self.head.host,
            "orig": self.orig(),
            "workloads": self.head.workloads,
            "configurations": self.head.configurations,
            "metrics": metrics,
            "ratios": self.ratios_json(),
            "findings": self.findings(),
            "failures": failures,
        })
    }

    fn metric_json(&self, metric: &crate::metric::Metric) -> Value {
        let columns = self.columns();
        let mut cells = Vec::new();
        for workload in self.rows() {
            for with in &columns {
                let Some(cell) = self.cell(metric, workload, with) else {
                    continue;
                };
                let mut object = json!(cell);
                object["workload"] = json!(workload);
                object["configuration"] = json!(with);
                object["values"] = json!(self.values(metric, workload, with));
                cells.push(object);
            }
        }
        let totals: Vec<Value> = columns
            .iter()
            .filter_map(|with| {
                let (sum, overhead) = self.total(metric, with)?;
                Some(json!({"configuration": with, "sum": sum, "overhead_percent": overhead}))
            })
            .collect();
        json!({"key": metric.key, "title": metric.title, "about": metric.about, "cells": cells, "totals": totals})
    }
}
