//! What a reviewer checks at a glance: the old and the new patched tree differ as the two bases
//! do, hook lines aside. What is left over is listed.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::diff;
use crate::error::Result;
use crate::patchset::{Images, Patch, Series};
use crate::vendor::Pristine;

/// The result of comparing what a series inserts on two bases.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// Hooks whose bytes are the same on both.
    pub same_hooks: usize,
    /// Overlay files whose bytes are the same on both.
    pub same_overlay: usize,
    /// Upstream lines that hooks delete on the new base.
    pub deleted: usize,
    /// Everything else: hooks that are other bytes, more, or fewer.
    pub left_over: Vec<LeftOver>,
}

/// One difference that is not the bases'.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOver {
    /// The patch.
    pub patch: String,
    /// What is different, in words.
    pub what: String,
    /// The lines on the old base.
    pub old: String,
    /// The lines on the new base.
    pub new: String,
}

/// Compares `old`, the series on its base, with `new`, what it became on another one. Both are
/// applied first: the new tree is what its base and these hooks make, and nothing else.
pub fn prove(
    old_base: &Pristine,
    old: &Series,
    new_base: &Pristine,
    new: &Series,
) -> Result<Proof> {
    Images::compute(old_base, old)?;
    Images::compute(new_base, new)?;
    let mut proof = Proof::default();
    for patch in &new.patches {
        let Some(before) = old.patches.iter().find(|other| other.id() == patch.id()) else {
            proof.left_over.push(LeftOver {
                patch: patch.id().to_owned(),
                what: "the patch is only on the new base".to_owned(),
                old: String::new(),
                new: String::new(),
            });
            continue;
        };
        overlay(before, patch, &mut proof);
        hooks(before, patch, &mut proof);
    }
    for patch in &old.patches {
        if !new.patches.iter().any(|other| other.id() == patch.id()) {
            proof.left_over.push(LeftOver {
                patch: patch.id().to_owned(),
                what: "the patch is not on the new base".to_owned(),
                old: String::new(),
                new: String::new(),
            });
        }
    }
    Ok(proof)
}

fn overlay(before: &Patch, after: &Patch, proof: &mut Proof) {
    for file in &after.overlay {
        if before.overlay.contains(file) {
            proof.same_overlay += 1;
        } else {
            proof.left_over.push(LeftOver {
                patch: after.id().to_owned(),
                what: format!("overlay file {} differs", file.path),
                old: String::new(),
                new: String::new(),
            });
        }
    }
}

/// Whether one text is the other, edited: half of their characters are in both, in order.
fn alike(a: &[u8], b: &[u8]) -> bool {
    let (a, b) = (String::from_utf8_lossy(a), String::from_utf8_lossy(b));
    similar::TextDiff::from_chars(a.trim(), b.trim()).ratio() >= 0.5
}

/// Pairs hooks of the same bytes; of what remains, those of one file that are alike.
fn hooks(before: &Patch, after: &Patch, proof: &mut Proof) {
    let list =
        |patch: &Patch| -> Vec<diff::Hook> { patch.hooks.iter().flat_map(diff::hooks).collect() };
    let mut old = list(before);
    let mut new = list(after);
    proof.deleted += new.iter().map(|hook| hook.deleted).sum::<usize>();
    new.retain(|hook| {
        let same = |other: &diff::Hook| other.text == hook.text && other.deleted == hook.deleted;
        // Those of the same file first: the same line may be hooked into several.
        let at = old
            .iter()
            .position(|other| same(other) && other.path == hook.path)
            .or_else(|| old.iter().position(same));
        match at {
            Some(at) => {
                old.remove(at);
                proof.same_hooks += 1;
                false
            }
            None => true,
        }
    });
    let text = |hook: &diff::Hook| String::from_utf8_lossy(&hook.text).into_owned();
    let mut rest: BTreeMap<_, Vec<diff::Hook>> = BTreeMap::new();
    for hook in old {
        rest.entry(hook.path.clone()).or_default().push(hook);
    }
    for hook in new {
        let partner = rest.get_mut(&hook.path).and_then(|list| {
            let at = list.iter().position(|old| alike(&old.text, &hook.text))?;
            Some(list.remove(at))
        });
        proof.left_over.push(LeftOver {
            patch: after.id().to_owned(),
            what: match &partner {
                Some(_) => format!("a hook in {} has other lines", hook.path),
                None => format!("a hook in {} is new", hook.path),
            },
            old: partner.as_ref().map(text).unwrap_or_default(),
            new: text(&hook),
        });
    }
    for hook in rest.into_values().flatten() {
        proof.left_over.push(LeftOver {
            patch: after.id().to_owned(),
            what: format!("a hook of {}:{} is gone", hook.path, hook.line),
            old: text(&hook),
            new: String::new(),
        });
    }
}
