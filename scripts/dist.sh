#!/usr/bin/env bash
# Builds a release in target/dist: the source with all crates (builds offline), the binaries, their debug
# files apart, an SBOM, and checksums. The binaries are built from the source archive, without a network.
#
# Usage: scripts/dist.sh [--check]
#   --check   build the binaries once more in another folder, and compare byte for byte
#
# Only what is committed is in a release. Two runs on the same commit with the same Rust and the same Debian
# packages give the same files.
set -euo pipefail
cd "$(dirname "$0")/.."

check=
case "${1:-}" in
    '') ;;
    --check) check=1 ;;
    *) echo "dist: unknown option $1: use --check or nothing" >&2; exit 2 ;;
esac
[ -z "$(git status --porcelain --untracked-files=no)" ] || {
    echo "dist: there are changes that are not committed: commit or stash them, a release holds commits only" >&2
    exit 2
}

version=$(sed -n '/^\[workspace.package\]/,/^$/ s/^version = "\(.*\)"$/\1/p' Cargo.toml)
name=thermocline-$version
binaries="thermo thermo-nbd thermo-lab thermo-upload"
bin=$name-$(rustc -vV | sed -n 's/^host: //p')
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
dist=$PWD/target/dist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$dist"
mkdir -p "$dist"

# The same files, owner, times and order give the same archive; blocks of a fixed size, whatever the number of
# CPUs.
pack() { # ARCHIVE FOLDER NAME...
    local archive=$1 folder=$2
    shift 2
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw \
        -C "$folder" -c "$@" | xz -T2 --block-size=32MiB -5 >"$archive"
}

echo "dist: source of $name"
mkdir "$work/source"
git archive --prefix="$name/" HEAD | tar -x -C "$work/source"
source=$work/source/$name
mkdir -p "$source/.cargo"
(cd "$source" && cargo vendor --quiet --locked --versioned-dirs vendor >.cargo/config.toml)
pack "$dist/$name.tar.xz" "$work/source" "$name"

# Unpacks the source in a folder, builds it there without a network, and leaves what `make install` installs
# in FOLDER/$bin, and the debug files in FOLDER/$bin-debug.
build() { # FOLDER
    local folder=$1 src=$1/$name known=/usr/src/$name file debug
    tar -xJf "$dist/$name.tar.xz" -C "$folder"
    (
        cd "$src"
        # Paths in debug information and messages are those of no machine.
        export CARGO_TARGET_DIR=$src/target CARGO_INCREMENTAL=0
        export RUSTFLAGS="--remap-path-prefix=$src=$known"
        export CFLAGS="-ffile-prefix-map=$src=$known" CXXFLAGS="-ffile-prefix-map=$src=$known"
        scripts/small.sh --quiet --offline
        STRIP=no PROFILE=small DESTDIR=$folder/root DATE=$(date -u -d "@$SOURCE_DATE_EPOCH" +%F) \
            TARGET_DIR=$src/target packaging/install.sh lab upload libraries >/dev/null
    )
    mv "$folder/root/usr/local" "$folder/$bin"
    mkdir -p "$folder/$bin-debug"
    for file in "$folder/$bin"/bin/* "$folder/$bin"/lib/*.so.1.*; do
        debug=$folder/$bin-debug/${file##*/}.debug
        objcopy --only-keep-debug --compress-debug-sections=zlib "$file" "$debug"
        strip "$file"
        (cd "$folder/$bin-debug" && objcopy --add-gnu-debuglink="${debug##*/}" "$file")
        chmod 644 "$debug"
    done
    strip --strip-debug "$folder/$bin"/lib/*.a
    rm -rf "$src" "$folder/root"
}

echo "dist: binaries, from the source archive, offline (some minutes)"
build "$work"
if [ -n "$check" ]; then
    echo "dist: binaries again, in another folder"
    other=$(mktemp -d /var/tmp/dist.XXXXXX)
    trap 'rm -rf "$work" "$other"' EXIT
    build "$other"
    { diff -r "$work/$bin" "$other/$bin" && diff -r "$work/$bin-debug" "$other/$bin-debug"; } || { echo "dist: the two builds differ" >&2; exit 1; }
    echo "dist: both builds are equal, byte for byte"
fi

mkdir "$work/$bin/packaging"
cp -r packaging/systemd packaging/apparmor packaging/agent.toml packaging/prometheus packaging/grafana "$work/$bin/packaging/"
cp README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$work/$bin/"
pack "$dist/$bin.tar.xz" "$work" "$bin"
pack "$dist/$bin-debug.tar.xz" "$work" "$bin-debug"

echo "dist: SBOM"
tools=${CARGO_TARGET_DIR:-$PWD/target}/tools
PATH="$tools/bin:$PATH"
command -v cargo-cyclonedx >/dev/null || cargo install --quiet --locked --root "$tools" cargo-cyclonedx
(cd "$source" && cargo cyclonedx --quiet --format json --describe binaries --target "${bin#"$name-"}")
for file in $binaries; do
    found=$(find "$source" -name "${file}_bin.cdx.json" -not -path '*/vendor/*')
    cp "$found" "$dist/$file-$version.cdx.json"
done

(cd "$dist" && sha256sum -- * >SHA256SUMS)
echo "dist: $dist"
(cd "$dist" && ls -l --time-style=+ | awk 'NR > 1 { printf "  %12d  %s\n", $5, $6 }')
