//! Which charts there are.

use maud::{Markup, html};

use crate::model::{AcceptanceRecord, ChangeRecord, GateRecord, Metric, PerfRecord, PositionShare};
use crate::report::chart::{Bar, Bars, Dots, Point, Series, drawable, mark, number};
use crate::report::history::{Measured, Past};
use crate::stats::{LEVEL, median};

/// Names of the two sides, in the order of their colours.
const SIDES: [&str; 2] = ["baseline", "candidate"];

fn sides(points: [Vec<Option<Point>>; 2]) -> Vec<Series> {
    let named = SIDES.iter().zip(points);
    let series = named.map(|(name, points)| Series {
        name: (*name).to_owned(),
        points,
    });
    series.collect()
}

fn share(share: Option<[f64; 3]>) -> Option<Point> {
    let [value, low, high] = share?.map(|share| 100.0 * share);
    Point::new(value, low, high)
}

/// Accepted by position, one chart for each longest draft; in all where positions are not known.
pub fn acceptance(record: &GateRecord, id: &str) -> Markup {
    // Of drafts of one token the first position is all there is.
    let known: Vec<&AcceptanceRecord> = (record.acceptance.iter())
        .filter(|shares| shares.positions.len() > 1)
        .collect();
    let mut charts = vec![Dots {
        title: format!("Accepted in all · {}", record.gate),
        axis: "n_max".to_owned(),
        unit: " %",
        categories: (record.acceptance.iter())
            .map(|a| a.n_max.to_string())
            .collect(),
        series: sides([
            record
                .acceptance
                .iter()
                .map(|a| share(a.baseline.share))
                .collect(),
            record
                .acceptance
                .iter()
                .map(|a| share(a.candidate.share))
                .collect(),
        ]),
        range: (Some(0.0), Some(100.0)),
        labels: true,
        breaks: Vec::new(),
    }];
    charts.extend(known.iter().map(|shares| {
        let of = |side: fn(&crate::model::PositionRecord) -> &PositionShare| {
            let positions = shares.positions.iter();
            positions
                .map(|position| share(side(position).share))
                .collect()
        };
        Dots {
            title: format!(
                "Accepted by position, n_max {} · {}",
                shares.n_max, record.gate
            ),
            axis: "position in the draft".to_owned(),
            unit: " %",
            categories: (shares.positions.iter())
                .map(|p| p.position.to_string())
                .collect(),
            series: sides([of(|p| &p.baseline), of(|p| &p.candidate)]),
            range: (Some(0.0), Some(100.0)),
            labels: true,
            breaks: Vec::new(),
        }
    }));
    html! {
        @for (at, chart) in charts.iter().enumerate() { (chart.draw(&format!("{id}-{at}"))) }
    }
}

/// Speed of both sides, and how much slower the candidate is.
pub fn speed(record: &GateRecord, perf: &PerfRecord, id: &str) -> Markup {
    let decode: Vec<_> = (perf.metrics.iter())
        .filter(|metric| metric.metric == Metric::Decode)
        .collect();
    let of = |n_max: u32, candidate: bool, value: Option<f64>| {
        let rounds = perf
            .rounds
            .iter()
            .filter(|r| !r.control && r.n_max == n_max);
        let medians = rounds.filter_map(|round| {
            let side = if candidate {
                &round.candidate
            } else {
                &round.baseline
            };
            median(side.values.get(&Metric::Decode)?)
        });
        let medians: Vec<f64> = medians.collect();
        match of_median(&medians) {
            Some((low, high)) => Point::new(value?, low.min(value?), high.max(value?)),
            None => Point::bare(value?),
        }
    };
    let chart = Dots {
        title: format!("Decode t/s · {}", record.gate),
        axis: "n_max".to_owned(),
        unit: "",
        categories: decode
            .iter()
            .map(|metric| metric.n_max.to_string())
            .collect(),
        series: sides([
            decode
                .iter()
                .map(|m| of(m.n_max, false, m.baseline))
                .collect(),
            decode
                .iter()
                .map(|m| of(m.n_max, true, m.candidate))
                .collect(),
        ]),
        range: (None, None),
        labels: true,
        breaks: Vec::new(),
    };
    html! {
        (chart.draw(&format!("{id}-t")))
        (changes(record, perf, &format!("{id}-c")))
    }
}

/// The interval of a median, from the ranks that the binomial distribution gives: it assumes
/// nothing of the values but that they are independent. `None` where there are too few.
fn of_median(values: &[f64]) -> Option<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as i32;
    // Chance that at most `rank` values lie below the median, and twice that is left out.
    let (mut rank, mut chance, mut sum) = (0, 0.5f64.powi(count), 0.0);
    loop {
        sum += chance;
        if 2.0 * sum > 1.0 - LEVEL {
            break;
        }
        chance *= f64::from(count - rank) / f64::from(rank + 1);
        rank += 1;
    }
    let at = usize::try_from(rank).ok()?.checked_sub(1)?;
    Some((*sorted.get(at)?, *sorted.get(sorted.len() - 1 - at)?))
}

/// Changes with their intervals, one below the other, beside what is allowed.
fn changes(record: &GateRecord, perf: &PerfRecord, id: &str) -> Markup {
    let finite = |c: &ChangeRecord| [c.percent, c.low, c.high].into_iter().all(drawable);
    let rows: Vec<_> = (perf.metrics.iter())
        .filter_map(|metric| Some((metric, metric.worse.filter(finite)?)))
        .collect();
    if rows.is_empty() {
        return html! {};
    }
    let reach = rows.iter().map(|(metric, change)| {
        let allowed = metric.threshold.unwrap_or(0.0) * 100.0;
        // What is allowed is shown where it is near; a wide bound must not make all else small.
        let near = metric.metric != Metric::Rss && drawable(allowed);
        let allowed = if near { allowed } else { 0.0 };
        change.low.abs().max(change.high.abs()).max(allowed)
    });
    let reach = reach.fold(1.0, f64::max) * 1.08;
    let (left, right, row) = (118.0, 330.0, 24.0);
    let height = row * rows.len() as f64 + 40.0;
    let foot = height - 34.0;
    let x = |percent: f64| {
        let middle = (left + right) / 2.0;
        middle + percent.clamp(-reach, reach) / reach * (right - left) / 2.0
    };
    let title = format!("Change, per cent · {}", record.gate);
    let words = rows.iter().map(|(metric, change)| {
        let name = metric.metric.name();
        let (n_max, percent, low, high) = (metric.n_max, change.percent, change.low, change.high);
        format!("{name} at n_max {n_max}: worse by {percent:+.2} % [{low:+.2}, {high:+.2}]")
    });
    let words = words.collect::<Vec<_>>().join("; ");
    html! {
        figure class="chart" {
            figcaption { (title) }
            svg viewBox=(format!("0 0 340 {height}")) role="img" aria-labelledby=(format!("{id}-t {id}-d")) {
                title id=(format!("{id}-t")) { (title) }
                desc id=(format!("{id}-d")) { (words) }
                line class="grid zero" x1=(format!("{:.1}", x(0.0))) x2=(format!("{:.1}", x(0.0))) y1="2" y2=(foot) {}
                @for (at, (metric, change)) in rows.iter().enumerate() {
                    @let y = row * at as f64 + 14.0;
                    @if let Some(threshold) = metric.threshold.filter(|t| 100.0 * t <= reach) {
                        @let at = format!("{:.1}", x(100.0 * threshold));
                        line class="limit" x1=(at) x2=(at) y1=(y - 10.0) y2=(y + 10.0) {}
                    }
                    text class="tick" x=(left - 8.0) y=(y + 3.5) text-anchor="end" {
                        (metric.metric.name()) ", n " (metric.n_max)
                    }
                    g class="point s1" {
                        title { (metric.metric.name()) ", n_max " (metric.n_max) ": " (number(change.percent)) " % [" (number(change.low)) ", " (number(change.high)) "]" }
                        line x1=(format!("{:.1}", x(change.low))) x2=(format!("{:.1}", x(change.high))) y1=(y) y2=(y) {}
                        @for end in [change.low, change.high] {
                            @let at = format!("{:.1}", x(end));
                            line x1=(at) x2=(at) y1=(y - 3.0) y2=(y + 3.0) {}
                        }
                        (mark(1, x(change.percent), y))
                    }
                }
                @for end in [-reach, 0.0, reach] {
                    @let anchor = if end < 0.0 { "start" } else if end > 0.0 { "end" } else { "middle" };
                    text class="tick" x=(format!("{:.1}", x(end))) y=(foot + 13.0) text-anchor=(anchor) {
                        @if end == 0.0 { "0" } @else { (format!("{end:+.1}%")) }
                    }
                }
                text class="axis" x=(left) y=(foot + 29.0) text-anchor="start" { "← better" }
                text class="axis" x=(right) y=(foot + 29.0) text-anchor="end" { "worse →" }
            }
            @if rows.iter().any(|(metric, _)| metric.threshold.is_some()) {
                p class="hint" { "Candidate against baseline, measured in pairs, with intervals of 95 %. Dashed: what is allowed." }
            }
        }
    }
}

/// Graphs submitted in each cycle of drafting and checking.
pub fn launches(record: &GateRecord, perf: &PerfRecord, id: &str) -> Markup {
    let mut n_max: Vec<u32> = perf.counters.iter().map(|counter| counter.n_max).collect();
    n_max.dedup();
    let per_cycle = |n_max: u32, name: &str| {
        let find = |name: &str| {
            let mut counters = perf.counters.iter();
            counters.find(|counter| counter.n_max == n_max && counter.name == name)
        };
        let (part, cycles) = (find(name)?, find("cycles")?);
        let ratio = |part: Option<u64>, whole: Option<u64>| {
            let whole = whole.filter(|whole| *whole > 0)?;
            Some(part? as f64 / whole as f64)
        };
        let values = [
            ratio(part.baseline, cycles.baseline),
            ratio(part.candidate, cycles.candidate),
        ];
        values.iter().any(Option::is_some).then_some(values)
    };
    let mut bars = Vec::new();
    for n_max in n_max {
        for (name, counter) in [("draft", "launches_dft"), ("target", "launches_tgt")] {
            if let Some(values) = per_cycle(n_max, counter) {
                bars.push(Bar {
                    label: format!("n {n_max}, {name}"),
                    values,
                });
            }
        }
    }
    let bars = Bars {
        title: format!("Launches per cycle · {}", record.gate),
        bars,
    };
    bars.draw(id)
}

/// One figure of every gate over the runs that have it: how much slower, or how much accepted.
pub fn history(past: &[Past], title: &str, of: fn(&Past) -> &Vec<Measured>, id: &str) -> Markup {
    let mut gates: Vec<&str> = Vec::new();
    for measured in past.iter().flat_map(of) {
        if !gates.contains(&measured.gate.as_str()) {
            gates.push(&measured.gate);
        }
    }
    let charts = gates.iter().filter_map(|gate| {
        let here = |measured: &&Measured| measured.gate == *gate;
        let runs: Vec<&Past> = past
            .iter()
            .filter(|p| of(p).iter().any(|m| here(&m)))
            .collect();
        let mut n_max: Vec<u32> = (runs.iter())
            .flat_map(|past| of(past).iter().filter(here).map(|measured| measured.n_max))
            .collect();
        n_max.sort_unstable();
        n_max.dedup();
        // Longest drafts are where patches differ most, and four marks are what can be told apart.
        let shown = &n_max[n_max.len().saturating_sub(4)..];
        let series = shown.iter().map(|n_max| Series {
            name: format!("n_max {n_max}"),
            points: (runs.iter())
                .map(|past| {
                    let mut all = of(past).iter().filter(here);
                    let found = all.find(|measured| measured.n_max == *n_max)?;
                    Point::new(found.value, found.low, found.high)
                })
                .collect(),
        });
        (runs.len() > 1).then(|| Dots {
            title: format!("{title} · {gate}"),
            axis: "run".to_owned(),
            unit: " %",
            categories: runs
                .iter()
                .map(|past| past.when().chars().skip(5).collect())
                .collect(),
            series: series.collect(),
            range: (None, None),
            labels: false,
            breaks: (1..runs.len())
                .filter(|at| runs[*at].subjects != runs[at - 1].subjects)
                .collect(),
        })
    });
    html! {
        @for (at, chart) in charts.enumerate() { (chart.draw(&format!("{id}-{at}"))) }
    }
}

#[cfg(test)]
mod tests {
    use super::of_median;

    /// Ranks as printed in tables of the sign test: 6, 9 and 20 values.
    #[test]
    fn ranks_of_the_median_are_those_of_the_tables() {
        let values = |count: i32| (1..=count).map(f64::from).collect::<Vec<_>>();
        assert_eq!(of_median(&values(5)), None);
        assert_eq!(of_median(&[]), None);
        assert_eq!(of_median(&values(6)), Some((1.0, 6.0)));
        assert_eq!(of_median(&values(9)), Some((2.0, 8.0)));
        assert_eq!(of_median(&values(20)), Some((6.0, 15.0)));
    }
}
