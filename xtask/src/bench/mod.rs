//! What our own speed is, beside that of others, measured through the programs themselves.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `series.rs` | a series of any length on a real base, the same on every machine |
//! | `peers.rs` | other programs that apply a series, and how each is called |
//! | `patch.rs` | the measurement of apply and status, round by round |
//! | `long.rs` | one long file with many hunks |
//! | `kernels.rs` | the kernels of ggml-ext beside ggml's own ops |
//! | `measure.rs` | time and memory of a program |

mod kernels;
mod long;
mod measure;
mod patch;
mod peers;
mod series;

pub use kernels::{KernelOptions, KernelReport, KernelRow, kernels};
pub use long::Long;
pub use measure::Times;
pub use patch::{Options, Report, Row, Sized, patch};
pub use peers::Peer;
pub use series::{Generated, Made, generate};
