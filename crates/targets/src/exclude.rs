//! Programs that are never targets of `--system`, because other programs depend on them.

/// Complete names. The kernel truncates names to 15 bytes.
const NAMES: [&str; 26] = [
    "init",
    "systemd",
    "(sd-pam)",
    "runit",
    "openrc",
    "dockerd",
    "containerd",
    "podman",
    "crio",
    "kubelet",
    "sshd",
    "login",
    "agetty",
    "getty",
    "dbus-daemon",
    "dbus-broker",
    "polkitd",
    "lightdm",
    "sddm",
    "gnome-shell",
    "plasmashell",
    "Xorg",
    "Xwayland",
    "sway",
    "weston",
    "thermo",
];

/// Prefixes of names.
const PREFIXES: [&str; 8] = [
    "systemd-",
    "containerd-shim",
    "sshd-",
    "gdm",
    "gnome-session",
    "ksmserver",
    "kwin_",
    "dbus-broker-",
];

/// True for init, session and container managers, login and display servers, and this program. Slowing them
/// down slows down all programs, or locks the user out.
pub(super) fn is_session_program(comm: &str) -> bool {
    NAMES.contains(&comm) || PREFIXES.iter().any(|prefix| comm.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_programs_are_excluded_and_others_not() {
        for comm in [
            "systemd",
            "systemd-journal",
            "sshd",
            "thermo",
            "gnome-session-b",
            "containerd-shim",
        ] {
            assert!(is_session_program(comm), "{comm}");
        }
        for comm in ["redis-server", "initdb", "thermometer", "java"] {
            assert!(!is_session_program(comm), "{comm}");
        }
    }

    #[test]
    fn names_fit_into_15_bytes() {
        assert!(NAMES.iter().chain(&PREFIXES).all(|name| name.len() <= 15));
    }
}
