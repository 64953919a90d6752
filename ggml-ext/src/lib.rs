//! Rust kernels for ggml.
