//! Which of the declarations that patches build on differ between two trees.

mod fits;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use rayon::prelude::*;
use serde::Serialize;

use crate::error::Result;
use crate::symbols::includes::{Headers, Sources};
use crate::symbols::uses::{How, Use, identifiers, last, locals};
use crate::symbols::{Language, Outline, Symbol, SymbolKind};
use crate::tree::RelPath;
use fits::{fits, is_bare, is_callable, same_but_for_scope};

/// A text that uses what a tree declares.
#[derive(Clone, Debug)]
pub struct User {
    /// The upstream file that is hooked, or the place of a file of the patch's own.
    pub file: RelPath,
    /// Where the hooked file is in the new tree, if it is called otherwise there.
    pub moved_to: Option<RelPath>,
    /// The content of a file of the patch's own; it need not lie in either tree.
    pub own: Option<Vec<u8>>,
    /// What it uses.
    pub uses: BTreeSet<Use>,
}

/// How a declaration differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// It is there no more, or out of reach of the includes.
    Removed,
    /// It reads otherwise.
    Changed,
    /// There is one more of that name.
    AddedOverload,
    /// The same in another file. Of no consequence while the includes reach it.
    Moved,
}

/// Where something is declared, and how.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// The file.
    pub file: RelPath,
    /// The first line of it, 1-based.
    pub line: usize,
    /// See [`Symbol::signature`].
    pub signature: String,
}

/// One declaration that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Drift {
    /// How.
    pub change: Change,
    /// What it is; nothing for a variable of a function.
    pub kind: Option<SymbolKind>,
    /// Its qualified name; of a variable of a function `function()::name`.
    pub name: String,
    /// In the old tree.
    pub before: Option<Place>,
    /// In the new tree.
    pub after: Option<Place>,
    /// Who uses it: indices into the list of users.
    pub users: Vec<usize>,
}

/// Everything that `users` use and whose declaration differs between `old` and `new`, sorted by
/// gravity and name. What counts for a user is what its includes reach, in either tree.
///
/// Only files that differ and hold one of the names are parsed.
pub fn drift(old: &dyn Sources, new: &dyn Sources, users: &[User]) -> Result<Vec<Drift>> {
    let extra: BTreeMap<RelPath, Vec<u8>> = users
        .iter()
        .filter_map(|user| Some((user.file.clone(), user.own.clone()?)))
        .collect();
    let names: HashSet<&str> = users
        .iter()
        .flat_map(|user| user.uses.iter())
        .map(|used| used.name.as_str())
        .collect();
    let (before, after) = rayon::join(
        || Side::new(old, &extra, users, false),
        || Side::new(new, &extra, users, true),
    );
    let (mut before, mut after) = (before?, after?);
    let (one, two) = rayon::join(
        || before.read(&after, &names),
        || after.read(&before, &names),
    );
    before.outlines = one?;
    after.outlines = two?;
    let mut found = Found::default();
    for (index, user) in users.iter().enumerate() {
        for used in &user.uses {
            if used.how == How::Local {
                local(&before, &after, user, used, index, &mut found)?;
            } else {
                global(&before, &after, used, index, &mut found)?;
            }
        }
    }
    Ok(found.finish())
}

/// One tree as far as it matters.
struct Side<'s> {
    sources: &'s dyn Sources,
    /// What each user's includes reach.
    reach: Vec<BTreeSet<RelPath>>,
    /// The outlines of the files that differ, and that hold a name that is used.
    outlines: HashMap<RelPath, Outline>,
}

impl<'s> Side<'s> {
    fn new(
        sources: &'s dyn Sources,
        extra: &BTreeMap<RelPath, Vec<u8>>,
        users: &[User],
        now: bool,
    ) -> Result<Self> {
        let headers = Headers::new(sources, extra.clone());
        let cmake: BTreeSet<RelPath> = sources
            .paths()
            .into_iter()
            .filter(|path| Language::of(path) == Some(Language::Cmake))
            .collect();
        let reach = users
            .par_iter()
            .map(|user| {
                if Language::of(&user.file) == Some(Language::Cmake) {
                    // Targets are known everywhere, whoever includes whom.
                    return Ok(cmake.clone());
                }
                let moved = user.moved_to.as_ref().filter(|_| now);
                let mut reach = headers.closure(moved.unwrap_or(&user.file))?;
                reach.retain(|path| !extra.contains_key(path));
                Ok(reach)
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Side {
            sources,
            reach,
            outlines: HashMap::new(),
        })
    }

    fn all(&self) -> BTreeSet<&RelPath> {
        self.reach.iter().flatten().collect()
    }

    /// The outlines of what differs in `other`, or is within reach on one side only.
    fn read(&self, other: &Side<'_>, names: &HashSet<&str>) -> Result<HashMap<RelPath, Outline>> {
        let others = other.all();
        let list: Vec<&RelPath> = self.all().into_iter().collect();
        let outlines = list
            .into_par_iter()
            .filter(|path| {
                !others.contains(path)
                    || self.sources.digest(path) != other.sources.digest(path)
                    // For one user it may be out of reach, for another it is not.
                    || self.reach.iter().zip(&other.reach).any(|(one, two)| {
                        one.contains(*path) != two.contains(*path)
                    })
            })
            .map(|path| {
                let text = self.sources.read(path)?.unwrap_or_default();
                let wanted = identifiers(&text).any(|word| names.contains(word));
                let outline = wanted.then(|| Outline::of(path, &text));
                Ok((path.clone(), outline.unwrap_or_default()))
            })
            .collect::<Result<HashMap<_, _>>>()?;
        Ok(outlines)
    }

    /// What `used` may mean for the user with that index, among the files that were parsed.
    fn meant(&self, index: usize, used: &Use) -> Vec<(Place, &Symbol)> {
        let mut found = Vec::new();
        for path in self.reach.get(index).into_iter().flatten() {
            let Some(outline) = self.outlines.get(path) else {
                continue;
            };
            for symbol in &outline.symbols {
                if symbol.name == used.name && fits(used, symbol) {
                    found.push((place(path, symbol), symbol));
                }
            }
        }
        found
    }

    /// Whether a file that was not parsed, since it is the same in both trees, declares `name`.
    fn elsewhere(&self, index: usize, name: &str, signature: Option<&str>) -> Result<bool> {
        for path in self.reach.get(index).into_iter().flatten() {
            if self.outlines.contains_key(path) {
                continue;
            }
            let text = self.sources.read(path)?.unwrap_or_default();
            if !identifiers(&text).any(|word| word == last(name)) {
                continue;
            }
            let outline = Outline::of(path, &text);
            if outline
                .named(name)
                .any(|symbol| signature.is_none_or(|wanted| symbol.tight() == wanted))
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn place(path: &RelPath, symbol: &Symbol) -> Place {
    Place {
        file: path.clone(),
        line: symbol.lines.start,
        signature: symbol.signature.clone(),
    }
}

/// What was found so far, once for all users.
#[derive(Default)]
struct Found {
    list: Vec<Drift>,
}

impl Found {
    fn add(&mut self, drift: Drift) {
        let same = self.list.iter_mut().find(|d| {
            (d.change, &d.name, &d.before, &d.after)
                == (drift.change, &drift.name, &drift.before, &drift.after)
        });
        match same {
            Some(known) => {
                for user in drift.users {
                    if !known.users.contains(&user) {
                        known.users.push(user);
                    }
                }
            }
            None => self.list.push(drift),
        }
    }

    fn finish(mut self) -> Vec<Drift> {
        self.list.sort_by(|a, b| {
            let key = |d: &Drift| (d.change, d.name.clone(), d.before.clone(), d.after.clone());
            key(a).cmp(&key(b))
        });
        self.list
    }
}

/// One declaration on one side.
struct Declared<'s> {
    place: Place,
    symbol: &'s Symbol,
    tight: String,
}

fn global(
    before: &Side<'_>,
    after: &Side<'_>,
    used: &Use,
    index: usize,
    found: &mut Found,
) -> Result<()> {
    let mut groups: BTreeMap<String, [Vec<Declared<'_>>; 2]> = BTreeMap::new();
    for (at, side) in [before, after].into_iter().enumerate() {
        for (place, symbol) in side.meant(index, used) {
            let group = groups.entry(symbol.qualified()).or_default();
            group[at].push(Declared {
                place,
                symbol,
                tight: symbol.tight(),
            });
        }
    }
    for (name, [old, new]) in groups {
        if !old.is_empty() {
            compare(after, &name, &old, &new, index, found)?;
        }
    }
    Ok(())
}

fn compare(
    after: &Side<'_>,
    name: &str,
    old: &[Declared<'_>],
    new: &[Declared<'_>],
    index: usize,
    found: &mut Found,
) -> Result<()> {
    let drift = |change, old: Option<&Declared<'_>>, new: Option<&Declared<'_>>| Drift {
        change,
        kind: old.or(new).map(|side| side.symbol.kind),
        name: name.to_owned(),
        before: old.map(|side| side.place.clone()),
        after: new.map(|side| side.place.clone()),
        users: vec![index],
    };
    let only = |these: &[Declared<'_>], those: &[Declared<'_>]| -> Vec<usize> {
        let mut seen = HashSet::new();
        let mut list: Vec<usize> = (0..these.len())
            .filter(|at| !those.iter().any(|that| that.tight == these[*at].tight))
            .filter(|at| seen.insert(these[*at].tight.clone()))
            .collect();
        // What a header says comes first.
        list.sort_by_key(|at| these[*at].symbol.defined);
        list
    };
    let (mut gone, mut come) = (only(old, new), only(new, old));
    let declared =
        |list: &[usize], side: &[Declared<'_>]| list.iter().any(|at| is_bare(side[*at].symbol));
    if declared(&gone, old) && declared(&come, new) {
        // Declaration and definition changed alike: once is enough.
        gone.retain(|at| is_bare(old[*at].symbol));
        come.retain(|at| is_bare(new[*at].symbol));
    }
    unpaired(
        after,
        (index, name),
        (old, gone),
        (new, come),
        &drift,
        found,
    )?;
    moved(old, new, &drift, found);
    Ok(())
}

/// One change of a declaration, from its two sides.
type Make<'f> = &'f dyn Fn(Change, Option<&Declared<'_>>, Option<&Declared<'_>>) -> Drift;

/// Declarations that read otherwise, are gone, or are new: `gone` and `come` are indices of those
/// that the other side does not have alike.
fn unpaired(
    after: &Side<'_>,
    (index, name): (usize, &str),
    (old, gone): (&[Declared<'_>], Vec<usize>),
    (new, mut come): (&[Declared<'_>], Vec<usize>),
    drift: Make<'_>,
    found: &mut Found,
) -> Result<()> {
    for at in gone {
        let was = &old[at];
        let nearest = (0..come.len()).max_by(|a, b| {
            let score = |at: usize| {
                let other = &new[come[at]];
                let same_kind = other.symbol.kind == was.symbol.kind;
                let near = strsim::normalized_levenshtein(&was.tight, &other.tight);
                near + if same_kind { 1.0 } else { 0.0 }
            };
            score(*a).total_cmp(&score(*b))
        });
        match nearest {
            Some(nearest) => {
                let now = &new[come.remove(nearest)];
                found.add(drift(Change::Changed, Some(was), Some(now)));
            }
            // A prototype less, or a definition out of reach, while another one stands.
            None if is_callable(was.symbol) && after.elsewhere(index, name, None)? => {}
            None if new.iter().any(|now| same_but_for_scope(was, now)) => {}
            None => found.add(drift(Change::Removed, Some(was), None)),
        }
    }
    for at in come {
        let now = &new[at];
        let fresh = is_callable(now.symbol)
            && !old.iter().any(|was| same_but_for_scope(was, now))
            && !after.elsewhere(index, name, Some(&now.tight))?;
        if fresh {
            found.add(drift(Change::AddedOverload, None, Some(now)));
        }
    }
    Ok(())
}

/// Declarations that read the same and stand in another file.
fn moved(old: &[Declared<'_>], new: &[Declared<'_>], drift: Make<'_>, found: &mut Found) {
    let files = |side: &[Declared<'_>]| -> BTreeSet<(String, RelPath)> {
        let each = side.iter();
        each.map(|s| (s.tight.clone(), s.place.file.clone()))
            .collect()
    };
    let (were, are) = (files(old), files(new));
    for was in old {
        let stays = are.contains(&(was.tight.clone(), was.place.file.clone()));
        let now = new.iter().find(|now| {
            now.tight == was.tight && !were.contains(&(now.tight.clone(), now.place.file.clone()))
        });
        if let (false, Some(now)) = (stays, now) {
            found.add(drift(Change::Moved, Some(was), Some(now)));
        }
    }
}

/// A variable of the function around a hook.
fn local(
    before: &Side<'_>,
    after: &Side<'_>,
    user: &User,
    used: &Use,
    index: usize,
    found: &mut Found,
) -> Result<()> {
    let Some(function) = &used.within else {
        return Ok(());
    };
    let there = user.moved_to.as_ref().unwrap_or(&user.file);
    let (Some(old), Some(new)) = (before.outlines.get(&user.file), after.outlines.get(there))
    else {
        // The file is the same, or not there at all.
        return Ok(());
    };
    let declarations = |side: &Side<'_>, outline: &Outline, file: &RelPath| -> Result<Vec<Place>> {
        let text = side.sources.read(file)?.unwrap_or_default();
        let mut list = Vec::new();
        for symbol in outline.named(function).filter(|symbol| symbol.defined) {
            for local in locals(&text, &symbol.lines) {
                if local.name == used.name {
                    list.push(Place {
                        file: file.clone(),
                        line: local.line,
                        signature: local.signature,
                    });
                }
            }
        }
        Ok(list)
    };
    if new.named(function).all(|symbol| !symbol.defined) {
        // The function itself is gone, which the merge has to say.
        return Ok(());
    }
    let old = declarations(before, old, &user.file)?;
    let new = declarations(after, new, there)?;
    let tight = |place: &Place| super::parse::tight(&place.signature);
    let gone = old
        .iter()
        .find(|was| !new.iter().any(|now| tight(now) == tight(was)));
    let Some(was) = gone else { return Ok(()) };
    let now = new
        .iter()
        .find(|now| !old.iter().any(|was| tight(was) == tight(now)));
    let change = if new.is_empty() {
        Change::Removed
    } else {
        Change::Changed
    };
    if now.is_some() || new.is_empty() {
        found.add(Drift {
            change,
            kind: None,
            name: format!("{function}()::{}", used.name),
            before: Some(was.clone()),
            after: now.cloned(),
            users: vec![index],
        });
    }
    Ok(())
}
