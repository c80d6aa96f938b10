//! The kernel release and the machine type (uname(2)).

use std::path::Path;

use crate::file;

/// The kernel and the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Uname {
    /// The kernel release, e.g. `6.1.0-18-amd64`.
    pub release: String,
    /// The machine type, e.g. `x86_64`.
    pub machine: String,
}

impl Uname {
    /// The first two numbers of the release; (0, 0) if it has none.
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

/// Reads the release from `/proc` below `root` (where a test can set another); the machine type is always
/// that of this machine.
#[must_use]
pub fn read(root: &Path) -> Uname {
    let uname = rustix::system::uname();
    let text = file::text(&root.join("proc/sys/kernel/osrelease")).ok();
    let release = text.map_or_else(
        || uname.release().to_string_lossy().into_owned(),
        |text| text.trim().to_owned(),
    );
    Uname {
        release,
        machine: uname.machine().to_string_lossy().into_owned(),
    }
}

/// The name of this machine.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
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
    fn running_kernel_has_a_release() {
        assert!(!read(Path::new("/")).release.is_empty());
    }
}
