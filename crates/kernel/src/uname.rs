//! Which kernel runs, on what kind of machine (uname(2)).

use std::path::Path;

use crate::file;

/// The kernel and the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Uname {
    /// The kernel's release, `6.1.0-18-amd64`.
    pub release: String,
    /// The machine, `x86_64`.
    pub machine: String,
}

impl Uname {
    /// The first two numbers of the release; (0, 0) when it has none.
    #[must_use]
    pub fn version(&self) -> (u32, u32) {
        let mut numbers = self
            .release
            .split(|c: char| !c.is_ascii_digit())
            .map(|word| word.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
    }

    /// True for Linux `major.minor` and newer.
    #[must_use]
    pub fn at_least(&self, major: u32, minor: u32) -> bool {
        self.version() >= (major, minor)
    }
}

/// Reads the release from `/proc` below `root` (where a test can put another); the machine is always this one.
#[must_use]
pub fn read(root: &Path) -> Uname {
    let real = rustix::system::uname();
    let told = file::text(&root.join("proc/sys/kernel/osrelease")).ok();
    let release = told.map_or_else(
        || real.release().to_string_lossy().into_owned(),
        |text| text.trim().to_owned(),
    );
    Uname {
        release,
        machine: real.machine().to_string_lossy().into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(text: &str) -> Uname {
        Uname {
            release: text.to_owned(),
            machine: String::new(),
        }
    }

    #[test]
    fn releases_are_compared_as_numbers() {
        assert_eq!(release("6.1.0-18-amd64").version(), (6, 1));
        assert!(release("6.12-rc3").at_least(6, 2) && !release("5.10.4").at_least(5, 12));
        assert_eq!(release("unknown").version(), (0, 0));
    }

    #[test]
    fn this_one_has_a_release() {
        assert!(!read(Path::new("/")).release.is_empty());
    }
}
