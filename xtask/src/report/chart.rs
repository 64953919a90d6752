//! How a chart is drawn: small SVG that takes its colours from the page, so that light and dark
//! need no second picture. A series is told from another by the shape of its marks too.

use maud::{Markup, html};

/// Width and height of a chart in its own units; it grows and shrinks with the page.
const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 208.0;

/// A figure with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The figure.
    pub value: f64,
    /// Ends of its interval, where it has one.
    pub ends: Option<(f64, f64)>,
}

/// Points of one kind, one for each category.
#[derive(Clone, Debug)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// By category.
    pub points: Vec<Option<Point>>,
}

/// Figures with intervals over categories.
#[derive(Clone, Debug)]
pub struct Dots {
    /// What it shows.
    pub title: String,
    /// What the categories are.
    pub axis: String,
    /// Unit of the figures, behind each number.
    pub unit: &'static str,
    /// From left to right.
    pub categories: Vec<String>,
    /// At most four.
    pub series: Vec<Series>,
    /// Ends of the scale that do not depend on the figures.
    pub range: (Option<f64>, Option<f64>),
    /// Whether the figures stand beside their marks.
    pub labels: bool,
    /// Categories before which something else begins.
    pub breaks: Vec<usize>,
}

impl Point {
    /// A figure with its interval, where both can be drawn.
    pub fn new(value: f64, low: f64, high: f64) -> Option<Self> {
        let sound = [value, low, high].iter().all(|figure| drawable(*figure));
        // Damaged ends must not turn the scale around.
        sound.then_some(Point {
            value,
            ends: Some((low.min(value), high.max(value))),
        })
    }

    /// A figure alone.
    pub fn bare(value: f64) -> Option<Self> {
        drawable(value).then_some(Point { value, ends: None })
    }

    fn low(&self) -> f64 {
        self.ends.map_or(self.value, |ends| ends.0)
    }

    fn high(&self) -> f64 {
        self.ends.map_or(self.value, |ends| ends.1)
    }

    fn words(&self, unit: &str) -> String {
        match self.ends {
            None => format!("{}{unit}", number(self.value)),
            Some((low, high)) => format!(
                "{}{unit} [{}, {}]",
                number(self.value),
                number(low),
                number(high)
            ),
        }
    }
}

/// Whether a figure can be drawn: finite, and no larger than anything that is measured here, so
/// that distances are finite too.
pub fn drawable(figure: f64) -> bool {
    figure.abs() < 1e15
}

/// Few digits, but never so few that two figures that differ by a per cent look alike.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Ticks from at most `low` to at least `high`, at distances that people count in.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let span = (high - low).max(1e-9);
    let power = 10f64.powf((span / 4.0).log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
    let step = steps.into_iter().find(|step| span / step <= 5.0);
    let step = step.unwrap_or(10.0 * power);
    let first = (low / step).floor();
    let count = ((high / step).ceil() - first).clamp(1.0, 12.0) as usize;
    (0..=count).map(|at| (first + at as f64) * step).collect()
}

/// A tick's label: no more digits than its distance needs.
fn tick(value: f64, step: f64) -> String {
    let digits = (-step.log10() - 0.001).ceil().clamp(0.0, 4.0) as usize;
    let digits = digits + usize::from((step * 10f64.powi(digits as i32)).fract().abs() > 1e-6);
    let text = format!("{value:.digits$}");
    if text
        .trim_start_matches('-')
        .trim_matches(['0', '.'])
        .is_empty()
    {
        return "0".to_owned();
    }
    text
}

/// The mark of a series: circle, diamond, square, triangle.
pub fn mark(series: usize, x: f64, y: f64) -> Markup {
    let class = format!("mark s{series}");
    let path = |points: &[(f64, f64)]| {
        let points = points
            .iter()
            .map(|(dx, dy)| format!("{:.1},{:.1}", x + dx, y + dy));
        points.collect::<Vec<_>>().join(" ")
    };
    html! {
        @match series {
            0 => circle class=(class) cx=(format!("{x:.1}")) cy=(format!("{y:.1}")) r="4.2" {},
            1 => polygon class=(class) points=(path(&[(0.0, -5.4), (5.4, 0.0), (0.0, 5.4), (-5.4, 0.0)])) {},
            2 => polygon class=(class) points=(path(&[(-4.0, -4.0), (4.0, -4.0), (4.0, 4.0), (-4.0, 4.0)])) {},
            _ => polygon class=(class) points=(path(&[(0.0, -5.0), (5.0, 4.0), (-5.0, 4.0)])) {},
        }
    }
}

/// The names of the series beside their marks; nothing where there is only one.
fn legend(series: &[Series]) -> Markup {
    html! {
        @if series.len() > 1 {
            ul class="legend" {
                @for (at, series) in series.iter().enumerate() {
                    li {
                        svg class="key" viewBox="0 0 14 14" aria-hidden="true" { (mark(at, 7.0, 7.0)) }
                        (series.name)
                    }
                }
            }
        }
    }
}

impl Dots {
    /// The chart with its legend, and the same as a table. `id` is unique on the page.
    pub fn draw(&self, id: &str) -> Markup {
        let (left, right, top, bottom) = (42.0, WIDTH - 10.0, 12.0, HEIGHT - 38.0);
        let ends = |end: fn(&Point) -> f64| {
            let points = self
                .series
                .iter()
                .flat_map(|series| series.points.iter().flatten());
            points.map(end).collect::<Vec<f64>>()
        };
        let low = ends(Point::low).into_iter().fold(f64::INFINITY, f64::min);
        let high = ends(Point::high)
            .into_iter()
            .fold(f64::NEG_INFINITY, f64::max);
        if !low.is_finite() || !high.is_finite() {
            return html! {};
        }
        let room = ((high - low) * 0.06)
            .max(high.abs().max(low.abs()) * 1e-3)
            .max(1e-6);
        let from = self.range.0.map_or(low - room, |end| end.min(low));
        let to = self.range.1.map_or(high + room, |end| end.max(high));
        let ticks = ticks(from, to);
        let step = ticks.get(1).map_or(1.0, |second| second - ticks[0]);
        let (first, last) = (ticks[0], ticks[ticks.len() - 1]);
        let y = |value: f64| bottom - (value - first) / (last - first) * (bottom - top);
        let width = (right - left) / self.categories.len().max(1) as f64;
        let gap = (width / (self.series.len() as f64 + 1.0)).min(26.0);
        let x = |category: usize, series: usize| {
            let middle = left + width * (category as f64 + 0.5);
            middle + gap * (series as f64 - (self.series.len() as f64 - 1.0) / 2.0)
        };
        // As many names of categories as fit beside each other.
        let longest = self
            .categories
            .iter()
            .map(|name| name.chars().count())
            .max();
        let every = (longest.unwrap_or(0) as f64 * 6.2 + 8.0) / width;
        let every = every.ceil().max(1.0) as usize;
        html! {
            figure class="chart" {
                figcaption { (self.title) }
                svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-labelledby=(format!("{id}-t {id}-d")) {
                    title id=(format!("{id}-t")) { (self.title) }
                    desc id=(format!("{id}-d")) { (self.words()) }
                    @for value in &ticks {
                        line class=(if value.abs() < step * 1e-6 { "grid zero" } else { "grid" })
                            x1=(left) x2=(right) y1=(format!("{:.1}", y(*value))) y2=(format!("{:.1}", y(*value))) {}
                        text class="tick" x=(left - 6.0) y=(format!("{:.1}", y(*value) + 3.5)) text-anchor="end" {
                            (tick(*value, step)) (if self.unit == " %" { "%" } else { "" })
                        }
                    }
                    @for (at, name) in self.categories.iter().enumerate() {
                        @if (self.categories.len() - 1 - at).is_multiple_of(every) {
                            @let middle = left + width * (at as f64 + 0.5);
                            @let half = name.chars().count() as f64 * 3.1;
                            // The last name ends where the chart does.
                            text class="tick" x=(format!("{:.1}", middle.min(WIDTH - 4.0 - half))) y=(bottom + 16.0)
                                text-anchor="middle" { (name) }
                        }
                    }
                    @for at in &self.breaks {
                        @let x = format!("{:.1}", left + width * *at as f64);
                        line class="break" x1=(x) x2=(x) y1=(top) y2=(bottom) {}
                    }
                    text class="axis" x=((left + right) / 2.0) y=(bottom + 32.0) text-anchor="middle" { (self.axis) }
                    @for (s, series) in self.series.iter().enumerate() {
                        @for (c, point) in series.points.iter().enumerate() {
                            @if let Some(point) = point { (self.dot(s, x(c, s), point, &y)) }
                        }
                    }
                }
                (legend(&self.series))
                (self.table())
            }
        }
    }

    fn dot(&self, series: usize, x: f64, point: &Point, y: &dyn Fn(f64) -> f64) -> Markup {
        let at = |value: f64| format!("{:.1}", y(value));
        let across = |value: f64| {
            html! { line x1=(format!("{:.1}", x - 3.0)) x2=(format!("{:.1}", x + 3.0)) y1=(at(value)) y2=(at(value)) {} }
        };
        html! {
            g class=(format!("point s{series}")) {
                title { (self.series.get(series).map_or("", |s| s.name.as_str())) ": " (point.words(self.unit)) }
                @if let Some((low, high)) = point.ends {
                    line x1=(format!("{x:.1}")) x2=(format!("{x:.1}")) y1=(at(low)) y2=(at(high)) {}
                    (across(low)) (across(high))
                }
                (mark(series, x, y(point.value)))
                @if self.labels {
                    @let left = series == 0 && self.series.len() > 1;
                    text class="label" x=(format!("{:.1}", if left { x - 8.0 } else { x + 8.0 }))
                        y=(format!("{:.1}", y(point.value) + 3.5))
                        text-anchor=(if left { "end" } else { "start" }) { (number(point.value)) }
                }
            }
        }
    }

    /// Everything in it, in words.
    fn words(&self) -> String {
        let mut words = Vec::new();
        for (at, category) in self.categories.iter().enumerate() {
            for series in &self.series {
                if let Some(Some(point)) = series.points.get(at) {
                    let figure = point.words(self.unit);
                    words.push(format!(
                        "{} {category}, {}: {figure}",
                        self.axis, series.name
                    ));
                }
            }
        }
        words.join("; ")
    }

    fn table(&self) -> Markup {
        html! {
            details class="figures" {
                summary { "Figures" }
                div class="scroll" { table {
                    thead { tr {
                        th scope="col" { (self.axis) }
                        @for series in &self.series { th scope="col" { (series.name) } }
                    } }
                    tbody { @for (at, category) in self.categories.iter().enumerate() { tr {
                        th scope="row" { (category) }
                        @for series in &self.series {
                            td { (series.points.get(at).copied().flatten().map_or("—".to_owned(), |p| p.words(self.unit))) }
                        }
                    } } }
                } }
            }
        }
    }
}

/// One bar of a [`Bars`].
#[derive(Clone, Debug)]
pub struct Bar {
    /// What it is.
    pub label: String,
    /// Lengths of baseline and candidate.
    pub values: [Option<f64>; 2],
}

/// Lengths of two sides, one group below the other.
#[derive(Clone, Debug)]
pub struct Bars {
    /// What it shows.
    pub title: String,
    /// The groups.
    pub bars: Vec<Bar>,
}

impl Bars {
    /// The chart. `id` is unique on the page.
    pub fn draw(&self, id: &str) -> Markup {
        let values = self.bars.iter().flat_map(|bar| bar.values).flatten();
        let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        if most <= 0.0 {
            return html! {};
        }
        let (left, right, row) = (92.0, WIDTH - 44.0, 38.0);
        let height = row * self.bars.len() as f64 + 8.0;
        let words = self.bars.iter().map(|bar| {
            let [baseline, candidate] = bar
                .values
                .map(|v| v.map_or("not counted".to_owned(), number));
            format!("{}: baseline {baseline}, candidate {candidate}", bar.label)
        });
        let words = words.collect::<Vec<_>>().join("; ");
        let sides = ["baseline", "candidate"].map(|name| Series {
            name: name.to_owned(),
            points: Vec::new(),
        });
        html! {
            figure class="chart" {
                figcaption { (self.title) }
                svg viewBox=(format!("0 0 {WIDTH} {height}")) role="img" aria-labelledby=(format!("{id}-t {id}-d")) {
                    title id=(format!("{id}-t")) { (self.title) }
                    desc id=(format!("{id}-d")) { (words) }
                    @for (at, bar) in self.bars.iter().enumerate() {
                        @let top = row * at as f64 + 6.0;
                        text class="label" x=(left - 8.0) y=(top + 18.0) text-anchor="end" { (bar.label) }
                        @for (side, value) in bar.values.iter().enumerate() {
                            @if let Some(value) = value.filter(|value| value.is_finite()) {
                                @let y = top + 14.0 * side as f64;
                                @let length = (value / most * (right - left)).max(1.5);
                                rect class=(format!("bar s{side}")) x=(left) y=(y) width=(format!("{length:.1}")) height="11" rx="2" {}
                                (mark(side, left + length + 9.0, y + 5.5))
                                text class="tick" x=(format!("{:.1}", left + length + 17.0)) y=(y + 9.5) { (number(value)) }
                            }
                        }
                    }
                    line class="grid zero" x1=(left) x2=(left) y1="2" y2=(height - 4.0) {}
                }
                (legend(&sides))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_hold_all_and_are_round() {
        assert_eq!(ticks(0.0, 100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        for (low, high) in [(-0.3, 0.7), (187.0, 311.0), (5.0, 5.0001), (-3.0, -2.9)] {
            let ticks = ticks(low, high);
            let last = ticks[ticks.len() - 1];
            assert!(
                ticks[0] <= low && last >= high - 1e-9,
                "{low} {high}: {ticks:?}"
            );
            assert!((2..=8).contains(&ticks.len()), "{ticks:?}");
        }
        assert_eq!(tick(0.25, 0.25), "0.25");
        assert_eq!(tick(2.5, 2.5), "2.5");
        assert_eq!(tick(20.0, 20.0), "20");
        assert_eq!(tick(-0.0, 1.0), "0");
        assert_eq!(tick(0.1 + 0.2, 0.1), "0.3");
    }

    #[test]
    fn odd_figures_draw_nothing_and_break_nothing() {
        assert_eq!(Point::new(f64::NAN, 0.0, 1.0), None);
        let mut dots = Dots {
            title: "t".to_owned(),
            axis: "a".to_owned(),
            unit: "",
            categories: vec!["x".to_owned()],
            series: vec![Series {
                name: "s".to_owned(),
                points: vec![None],
            }],
            range: (None, None),
            labels: true,
            breaks: vec![0],
        };
        assert_eq!(dots.draw("i").into_string(), "");
        assert_eq!(
            (Point::bare(1e300), Point::bare(f64::INFINITY)),
            (None, None)
        );
        for value in [0.0, 1e14, -1e14, 1e-300] {
            dots.series[0].points = vec![Point::bare(value)];
            let text = dots.draw("i").into_string();
            assert!(
                !text.contains("NaN") && !text.contains("inf"),
                "{value}: {text}"
            );
        }
    }
}
