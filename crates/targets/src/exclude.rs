//! Who is left alone when the whole machine is the target: what others hang on to.

/// Names as the kernel keeps them: at most 15 bytes.
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

/// Families of names.
const BEGINNINGS: [&str; 8] = [
    "systemd-",
    "containerd-shim",
    "sshd-",
    "gdm",
    "gnome-session",
    "ksmserver",
    "kwin_",
    "dbus-broker-",
];

/// True for init, session and container managers, log-in and display servers, and this program: slowing them slows
/// everybody, or locks the user out.
pub(super) fn is_session_program(comm: &str) -> bool {
    NAMES.contains(&comm) || BEGINNINGS.iter().any(|beginning| comm.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managers_are_left_alone_and_programs_are_not() {
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
    fn names_fit_what_the_kernel_keeps() {
        assert!(NAMES.iter().chain(&BEGINNINGS).all(|name| name.len() <= 15));
    }
}
