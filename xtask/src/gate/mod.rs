//! Servers under test, comparisons, verdicts, reports.
