#!/usr/bin/env bash
# Runs the test suites of two other projects against `thermo-nbd`: the tests of the reference server
# (nbd-tester-client with all its traces, through the project's own script) and the interoperability programs
# of libnbd. Each test prints one line: PASS, FAIL, or SKIP with the reason. Then follow totals for each
# suite. Exit code 1: a test failed.
#
#   tests/nbd-suites.sh [THERMO_NBD]        (default: target/release/thermo-nbd, else target/debug/thermo-nbd)
#
# Both are built from Debian's sources, which apt downloads into ~/.cache/thermocline/suites with separate
# package sources. Nothing is installed. Needs gcc, openssl, libgnutls28-dev and libnbd0.
set -uo pipefail
cd "$(dirname "$0")/.."
repo=$PWD
# shellcheck source=scripts/built.sh
. scripts/built.sh
find_built thermo-nbd "${1:-}"
thermo_nbd=$built
need_programs gcc openssl apt-get dpkg-deb

cache=${XDG_CACHE_HOME:-$HOME/.cache}/thermocline/suites
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

private_apt() { # ARGUMENTS...
    apt-get -q -o "Dir::State=$cache/apt/state" -o "Dir::Cache=$cache/apt/cache" -o Dir::State::status=/dev/null \
        -o "Dir::Etc::SourceList=$cache/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Acquire::Languages=none \
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o APT::Sandbox::User=root "$@"
}
fetch() {
    local from
    [ -e "$cache/fetched" ] && return
    from=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Release: bookworm' | head -n 1)
    [ -n "$from" ] || { echo "apt has no source for Debian bookworm"; return 1; }
    mkdir -p "$cache/apt/state/lists/partial" "$cache/apt/cache/archives/partial" "$cache/root" "$cache/sources"
    # bookworm lists a source package of nbd that is no longer in the archive, so trixie's is used.
    for source in "deb bookworm" "deb-src bookworm" "deb-src trixie"; do
        echo "${source% *} [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $from ${source#* } main"
    done >"$cache/apt/sources.list"
    private_apt update || return 1
    (cd "$cache/sources" && private_apt source --download-only nbd/trixie libnbd/bookworm) || return 1
    (cd "$cache/sources" && for tar in *.orig.tar.*; do case $tar in *.asc) ;; *) tar -xf "$tar" || return 1 ;; esac; done) || return 1
    (cd "$work" && private_apt download libnbd-dev libglib2.0-0 libglib2.0-dev nbd-client libnl-3-200 libnl-genl-3-200) || return 1
    for package in "$work"/*.deb; do dpkg-deb --extract "$package" "$cache/root" || return 1; done
    touch "$cache/fetched"
}
fetch >"$work/fetch.log" 2>&1 || { tail -n 5 "$work/fetch.log"; echo "SKIP: the sources cannot be downloaded"; exit 0; }
nbd=$(echo "$cache"/sources/nbd-*/)
libnbd=$(echo "$cache"/sources/libnbd-*/)
libraries=$cache/root/usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH=$libraries:$cache/root/lib/x86_64-linux-gnu

declare -A count
suite=
failed=0
result() { # PASS|FAIL|SKIP NAME [REASON]
    echo "$1 $suite: $2${3:+: $3}"
    count[$1]=$((${count[$1]:-0} + 1))
    if [ "$1" = FAIL ]; then
        failed=1
        tr '\r' '\n' <"$work/log" | grep -v '^ *$' | tail -n 8 | cut -c 1-160 | sed 's/^/     /'
    fi
}
run() { # NAME COMMAND...
    local name=$1 status=0
    shift
    timeout 300 "$@" >"$work/log" 2>&1 || status=$?
    if [ "$status" -eq 0 ]; then result PASS "$name"; else result FAIL "$name" "exit status $status"; fi
}
begin() { suite=$1; count=(); }
end() { echo "== $suite: ${count[PASS]:-0} passed, ${count[FAIL]:-0} failed, ${count[SKIP]:-0} skipped"; }

# Creates certificates: an authority, server and client certificates signed by it, and a self-signed one.
certificates() { # FOLDER
    local who options=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)
    mkdir -p "$1"
    openssl req -x509 "${options[@]}" -keyout "$1/ca-key.pem" -out "$1/ca-cert.pem" -days 2 -subj /CN=ca -addext basicConstraints=critical,CA:TRUE
    openssl req -x509 "${options[@]}" -keyout "$1/selfsigned-key.pem" -out "$1/selfsigned-cert.pem" -days 2 -subj /CN=nobody
    for who in server client; do
        openssl req "${options[@]}" -keyout "$1/$who-key.pem" -out "$1/$who.csr" -subj /CN=localhost
        openssl x509 -req -in "$1/$who.csr" -CA "$1/ca-cert.pem" -CAkey "$1/ca-key.pem" -CAcreateserial -days 2 -out "$1/$who-cert.pem" \
            -extfile <(printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n')
    done
} 2>/dev/null

# The reference server's script starts ../../nbd-server and ./nbd-tester-client. The nbd-server here is a
# wrapper that translates the configuration that the tests use into a call of thermo-nbd.
begin nbd
mkdir -p "$work/nbd/tests/run" "$work/nbd/certs"
cp "$nbd"/tests/run/*.tr "$work/nbd/tests/run/"
# The script waits a fixed time for the server. Replace that by waiting for the port.
sed "s|sleep \$DELAY|$work/nbd/wait-for up|" "$nbd/tests/run/simple_test" >"$work/nbd/tests/run/simple_test"
cat >"$work/nbd/wait-for" <<'WAIT'
#!/usr/bin/env bash
# Waits until a program (up) or no program (down) listens at the port of the tests.
for _ in $(seq 600); do
    if (exec 3<>/dev/tcp/127.0.0.1/10809) 2>/dev/null; then state=up; else state=down; fi
    [ "$state" != "$1" ] || exit 0
    sleep 0.1
done
exit 1
WAIT
chmod +x "$work/nbd/wait-for"
certificates "$work/nbd/tests/run/certs"
ln -s "$cache/root/sbin/nbd-client" "$work/nbd/nbd-client"
cat >"$work/nbd/config.h" <<'CONFIG'
#define VERSION "3.26"
#define PACKAGE "nbd"
#define SIZEOF_UNSIGNED_SHORT_INT 2
#define SIZEOF_UNSIGNED_INT 4
#define SIZEOF_UNSIGNED_LONG_INT 8
#define SIZEOF_UNSIGNED_LONG_LONG_INT 8
#define HAVE_GNUTLS 1
#define WITH_GNUTLS 1
#define ISSERVER 1
#define HAVE_SYS_MOUNT_H 1
CONFIG
build_tester() {
    gcc -O1 -w -D_GNU_SOURCE -I"$work/nbd" -I"$nbd" -I"$cache/root/usr/include/glib-2.0" -I"$libraries/glib-2.0/include" \
        "$nbd/tests/run/nbd-tester-client.c" "$nbd/cliserv.c" "$nbd/buffer.c" "$nbd/crypto-gnutls.c" \
        -o "$work/nbd/tests/run/nbd-tester-client" "$(ls "$libraries"/libglib-2.0.so.0)" -lgnutls
}
cat >"$work/nbd/nbd-server" <<SERVER
#!/usr/bin/env bash
exec python3 "$work/nbd/translate.py" "$thermo_nbd" "\$@"
SERVER
cat >"$work/nbd/translate.py" <<'TRANSLATE'
# Translates nbd-server -C FILE [-p PIDFILE] [-d] into a call of thermo-nbd.
import configparser, getopt, glob, os, sys
thermo_nbd, options = sys.argv[1], dict(getopt.getopt(sys.argv[2:], "C:p:d")[0])
config = configparser.ConfigParser()
config.read(options["-C"])
generic = config["generic"]
if "includedir" in generic:
    config.read(glob.glob(generic["includedir"] + "/*.conf"))
call, paths = [thermo_nbd], []
for name in config.sections():
    if name == "generic":
        continue
    section = config[name]
    path = section["exportname"]
    if "filesize" in section:
        os.truncate(path, int(section["filesize"]))
    paths.append(path)
    call += ["--export", f"{name}={path}" + (",ro" if section.getboolean("readonly", False) else "")]
# nbd-server locks no file. thermo-nbd refuses a second writable export of the same file without --force.
if len(set(paths)) < len(paths):
    call.append("--force")
if generic.get("port") == "0":
    call += ["-s"]
else:
    call += ["--tcp", "127.0.0.1:10809"]
    if "unixsock" in generic:
        call += ["--unix", generic["unixsock"]]
for key, option in ("certfile", "--tls-cert"), ("keyfile", "--tls-key"), ("cacertfile", "--tls-ca"):
    if key in generic:
        call += [option, generic[key]]
if "-p" in options:
    with open(options["-p"], "w") as file:
        file.write(str(os.getpid()))
os.execv(thermo_nbd, call)
TRANSLATE
chmod +x "$work/nbd/nbd-server"
if build_tester >"$work/log" 2>&1; then
    cd "$work/nbd/tests/run" || exit 1
    for test in $(sed -n 's/^\t\*\/\([a-z0-9]*\))$/\1/p' simple_test); do
        case $test in
            tree | rotree) result SKIP "$test" "exports that consist of a tree of files are not supported" ;;
            *)
                "$work/nbd/wait-for" down || echo "another program listens at port 10809" >&2
                run "$test" sh ./simple_test "./$test"
                ;;
        esac
    done
    cd "$repo" || exit 1
else
    result FAIL "build of nbd-tester-client"
fi
end

# libnbd's programs have the path of their server compiled in: a script with one argument, the file.
begin libnbd
mkdir -p "$work/libnbd/interop" "$work/libnbd/disks"
certificates "$work/libnbd/tests/pki"
: >"$work/libnbd/config.h"
head -c 1M /dev/zero >"$work/libnbd/disks/disk1"
cp "$work/libnbd/disks/disk1" "$work/libnbd/disks/disk2"
pki=$work/libnbd/tests/pki
tls="--tls-cert $pki/server-cert.pem --tls-key $pki/server-key.pem"
serve() { # NAME ARGUMENTS (the word FILE stands for the file)
    printf '#!/bin/sh\nexec "%s" %s\n' "$thermo_nbd" "${2//FILE/\$1}" >"$work/libnbd/$1"
    chmod +x "$work/libnbd/$1"
}
serve stdin '-s --export "=FILE"'
serve stdin-tls "-s --export \"=FILE\" $tls --tls-ca $pki/ca-cert.pem --tls-required"
serve stdin-tls-offered "-s --export \"=FILE\" $tls"
serve activated '--export "=FILE"'
serve activated-tls "--export \"=FILE\" $tls --tls-ca $pki/ca-cert.pem --tls-required"
serve lists "-s --export disk1=$work/libnbd/disks/disk1 --export disk2=$work/libnbd/disks/disk2"
interop() { # NAME SOURCE SERVER DEFINITIONS...
    local name=$1 source=$2 server=$3
    shift 3
    gcc -O1 -w -D_GNU_SOURCE "$@" -DSERVER="\"$work/libnbd/$server\"" -I"$work/libnbd" -I"$libnbd/tests" -I"$libnbd/common/include" \
        -I"$cache/root/usr/include" "$libnbd/interop/$source.c" "$libnbd/tests/requires.c" -o "$work/libnbd/interop/$name" \
        "$(ldconfig -p | awk '/libnbd\.so\.0/ { print $NF; exit }')" >"$work/log" 2>&1 || { result FAIL "$name" "it does not compile"; return; }
    cd "$work/libnbd/interop" || exit 1
    run "$name" "./$name"
    cd "$repo" || exit 1
}
file=(-DNEEDS_TMPFILE=1 "-DSERVER_PARAMS=TMPFILE" '-DEXPORT_NAME=""')
certs=(-DCERTS=1)
interop interop interop stdin "${file[@]}"
interop interop-socket-activation interop activated "${file[@]}" -DSOCKET_ACTIVATION=1
interop interop-tls-certs interop stdin-tls "${file[@]}" "${certs[@]}" -DTLS_MODE=LIBNBD_TLS_REQUIRE
interop interop-tls-certs-socket-activation interop activated-tls "${file[@]}" "${certs[@]}" -DTLS_MODE=LIBNBD_TLS_REQUIRE -DSOCKET_ACTIVATION=1
interop interop-tls-certs-allow-enabled interop stdin-tls-offered "${file[@]}" "${certs[@]}" -DTLS_MODE=LIBNBD_TLS_ALLOW
interop interop-tls-certs-allow-fallback interop stdin "${file[@]}" "${certs[@]}" -DTLS_MODE=LIBNBD_TLS_ALLOW -DTLS_FALLBACK=1
interop list-exports list-exports lists '-DSERVER_PARAMS=NULL' '-DEXPORTS="disk1", "disk2"' '-DDESCRIPTIONS="", ""'
interop socket-activation socket-activation activated -DSERVER_PARAMS=tmpfile
for test in interop-tls-psk interop-tls-psk-allow-enabled interop-tls-psk-allow-fallback; do
    result SKIP "$test" "pre-shared keys (PSK) are not supported"
done
result SKIP structured-read "it expects a hole of 512 bytes, which needs qcow2"
result SKIP dirty-bitmap "it needs a metadata context of QEMU"
result SKIP interop-qemu-storage-daemon "its server cannot be replaced"
result SKIP interop-qemu-block-size "its server cannot be replaced"
end
exit $failed
