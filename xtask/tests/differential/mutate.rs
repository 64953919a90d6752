//! Damage to patches, of the kinds that people and tools do.

use super::random::Rng;

/// The lines of a patch, each with its line end.
type Lines = Vec<Vec<u8>>;

/// Damages `patch` once or twice.
pub fn mutate(rng: &mut Rng, patch: &[u8]) -> Vec<u8> {
    let mut text = patch.to_vec();
    for _ in 0..1 + rng.below(2) {
        text = once(rng, &text);
    }
    text
}

fn once(rng: &mut Rng, text: &[u8]) -> Vec<u8> {
    let mut lines: Lines = text
        .split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    if lines.is_empty() {
        return text.to_vec();
    }
    let any = rng.below(lines.len());
    match rng.below(20) {
        0..=2 => numbers(rng, &mut lines),
        3 => drop(lines.remove(any)),
        4 => lines.insert(any, lines[any].clone()),
        5 => body(rng, &mut lines),
        6 => blocks(rng, &mut lines, b"@@ -"),
        7 => blocks(rng, &mut lines, b"diff --git "),
        8 => lines.truncate(any + 1),
        9 => {
            let mut cut = text.to_vec();
            cut.truncate(rng.below(text.len()));
            return cut;
        }
        10 => no_line_end(rng, &mut lines),
        11 => modes(rng, &mut lines),
        12 => names(rng, &mut lines),
        13 => crlf(rng, &mut lines),
        14 => {
            let strays: &[&[u8]] = &[
                b"\n",
                b"+x\n",
                b" a\n",
                b"-a\n",
                b"prose\n",
                b"-- \n",
                b"--- \n",
                b"\\ No newline at end of file\n",
                b"index 1..2\n",
                b"Index: a\n",
                b"old mode 100644\n",
                b"new mode 100755\n",
                b"similarity index 7%\n",
                b"new file mode 100644\n",
                b"deleted file mode 100644\n",
                b"--- /dev/null\n",
                b"+++ /dev/null\n",
            ];
            lines.insert(any, rng.pick(strays).to_vec());
        }
        15 => traditional(rng, &mut lines),
        16 => {
            // An editor that takes blanks off line ends.
            for line in &mut lines {
                if line == b" \n" {
                    *line = b"\n".to_vec();
                }
            }
        }
        17 => {
            let other = rng.below(lines.len());
            lines.swap(any, other);
        }
        18 => {
            // A context line becomes a change, or the other way round.
            if let Some(first) = lines[any].first_mut() {
                *first = *rng.pick(b" +-\\@");
            }
        }
        _ => {
            if let Some(byte) = lines[any].iter_mut().rev().nth(1) {
                *byte = *rng.pick(b"ab 1,\t\r");
            }
        }
    }
    lines.concat()
}

/// Indices of the lines that begin with `prefix`.
fn heads(lines: &Lines, prefix: &[u8]) -> Vec<usize> {
    (0..lines.len())
        .filter(|at| lines[*at].starts_with(prefix))
        .collect()
}

/// Changes a number in a hunk header.
fn numbers(rng: &mut Rng, lines: &mut Lines) {
    let heads = heads(lines, b"@@ -");
    if heads.is_empty() {
        return;
    }
    let at = *rng.pick(&heads);
    let text = String::from_utf8_lossy(&lines[at]).into_owned();
    let Some((ranges, rest)) = text[4..].split_once(" @@") else {
        return;
    };
    let Some((old, new)) = ranges.split_once(" +") else {
        return;
    };
    let part = |range: &str| -> Option<(i64, i64)> {
        match range.split_once(',') {
            Some((start, len)) => Some((start.parse().ok()?, len.parse().ok()?)),
            None => Some((range.parse().ok()?, 1)),
        }
    };
    let (Some(mut old), Some(mut new)) = (part(old), part(new)) else {
        return;
    };
    let by = [-2, -1, 1, 1, 2, 3][rng.below(6)];
    match rng.below(6) {
        0 => old.0 += by,
        1 => new.0 += by,
        2 | 3 => (old.0, new.0) = (old.0 + by, new.0 + by),
        4 => (old.1, new.1) = (old.1 + by, new.1 + by),
        _ => new.1 += by,
    }
    let text = format!("@@ -{},{} +{},{} @@{rest}", old.0, old.1, new.0, new.1);
    lines[at] = text.into_bytes();
}

/// Changes, drops or doubles a line of a hunk.
fn body(rng: &mut Rng, lines: &mut Lines) {
    let all: Vec<usize> = (0..lines.len())
        .filter(|at| matches!(lines[*at].first(), Some(b' ' | b'+' | b'-')))
        .collect();
    if all.is_empty() {
        return;
    }
    let at = *rng.pick(&all);
    match rng.below(4) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(at, lines[at].clone()),
        2 => lines[at].insert(1, b'z'),
        _ => lines[at] = [&lines[at][..1], b"a\n"].concat(),
    }
}

/// Swaps, doubles or drops what begins with a line like `head`.
fn blocks(rng: &mut Rng, lines: &mut Lines, head: &[u8]) {
    let mut starts = heads(lines, head);
    let Some(first) = starts.first().copied() else {
        return;
    };
    starts.push(lines.len());
    let before: Lines = lines[..first].to_vec();
    let mut parts: Vec<Lines> = starts
        .windows(2)
        .map(|pair| lines[pair[0]..pair[1]].to_vec())
        .collect();
    let at = rng.below(parts.len());
    let to = rng.below(parts.len());
    match rng.below(4) {
        0 => drop(parts.remove(at)),
        1 => parts.insert(to, parts[at].clone()),
        _ => parts.swap(at, to),
    }
    *lines = [vec![before], parts].concat().concat();
}

/// Adds or drops a marker for a missing line end, or the last line end.
fn no_line_end(rng: &mut Rng, lines: &mut Lines) {
    let marker = b"\\ No newline at end of file\n";
    let there = heads(lines, b"\\");
    match rng.below(3) {
        0 if !there.is_empty() => drop(lines.remove(*rng.pick(&there))),
        1 => {
            if let Some(last) = lines.last_mut() {
                last.pop();
            }
        }
        _ => {
            let at = match rng.below(2) {
                0 => lines.len(),
                _ => rng.below(lines.len() + 1),
            };
            lines.insert(at, marker.to_vec());
        }
    }
}

fn modes(rng: &mut Rng, lines: &mut Lines) {
    let all: Vec<usize> = (0..lines.len())
        .filter(|at| {
            let line = &lines[*at];
            [&b"100644\n"[..], b"100755\n", b"120000\n"]
                .iter()
                .any(|mode| line.ends_with(mode))
        })
        .collect();
    if all.is_empty() {
        return;
    }
    let at = *rng.pick(&all);
    let keep = lines[at].len() - 7;
    let mode = rng.pick(&["100644", "100755", "120000", "160000", "100600", "644"]);
    lines[at] = [&lines[at][..keep], mode.as_bytes(), b"\n"].concat();
}

/// Changes a name in one line of a header, or in all of them.
fn names(rng: &mut Rng, lines: &mut Lines) {
    let prefixes: &[&[u8]] = &[b"diff --git ", b"--- ", b"+++ ", b"rename ", b"copy "];
    let all: Vec<usize> = (0..lines.len())
        .filter(|at| prefixes.iter().any(|prefix| lines[*at].starts_with(prefix)))
        .collect();
    if all.is_empty() {
        return;
    }
    let swaps = [
        ("a/a", "a/b.c"),
        ("/a", "/../a"),
        ("/a", "/.git/a"),
        ("/d", "//d"),
        ("/a", "/./a"),
        ("a/", "/"),
        ("/a", "/A"),
        ("a", "b"),
        ("/two", "/one"),
        ("\t", ""),
        (" ", ""),
        ("d/", ""),
        ("b/", "b/n/"),
        ("a/", "w/"),
        ("\\", ""),
        ("/a", "/a/b"),
        ("b/", "b\\"),
        ("/d/e", "/d"),
        ("a/", "x/y/"),
        ("\n", ".orig\n"),
        ("\n", "~\n"),
        ("\n", "\t2020-01-01\n"),
        ("\n", " 2020-01-01 00:00:00 +0000\n"),
    ];
    let (from, to) = rng.pick(&swaps);
    let one = *rng.pick(&all);
    let everywhere = rng.chance(60);
    for at in all {
        if everywhere || at == one {
            let text = String::from_utf8_lossy(&lines[at]);
            lines[at] = text.replacen(from, to, 1 + rng.below(2)).into_bytes();
        }
    }
}

/// Converts line ends: of all lines, of the headers, of the bodies, or of one.
fn crlf(rng: &mut Rng, lines: &mut Lines) {
    let (what, one) = (rng.below(4), rng.below(lines.len()));
    for (at, line) in lines.iter_mut().enumerate() {
        let is_body = matches!(line.first(), Some(b' ' | b'+' | b'-')) && !line.starts_with(b"---");
        let chosen = match what {
            0 => true,
            1 => is_body,
            2 => !is_body,
            _ => at == one,
        };
        if chosen && line.ends_with(b"\n") {
            line.pop();
            line.extend_from_slice(b"\r\n");
        }
    }
}

/// Takes git's headers away, and perhaps adds time stamps.
fn traditional(rng: &mut Rng, lines: &mut Lines) {
    let extended: &[&[u8]] = &[
        b"diff --git ",
        b"index ",
        b"new file mode ",
        b"deleted file mode ",
        b"old mode ",
        b"new mode ",
        b"similarity ",
        b"rename ",
        b"copy ",
    ];
    lines.retain(|line| !extended.iter().any(|prefix| line.starts_with(prefix)));
    let stamps = [
        "",
        "",
        "\t2020-01-01 10:00:00.000000000 +0100",
        "\t1970-01-01 00:00:00.000000000 +0000",
        "\t1970-01-01 01:00:00.000000000 +0100",
    ];
    let null = rng.chance(30);
    for line in lines {
        if line.starts_with(b"--- ") || line.starts_with(b"+++ ") {
            let text = String::from_utf8_lossy(line);
            let mut name = text.trim_end_matches(['\n', '\t']).to_owned();
            if null && name.ends_with("/dev/null") {
                name = name.replace("/dev/null", "a/a");
            }
            *line = format!("{name}{}\n", rng.pick(&stamps)).into_bytes();
        }
    }
}
