#!/usr/bin/env bash
# Installs the output of `make build`: commands, man pages, completions and scheme files. `make install` and
# the Debian packages use it.
# Usage: packaging/install.sh [lab] [upload] [libraries]
#
# lab, upload, libraries   also thermo-lab with its workloads, thermo-upload, and the C libraries
# DESTDIR, PREFIX  where to (PREFIX=/usr/local)
# LIBDIR           folder of libraries (PREFIX/lib)
# ZSH              folder of zsh's completions (PREFIX/share/zsh/site-functions)
# TARGET_DIR       the output of cargo (target)
# PROFILE          the profile it was built with (release)
# STRIP=no         keep the symbols, for packages with debug symbols
# DATE             date in the man pages (today)
set -euo pipefail
cd "$(dirname "$0")/.."

prefix=${PREFIX:-/usr/local}
to=${DESTDIR:-}$prefix
library_folder=${LIBDIR:-$prefix/lib}
zsh=${DESTDIR:-}${ZSH:-$prefix/share/zsh/site-functions}
built=${TARGET_DIR:-target}/${PROFILE:-release}
date=${DATE:-$(date -u +%F)}
strip=(-s)
[ "${STRIP:-}" != no ] || strip=()

need() { # FILE
    [ -e "$built/$1" ] || { echo "install: $built/$1 does not exist: run  make build  first" >&2; exit 2; }
}

install_command() { # NAME
    local manual
    need "$1"
    install -D "${strip[@]}" -m 755 "$built/$1" "$to/bin/$1"
    manual=$(mktemp -d)
    "$built/$1" gen man "$manual" --date "$date"
    install -D -m 644 -t "$to/share/man/man1" "$manual"/*.1
    rm -rf "$manual"
    mkdir -p "$to/share/bash-completion/completions" "$to/share/fish/vendor_completions.d" "$zsh"
    "$built/$1" gen completions bash >"$to/share/bash-completion/completions/$1"
    "$built/$1" gen completions fish >"$to/share/fish/vendor_completions.d/$1.fish"
    "$built/$1" gen completions zsh >"$zsh/_$1"
    chmod 644 "$to/share/bash-completion/completions/$1" "$to/share/fish/vendor_completions.d/$1.fish" "$zsh/_$1"
}

install_lab() {
    install_command thermo-lab
    mkdir -p "$to/share/thermo-lab/benches"
    cp -r --no-preserve=mode,ownership workloads schemes "$to/share/thermo-lab/"
    find workloads -type f -perm -u+x -exec chmod 755 "$to/share/thermo-lab/{}" \;
    # The servers of `thermo-lab forecast` are functions in these files.
    install -m 644 benches/lib.bash benches/servers.bash "$to/share/thermo-lab/benches/"
}

# The libraries have the version of the interface in their names; thermo.h and the symbols files have it too.
install_library() { # BUILT_NAME NAME HEADER
    local folder=${DESTDIR:-}$library_folder version
    version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
    need "$1.so"
    install -D "${strip[@]}" -m 644 "$built/$1.so" "$folder/$2.so.1.$version"
    ln -sf "$2.so.1.$version" "$folder/$2.so.1"
    ln -sf "$2.so.1" "$folder/$2.so"
    install -m 644 "$built/$1.a" "$folder/$2.a"
    install -D -m 644 -t "$to/include" "$3"
    mkdir -p "$folder/pkgconfig"
    sed -e "s|@PREFIX@|$prefix|; s|@LIBDIR@|$library_folder|; s|@VERSION@|$version|" "packaging/pkgconfig/$2.pc.in" \
        >"$folder/pkgconfig/$2.pc"
}

install_command thermo
install_command thermo-nbd
install -D -m 644 -t "$to/share/thermocline/schemes" schemes/*
for page in packaging/man/*; do
    install -D -m 644 -t "$to/share/man/man${page##*.}" "$page"
done
for more in "$@"; do
    case "$more" in
        lab) install_lab ;;
        upload) install_command thermo-upload ;;
        libraries)
            install_library libthermo libthermo crates/capi/include/thermo.h
            install_library libthermo_pool_capi libthermo_pool block/pool-capi/include/thermo_pool.h
            ;;
        *) echo "install: unknown word $more: use lab, upload or libraries" >&2; exit 2 ;;
    esac
done
echo "installed in $to"
