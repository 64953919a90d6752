//! What is there and what is missing.
