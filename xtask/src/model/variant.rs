//! How a build is made besides being of a flavour and for a backend.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// What compilers are asked to do.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Optimised, as upstream releases it.
    #[default]
    Release,
    /// Not optimised, with symbols, and with assertions.
    Debug,
    /// With AddressSanitizer, some optimisation, line numbers and assertions.
    Asan,
    /// With UndefinedBehaviorSanitizer, likewise.
    Ubsan,
}

impl Profile {
    /// All of them.
    pub const ALL: [Profile; 4] = [
        Profile::Release,
        Profile::Debug,
        Profile::Asan,
        Profile::Ubsan,
    ];

    /// As it is written in commands and files.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Release => "release",
            Profile::Debug => "debug",
            Profile::Asan => "asan",
            Profile::Ubsan => "ubsan",
        }
    }

    /// What `-fsanitize=` is given.
    pub fn sanitizer(self) -> Option<&'static str> {
        match self {
            Profile::Release | Profile::Debug => None,
            Profile::Asan => Some("address"),
            Profile::Ubsan => Some("undefined"),
        }
    }
}

/// How programs get llama.cpp's libraries.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Libraries {
    /// They lie beside the programs.
    #[default]
    Shared,
    /// They are inside the programs.
    Static,
}

/// For which processors the CPU backend is compiled.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Processors {
    /// The one that builds.
    #[default]
    Native,
    /// Each that upstream has a variant for; the best one is loaded at run time.
    All,
}

/// How a build is made. The plain one is what is said of builds that say nothing.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize,
)]
#[serde(deny_unknown_fields, default)]
pub struct Variant {
    /// What compilers are asked to do.
    #[serde(skip_serializing_if = "is_default")]
    pub profile: Profile,
    /// How programs get llama.cpp's libraries.
    #[serde(skip_serializing_if = "is_default")]
    pub libraries: Libraries,
    /// For which processors the CPU backend is compiled.
    #[serde(skip_serializing_if = "is_default")]
    pub processors: Processors,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Variant {
    /// One with this profile, and plain besides.
    pub fn of(profile: Profile) -> Self {
        Variant {
            profile,
            ..Variant::default()
        }
    }

    /// Fails where there is no such build, a usage error.
    pub fn check(&self) -> Result<()> {
        if (self.libraries, self.processors) == (Libraries::Static, Processors::All) {
            return Err(Error::usage(
                "variants for processors are libraries that are loaded at run time: a static build has none",
            )
            .hint("leave out --libraries static, or --cpu-variants"));
        }
        Ok(())
    }

    /// Whether it is the one that needs no words.
    pub fn is_plain(&self) -> bool {
        is_default(self)
    }

    /// What a build folder's name ends with: empty for the plain one, else such as
    /// `-asan-static`.
    pub fn suffix(&self) -> String {
        let mut suffix = String::new();
        if self.profile != Profile::default() {
            suffix.push('-');
            suffix.push_str(self.profile.name());
        }
        if self.libraries == Libraries::Static {
            suffix.push_str("-static");
        }
        if self.processors == Processors::All {
            suffix.push_str("-variants");
        }
        suffix
    }

    /// The flags of `cargo xtask build` that ask for it, each after a blank.
    pub fn flags(&self) -> String {
        let mut flags = String::new();
        if self.profile != Profile::default() {
            flags.push_str(" --profile ");
            flags.push_str(self.profile.name());
        }
        if self.libraries == Libraries::Static {
            flags.push_str(" --libraries static");
        }
        if self.processors == Processors::All {
            flags.push_str(" --cpu-variants");
        }
        flags
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_one_is_not_spoken_of() {
        let plain = Variant::default();
        assert!(plain.is_plain());
        assert_eq!(plain.suffix() + &plain.flags(), "");
        assert_eq!(serde_json::to_string(&plain).unwrap(), "{}");
        let odd = Variant {
            profile: Profile::Ubsan,
            libraries: Libraries::Static,
            processors: Processors::All,
        };
        assert_eq!(odd.suffix(), "-ubsan-static-variants");
        assert_eq!(
            odd.flags(),
            " --profile ubsan --libraries static --cpu-variants"
        );
        let text = serde_json::to_string(&odd).unwrap();
        assert_eq!(serde_json::from_str::<Variant>(&text).unwrap(), odd);
        for profile in Profile::ALL {
            let quoted = format!("\"{}\"", profile.name());
            assert_eq!(serde_json::to_string(&profile).unwrap(), quoted);
        }
    }
}
