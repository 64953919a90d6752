mod drift;
mod outline;
mod uses;

use super::*;

fn path(text: &str) -> RelPath {
    RelPath::new(text).unwrap()
}
