//! Declarations that the series uses and that are not what they were: a merge without conflict
//! does not mean that it still compiles, or means the same.

use crate::ctx::Ctx;
use crate::error::Result;
use crate::sync::session::Step;

/// One declaration.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Drift {}

impl Drift {
    /// x
    pub fn matters(&self) -> bool {
        true
    }

    /// x
    pub fn text(&self) -> String {
        String::new()
    }
}

/// Every upstream declaration that hooks or overlay of the carried patches use and that differs
/// between the two bases.
pub fn drift(ctx: &Ctx, step: &Step) -> Result<Vec<Drift>> {
    let _ = (ctx, step);
    Ok(Vec::new())
}
