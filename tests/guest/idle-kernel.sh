#!/usr/bin/env bash
# Builds a small kernel with the idle-page bitmap (CONFIG_IDLE_PAGE_TRACKING, which Debian's kernels lack)
# from Debian's linux-source-6.12, and prints the path of its folder, as kernel.sh does. The result is cached.
# Usage: tests/guest/idle-kernel.sh
#
# Options that the guest does not need are off, so that the build takes minutes. BPF with type information is
# included if pahole (Debian's dwarves) is installed. Needs gcc, make, bc, flex and bison (scripts/deps.sh
# guest-kernel). An interrupted build is continued.
#
# KERNEL_JOBS=N   jobs of make (default: the number of CPUs)
set -euo pipefail
cd "$(dirname "$0")/../.."

package=linux-source-6.12
cache=${XDG_CACHE_HOME:-$HOME/.cache}/thermocline
kernel=$cache/kernels/idle
source=$cache/idle-source
if [ -e "$kernel/release" ]; then
    echo "$kernel"
    exit
fi

scripts/deps.sh guest-kernel
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fetch_source() {
    # kernel.sh sets up the package sources.
    tests/guest/kernel.sh 6.12 >/dev/null
    local apt=$cache/apt
    echo "guest: fetching $package" >&2
    (cd "$work" && apt-get -q -o "Dir::State=$apt/state" -o "Dir::Cache=$apt/cache" -o Dir::State::status=/dev/null \
        -o "Dir::Etc::SourceList=$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o APT::Sandbox::User=root \
        download "$package" >download.log 2>&1) || { tail -n 5 "$work/download.log" >&2; exit 1; }
    # The folder gets its final name only when it is complete.
    rm -rf "$source.part"
    mkdir -p "$source.part"
    dpkg-deb --fsys-tarfile "$work/$package"_*.deb | tar -x -O --wildcards './usr/src/*.tar.xz' | tar -xJ -C "$source.part" --strip-components=1
    mv "$source.part" "$source"
}

# Options that the guest needs: see init, inside/*.sh and the options of QEMU in guest.sh. ACPI, PCI and block
# devices are left out, because they take most of the compile time.
wanted() {
    cat <<-'CONFIG'
		64BIT SMP X86_MPPARSE PRINTK TTY SERIAL_8250 SERIAL_8250_CONSOLE BLK_DEV_INITRD RD_GZIP BINFMT_ELF BINFMT_SCRIPT
		PROC_FS PROC_SYSCTL PROC_PAGE_MONITOR SYSFS DEVTMPFS TMPFS SHMEM DEBUG_KERNEL DEBUG_FS MULTIUSER FUTEX EPOLL
		SIGNALFD TIMERFD EVENTFD ADVISE_SYSCALLS MEMBARRIER POSIX_TIMERS HIGH_RES_TIMERS NO_HZ_IDLE PREEMPT_VOLUNTARY
		CGROUPS MEMCG VM_EVENT_COUNTERS TRANSPARENT_HUGEPAGE TRANSPARENT_HUGEPAGE_ALWAYS IDLE_PAGE_TRACKING LRU_GEN
		LRU_GEN_ENABLED CROSS_MEMORY_ATTACH NET UNIX KALLSYMS KALLSYMS_ALL
	CONFIG
}

# BTF types need pahole and build time. Without them only trackers other than pte are tested.
wanted_for_bpf() {
    echo BPF_SYSCALL BPF_JIT PERF_EVENTS KPROBES FTRACE KPROBE_EVENTS UPROBE_EVENTS BPF_EVENTS DEBUG_INFO_DWARF4 DEBUG_INFO_BTF
}

configure() {
    local option
    make -C "$source" -s tinyconfig >"$work/config.log" 2>&1 || { tail -n 5 "$work/config.log" >&2; exit 1; }
    for option in $(wanted) $(command -v pahole >/dev/null && wanted_for_bpf); do
        "$source/scripts/config" --file "$source/.config" --enable "$option"
    done
    "$source/scripts/config" --file "$source/.config" --disable DEBUG_INFO_NONE --disable DEBUG_INFO_REDUCED \
        --disable CC_OPTIMIZE_FOR_SIZE --set-str LOCALVERSION -idle
    make -C "$source" -s olddefconfig >"$work/config.log" 2>&1 || { tail -n 5 "$work/config.log" >&2; exit 1; }
    # Options may be off because of a missing dependency.
    for option in IDLE_PAGE_TRACKING SERIAL_8250_CONSOLE BLK_DEV_INITRD PROC_PAGE_MONITOR DEVTMPFS CROSS_MEMORY_ATTACH; do
        grep -q "^CONFIG_$option=y" "$source/.config" || { echo "guest: CONFIG_$option cannot be enabled in this kernel source" >&2; exit 1; }
    done
}

build() {
    local begin=$SECONDS log=$cache/idle-kernel.log
    echo "guest: building a kernel with the idle-page bitmap, which takes minutes; log: $log" >&2
    if ! make -C "$source" -s -j"${KERNEL_JOBS:-$(nproc)}" bzImage >"$log" 2>&1; then
        grep -iE 'error|fatal' "$log" | head -n 10 >&2
        exit 1
    fi
    echo "guest: built in $((SECONDS - begin)) s" >&2
}

[ -e "$source/Makefile" ] || fetch_source
configure
build
mkdir -p "$work/kernel/modules"
cp "$source/arch/x86/boot/bzImage" "$work/kernel/vmlinuz"
cp "$source/.config" "$work/kernel/config"
make -C "$source" -s kernelrelease >"$work/kernel/release"
mkdir -p "$(dirname "$kernel")"
rm -rf "$kernel"
mv "$work/kernel" "$kernel"
rm -rf "$source"
echo "$kernel"
