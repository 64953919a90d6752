//! Signs of verdicts: drawn, so that no font decides what they look like, and each with a shape
//! of its own, so that no colour decides what they mean.

use maud::{Markup, html};

use crate::model::Verdict;
use crate::report::cases::{Case, counts};

/// Cells in one line of a [`strip`], and the distance between them.
const COLUMNS: usize = 24;
const STEP: usize = 11;

/// The verdict as a class of the style sheet.
pub fn name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Fail => "fail",
        Verdict::Inconclusive => "open",
        Verdict::Skipped => "skip",
    }
}

/// A sign that says what it is.
pub fn glyph(verdict: Verdict) -> Markup {
    html! {
        svg class=(format!("glyph {}", name(verdict))) viewBox="0 0 20 20" role="img" aria-label=(verdict.to_string()) {
            @match verdict {
                Verdict::Pass => { circle cx="10" cy="10" r="9" {} path d="M5.5 10.4l3 3 6-6.6" {} }
                Verdict::Fail => { path class="plate" d="M6 1h8l5 5v8l-5 5H6l-5-5V6z" {} path d="M6.5 6.5l7 7m0-7l-7 7" {} }
                Verdict::Inconclusive => { path class="plate" d="M10 .6l9.4 9.4-9.4 9.4L.6 10z" {} path d="M7.8 8a2.2 2.2 0 1 1 3.1 2c-.7.3-.9.7-.9 1.4m0 2.4v.1" {} }
                Verdict::Skipped => { circle class="ring" cx="10" cy="10" r="8" {} path class="bare" d="M6 10h8" {} }
            }
        }
    }
}

/// Every case as one small cell.
pub fn strip(cases: &[Case]) -> Markup {
    let columns = cases.len().clamp(1, COLUMNS);
    let lines = cases.len().div_ceil(COLUMNS).max(1);
    let words = counts(cases).into_iter().filter(|(_, count)| *count > 0);
    let words: Vec<String> = words
        .map(|(verdict, count)| format!("{count} {verdict}"))
        .collect();
    html! {
        @if !cases.is_empty() {
            svg class="strip" role="img" aria-label=(words.join(", "))
                width=(columns * STEP) height=(lines * STEP) viewBox=(format!("0 0 {} {}", columns * STEP, lines * STEP)) {
                @for (at, case) in cases.iter().enumerate() {
                    (cell(case.verdict, (at % COLUMNS) * STEP, (at / COLUMNS) * STEP, Some(&case.name)))
                }
            }
        }
    }
}

/// One cell for a legend.
pub fn key(verdict: Verdict) -> Markup {
    html! {
        svg class="strip" aria-hidden="true" width=(STEP) height=(STEP) viewBox=(format!("0 0 {STEP} {STEP}")) {
            (cell(verdict, 0, 0, None))
        }
    }
}

/// Full, crossed out, hollow, or a dot.
fn cell(verdict: Verdict, x: usize, y: usize, title: Option<&str>) -> Markup {
    html! {
        g class=(name(verdict)) {
            @if let Some(title) = title { title { (title) ": " (verdict.to_string()) } }
            @match verdict {
                Verdict::Pass => { rect class="full" x=(x + 1) y=(y + 1) width="9" height="9" rx="2" {} }
                Verdict::Fail => {
                    rect class="full" x=(x) y=(y) width="11" height="11" rx="1" {}
                    path class="cut" d=(format!("M{} {}l6 6m0-6l-6 6", x as f64 + 2.5, y as f64 + 2.5)) {}
                }
                Verdict::Inconclusive => { rect class="hollow" x=(x as f64 + 1.75) y=(y as f64 + 1.75) width="7.5" height="7.5" rx="1.5" {} }
                Verdict::Skipped => { circle class="full" cx=(x as f64 + 5.5) cy=(y as f64 + 5.5) r="1.8" {} }
            }
        }
    }
}
