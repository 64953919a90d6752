//! Unified diffs: parse, and apply exactly.
