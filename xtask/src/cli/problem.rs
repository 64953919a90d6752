//! Patches that do not apply, in colour: what is expected in green, what is found in red.

use anstyle::{AnsiColor, Style};

use crate::diff::Part;
use crate::error::Error;
use crate::patchset::Problem;

/// A problem as people read it. The stream that it goes to takes the colours off where they are
/// not wanted.
pub fn painted(problem: &Problem) -> String {
    problem.explain(&|part, text| {
        let style = match part {
            Part::Where => Style::new().bold(),
            Part::Expected => AnsiColor::Green.on_default(),
            Part::Found => AnsiColor::Red.on_default(),
            Part::Quiet => Style::new().dimmed(),
            Part::Place => AnsiColor::Cyan.on_default(),
        };
        format!("{style}{text}{style:#}")
    })
}

/// The message of an error, with the problems that it carries in colour.
pub fn message(error: &Error) -> String {
    let text = error.to_string();
    let problems = error.details().and_then(|data| data.get("problems"));
    let Some(problems) = problems
        .and_then(|list| serde_json::from_value::<Vec<Problem>>(list.clone()).ok())
        .filter(|list| !list.is_empty())
    else {
        return text;
    };
    let mut out = text.lines().next().unwrap_or_default().to_owned();
    let (roots, rest): (Vec<_>, Vec<_>) = problems
        .iter()
        .partition(|problem| problem.follows_from.is_none());
    for problem in roots.into_iter().chain(rest) {
        out.push_str("\n- ");
        out.push_str(&painted(problem).replace('\n', "\n  "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patchset::Images;
    use crate::toy::{HOOK, Toy};

    fn error() -> Error {
        let toy = Toy::with_two_patches();
        let hook = HOOK
            .replace("     one();", "     uno();")
            .replace("+    hook()", "+\thook()");
        toy.patch("first", &hook, &[]);
        Images::compute(&toy.pristine, &toy.load()).unwrap_err()
    }

    #[test]
    fn without_its_colours_it_is_the_message_itself() {
        let error = error();
        let painted = message(&error);
        assert_eq!(
            anstream::adapter::strip_str(&painted).to_string(),
            error.to_string()
        );
        assert_ne!(painted, error.to_string());
        assert_eq!(message(&Error::usage("a\nb")), "a\nb");
    }

    #[test]
    fn expected_and_found_have_their_colours() {
        let painted = message(&error()).replace('\u{1b}', "ESC");
        insta::assert_snapshot!(painted, @r"
        the series does not apply to toy
        - first: src/main.c: ESC[1mhunk 1 (int main()), line 2ESC[0m: the file is not what the hunk expects
            ESC[2mline    expected      | foundESC[0m
            ESC[2m   1ESC[0m    ESC[2mint main() { ESC[0m | ESC[2mint main() {ESC[0m
            ESC[2m   2ESC[0m !  ESC[32m    uno();   ESC[0m | ESC[31m    one();ESC[0m
            ESC[2m   3ESC[0m    ESC[2m    two();   ESC[0m | ESC[2m    two();ESC[0m
            ESC[2m   4ESC[0m    ESC[2m    return 0;ESC[0m | ESC[2m    return 0;ESC[0m
            ESC[2m   5ESC[0m    ESC[2m}            ESC[0m | ESC[2m}ESC[0m
        - second: not tried, since `first` failed
        ");
    }
}
