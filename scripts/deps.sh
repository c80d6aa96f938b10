#!/usr/bin/env bash
# Installs the Debian packages that the named groups need and this machine lacks, and says which.
# Usage: scripts/deps.sh [build] [test] [demo] [eval] [guest] [guest-kernel]
set -euo pipefail

packages_of() {
    case "$1" in
        # clang compiles the page-table reading BPF programs; libelf and zlib are what libbpf loads them with.
        build) echo clang gcc libc6-dev make pkg-config libelf-dev zlib1g-dev ;;
        # ps and friends are not on every minimal image. scripts/links.py is Python.
        test) echo procps util-linux python3 ;;
        # The program `make run` looks at, and what loads it. kmod loads the zram module.
        demo) echo redis-server redis-tools python3 kmod util-linux ;;
        # The programs of the experiments, and the servers of benches/working_set.sh.
        eval) echo redis-server redis-tools python3 sqlite3 nodejs zstd kmod util-linux memcached mariadb-server sysbench rocksdb-tools ;;
        # The guests: an emulated machine, what is put into it, and what unpacks the kernels.
        guest) echo qemu-system-x86 busybox-static cpio gzip xz-utils kmod binutils ;;
        # The kernel that is built for one of them; pahole describes its types.
        guest-kernel) echo gcc make bc flex bison libelf-dev dwarves xz-utils ;;
        *) echo "deps: $1 is not a group: use build, test, demo, eval, guest or guest-kernel" >&2; exit 2 ;;
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
    echo "deps: apt is not here, so nothing is installed; what Debian calls ${wanted[*]} is needed" >&2
    exit 0
fi

missing=()
for package in $(printf '%s\n' "${wanted[@]}" | sort -u); do
    is_installed "$package" || missing+=("$package")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
    echo "deps: ${missing[*]} must be installed, which needs root: run  sudo apt-get install -y ${missing[*]}" >&2
    exit 1
fi

# A server that is installed here is to be measured, not to be started as a service of this machine.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
fi

echo "deps: installing ${missing[*]} with apt-get" >&2
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
install() { apt-get install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1; }
# Old package lists name files that are gone; fetch them before a second attempt only.
if ! install; then
    if ! { apt-get update >"$log" 2>&1 && install; }; then
        tail -n 20 "$log" >&2
        echo "deps: apt-get could not install ${missing[*]} (its whole output: $log)" >&2
        exit 1
    fi
fi
rm -f "$log"
