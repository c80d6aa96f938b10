#!/usr/bin/env bash
# Installs the missing Debian packages of the named groups, and prints their names.
# Usage: scripts/deps.sh [build] [test] [fuzz] [demo] [eval] [guest] [guest-kernel] [dashboard] [packages]
#        [machines]
set -euo pipefail
# shellcheck source=scripts/leftovers.sh
. "$(dirname "$0")/leftovers.sh"

packages_of() {
    case "$1" in
        # clang compiles the BPF programs that read page tables. libbpf needs libelf and zlib.
        build) echo clang gcc libc6-dev make pkg-config libelf-dev zlib1g-dev ;;
        # Minimal images lack ps. scripts/links.py and the spelling checker need Python.
        # mandoc checks the man pages; completions are tested in the shells. Spark needs Java.
        test) echo procps util-linux python3 python3-venv mandoc zsh fish default-jre-headless ;;
        # libFuzzer is C++.
        fuzz) echo g++ ;;
        # The program that `make run` monitors, and its load generator. kmod loads the zram module.
        demo) echo redis-server redis-tools python3 kmod util-linux ;;
        # The programs of the experiments, and the servers of benches/servers.bash.
        eval) echo redis-server redis-tools python3 sqlite3 nodejs zstd kmod util-linux memcached mariadb-server sysbench rocksdb-tools postgresql default-jdk-headless gcc ;;
        # Guests: the emulator, the programs for the initramfs, and tools to unpack kernels.
        guest) echo qemu-system-x86 busybox-static cpio gzip xz-utils kmod binutils ;;
        # Building the guest kernel with the idle-page bitmap. pahole (dwarves) generates its BTF types.
        guest-kernel) echo gcc make bc flex bison libelf-dev dwarves xz-utils ;;
        # The browser that opens the dashboard, and its driver. tests/dashboard/get.sh installs selenium.
        dashboard) echo chromium chromium-driver python3 python3-venv ;;
        # Building and checking Debian packages.
        packages) echo debhelper dpkg-dev dh-apparmor fakeroot lintian ;;
        # Making root file systems of Debian for the emulator.
        machines) echo mmdebstrap e2fsprogs debian-archive-keyring ;;
        *) echo "deps: unknown group $1: use build, test, fuzz, demo, eval, guest, guest-kernel, dashboard, packages or machines" >&2; exit 2 ;;
    esac
}

is_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null || true)" = installed ]
}

wanted=()
for group in "${@:-build}"; do
    packages=$(packages_of "$group")
    # shellcheck disable=SC2206 # package names hold no spaces
    wanted+=($packages)
done

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    echo "deps: apt is not available: install these Debian packages or their equivalents: ${wanted[*]}" >&2
    exit 0
fi

missing=()
for package in $(printf '%s\n' "${wanted[@]}" | sort -u); do
    is_installed "$package" || missing+=("$package")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
    echo "deps: packages are missing, and installing them needs root: run  sudo apt-get install -y ${missing[*]}" >&2
    exit 1
fi

# Servers are installed for benchmarks: do not start them as services.
if [ ! -e /usr/sbin/policy-rc.d ]; then
    trap allow_services EXIT
    forbid_services /usr/sbin/policy-rc.d
fi

echo "deps: installing ${missing[*]} with apt-get" >&2
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
install() { apt-get install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1; }
# Outdated package lists name files that no longer exist. Update them only if the first attempt fails.
if ! install; then
    if ! { apt-get update >"$log" 2>&1 && install; }; then
        tail -n 20 "$log" >&2
        echo "deps: apt-get could not install ${missing[*]} (full output: $log)" >&2
        exit 1
    fi
fi
rm -f "$log"
