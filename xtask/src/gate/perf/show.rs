//! What a person reads of a gate of kind `perf`.

use crate::gate::table::Signs;
use crate::model::{ChangeRecord, CounterRecord, Metric, MetricRecord, PerfRecord};

/// Rows of a table, the first one being its head.
pub fn rows(record: &PerfRecord, signs: Signs) -> Vec<Vec<String>> {
    let head = [
        "n_max",
        "metric",
        "baseline",
        "candidate",
        "worse by (95 %)",
        "A/A",
        "allowed",
        "detectable",
        "verdict",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(record.metrics.iter().map(|metric| row(metric, signs)));
    for n_max in n_max(record) {
        for (name, part, whole) in SHARES {
            let of = |side: &dyn Fn(&CounterRecord) -> Option<u64>| {
                let find = |name: &str| {
                    let mut counters = record.counters.iter();
                    side(counters.find(|c| c.n_max == n_max && c.name == name)?)
                };
                let whole = find(whole).filter(|whole| *whole > 0)?;
                Some(find(part)? as f64 / whole as f64)
            };
            let baseline = of(&|counter| counter.baseline);
            let candidate = of(&|counter| counter.candidate);
            if baseline.is_none() && candidate.is_none() {
                continue;
            }
            let mut row = vec![n_max.to_string(), name.to_owned()];
            row.extend([number(baseline), number(candidate)]);
            row.resize(9, "-".to_owned());
            rows.push(row);
        }
        let judged = record.counters.iter().filter(|c| c.n_max == n_max);
        for counter in judged.filter(|counter| counter.verdict.is_some()) {
            let count = |count: Option<u64>| count.map_or("-".to_owned(), |n| n.to_string());
            let mut row = vec![n_max.to_string(), counter.name.clone()];
            row.extend([count(counter.baseline), count(counter.candidate)]);
            row.extend(["-".to_owned(), "-".to_owned()]);
            row.push(counter.relation.map_or("-", |r| r.words()).to_owned());
            row.push("-".to_owned());
            row.push(counter.verdict.map_or("-", |v| signs.verdict(v)).to_owned());
            rows.push(row);
        }
    }
    rows
}

/// What is derived from counters: name, part, whole.
const SHARES: [(&str, &str, &str); 4] = [
    ("launches of the draft per cycle", "launches_dft", "cycles"),
    ("launches of the target per cycle", "launches_tgt", "cycles"),
    ("reused of the draft", "reused_dft", "launches_dft"),
    ("reused of the target", "reused_tgt", "launches_tgt"),
];

fn n_max(record: &PerfRecord) -> Vec<u32> {
    let mut all: Vec<u32> = record.counters.iter().map(|c| c.n_max).collect();
    all.dedup();
    all
}

fn row(metric: &MetricRecord, signs: Signs) -> Vec<String> {
    let change = |change: Option<ChangeRecord>| {
        change.map_or("-".to_owned(), |c| {
            format!("{:+.2} % [{:+.2}, {:+.2}]", c.percent, c.low, c.high)
        })
    };
    vec![
        metric.n_max.to_string(),
        metric.metric.name().to_owned(),
        number(metric.baseline),
        number(metric.candidate),
        change(metric.worse),
        change(metric.control),
        metric.threshold.map_or("-".to_owned(), |threshold| {
            format!("{:.1} %", 100.0 * threshold)
        }),
        metric
            .detectable
            .filter(|_| metric.threshold.is_some())
            .map_or("-".to_owned(), |percent| format!("{percent:.1} %")),
        metric.verdict.map_or("-", |v| signs.verdict(v)).to_owned(),
    ]
}

fn number(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) => format!("{value:.2}"),
    }
}

/// Every metric and counter that did not pass, with the reason.
pub fn faults(record: &PerfRecord, signs: Signs) -> Vec<String> {
    let line = |verdict, n_max: u32, name: &str, reason: &Option<String>| {
        let sign = signs.verdict(verdict);
        let reason = reason.as_deref()?;
        Some(format!("{sign} n_max {n_max}, {name}: {reason}"))
    };
    let metrics = record.metrics.iter();
    let metrics = metrics.filter_map(|m| line(m.verdict?, m.n_max, m.metric.name(), &m.reason));
    let counters = record.counters.iter();
    let counters = counters.filter_map(|c| line(c.verdict?, c.n_max, &c.name, &c.reason));
    metrics.chain(counters).collect()
}

/// How it was measured, and on what.
pub fn remarks(record: &PerfRecord) -> Vec<String> {
    let mut lines = Vec::new();
    for (part, name) in [(0, "A/A control"), (1, "comparison")] {
        let (done, planned) = (record.done[part], record.planned[part]);
        lines.push(format!(
            "{name}: {done} rounds of {} pairs for each n_max{}",
            record.pairs_per_round,
            match done < planned {
                true => format!("; the time budget ended before {planned}"),
                false => String::new(),
            }
        ));
    }
    let machine = &record.machine;
    let pair = |values: [Option<f64>; 2]| {
        values.map(|value| value.map_or("?".to_owned(), |value| format!("{value:.2}")))
    };
    let ([mhz, mhz_after], [load, load_after]) = (pair(machine.mhz), pair(machine.load));
    lines.push(format!(
        "machine: {} processors, {}, governor {}, {mhz} MHz before and {mhz_after} after, load \
         {load} before and {load_after} after",
        machine.processors,
        machine.model.as_deref().unwrap_or("unknown"),
        machine.governor.as_deref().unwrap_or("unknown"),
    ));
    if machine.load[0].is_some_and(|load| load > 1.0) {
        lines.push("other processes were running: expect wide intervals".to_owned());
    }
    let decode = record.metrics.iter().filter(|m| m.metric == Metric::Decode);
    for metric in decode {
        if let (Some(detectable), Some(threshold)) = (metric.detectable, metric.threshold) {
            lines.push(format!(
                "n_max {}: a loss of {detectable:.1} % of decode t/s or more would have failed \
                 in 95 of 100 runs as noisy as this one (allowed: {:.1} %)",
                metric.n_max,
                100.0 * threshold
            ));
        }
    }
    lines
}
