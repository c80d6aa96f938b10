#!/usr/bin/env bash
# Runs common NBD clients against `thermo-nbd`: libnbd's tools and Python module, QEMU's tools, fio; with and
# without TLS; and kills the server during writes. Each check prints one line. Exit code 1: a check failed.
#
#   tests/nbd-clients.sh [THERMO_NBD]        (default: thermo-nbd in target/release, else in target/debug)
#   tests/nbd-clients.sh THERMO_NBD --only 'status|kill'
#
# Debian: libnbd-bin python3-libnbd qemu-utils fio openssl nbdkit.
set -uo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/built.sh
. scripts/built.sh
find_built thermo-nbd "${1:-}"
thermo_nbd=$built
only=.
[ "${2:-}" = --only ] && only=$3
work=$(mktemp -d)
server=
failed=0
cleanup() {
    [ -z "$server" ] || kill "$server" 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT

check() { # NAME COMMAND...
    local name=$1
    shift
    [[ $name =~ $only ]] || return 0
    timeout 120 bash -c "$(declare -f); $(declare -p work thermo_nbd); set -o pipefail; $*" >"$work/out" 2>&1
    local code=$?
    if [ "$code" -eq 0 ]; then
        echo "ok    $name"
    elif [ "$code" -eq 77 ]; then
        echo "SKIP: $name: $(tail -n 1 "$work/out")"
    else
        echo "FAIL  $name: $*"
        sed 's/^/      /' "$work/out" | tail -n 15
        failed=1
    fi
}
needs() { command -v "$1" >/dev/null || { echo "$1 is not installed" && return 77; }; }
start() { # ARGUMENTS...
    "$thermo_nbd" "$@" 2>"$work/server.log" &
    server=$!
    for _ in $(seq 600); do
        [ -S "$work/s" ] && return
        sleep 0.1
    done
    cat "$work/server.log"
    exit 1
}
stop() { # SIGNAL
    kill "-$1" "$server" && wait "$server" 2>/dev/null
    server=
}
uri() { echo "nbd+unix:///$1?socket=$work/s"; }

head -c 64M /dev/urandom >"$work/source"
truncate -s 64M "$work/disk"
start --unix "$work/s" --export "disk=$work/disk" --export "fixed=$work/source,ro" --export mem=mem:,size=64M --control "$work/c"

info() { needs nbdinfo && nbdinfo "$(uri disk)" | grep -q 'can_multi_conn: true' && nbdinfo --json "$(uri disk)" | python3 -m json.tool >/dev/null && nbdinfo --list "$(uri '')" | grep -q 'export="mem"'; }
map() { needs nbdinfo && nbdinfo --map "$(uri mem)" | grep -q hole; }
copy() { needs nbdcopy && nbdcopy --flush "$work/source" "$(uri disk)" && nbdcopy "$(uri disk)" "$work/back" && cmp "$work/source" "$work/back" && cmp "$work/source" "$work/disk"; }
shell_() {
    /usr/bin/python3 -c 'import nbd' 2>/dev/null || { echo "python3-libnbd is not here" && return 77; }
    /usr/bin/python3 - "$(uri mem)" <<'PY'
import nbd, sys
h = nbd.NBD()
h.add_meta_context("base:allocation")
h.connect_uri(sys.argv[1])
h.pwrite(b"x" * 100000, 4096, nbd.CMD_FLAG_FUA)
assert h.pread(100000, 4096) == b"x" * 100000
whole = h.pread_structured(3 << 20, 0, lambda data, offset, status, error: 0, nbd.CMD_FLAG_DF)
assert whole[4096:104096] == b"x" * 100000
h.flush(); h.cache(65536, 0)
h.zero(8192, 8192, nbd.CMD_FLAG_FAST_ZERO); h.zero(4096, 65536, nbd.CMD_FLAG_NO_HOLE); h.trim(4096, 4096)
assert h.pread(8192, 8192) == bytes(8192) and h.pread(4096, 4096) == bytes(4096)
seen = []
h.block_status(64 << 20, 0, lambda context, offset, entries, error: seen.extend(entries))
assert sum(seen[::2]) == 64 << 20 and 3 in seen[1::2] and 0 in seen[1::2], seen
one = []
h.block_status(64 << 20, 0, lambda context, offset, entries, error: one.extend(entries), nbd.CMD_FLAG_REQ_ONE)
assert len(one) == 2, one
h.set_strict_mode(0)
for wrong in (lambda: h.pread(4096, 64 << 20), lambda: h.pwrite(b"x", 64 << 20), lambda: h.pread(33 << 20, 40 << 20)):
    try:
        wrong()
    except nbd.Error as error:
        print(error)
    else:
        raise SystemExit("a request beyond the export succeeded")
h.shutdown()
PY
}
two_connections() { # A flush on one connection covers writes of another one.
    /usr/bin/python3 -c 'import nbd' 2>/dev/null || { echo "python3-libnbd is not here" && return 77; }
    /usr/bin/python3 - "$(uri disk)" "$work/disk" <<'PY'
import nbd, sys
a, b = nbd.NBD(), nbd.NBD()
a.connect_uri(sys.argv[1]); b.connect_uri(sys.argv[1])
assert a.can_multi_conn()
a.pwrite(b"multi" * 1000, 0); b.flush()
assert b.pread(5000, 0) == b"multi" * 1000 and open(sys.argv[2], "rb").read(5000) == b"multi" * 1000
a.shutdown(); b.shutdown()
PY
}
qemu_img() { needs qemu-img && qemu-img convert -n -f raw -O raw "$work/source" "$(uri disk)" && qemu-img compare -f raw -F raw "$work/source" "$(uri disk)" && qemu-img map -f raw "$(uri mem)" >/dev/null && qemu-img bench -f raw -c 5000 -d 32 -s 4k "$(uri disk)" && qemu-img bench -w -f raw -c 2000 -d 32 -s 64k --flush-interval=100 "$(uri mem)"; }
qemu_io() { needs qemu-io && qemu-io -f raw -c 'write -P 7 1M 2M' -c 'read -P 7 1M 2M' -c 'write -z 1M 1M' -c 'read -P 0 1M 1M' -c 'discard 2M 1M' -c flush -c 'read -P 0 2M 1M' "$(uri mem)" | tee "$work/io" && ! grep -qi 'failed\|error' "$work/io"; }
fio_() { needs fio && fio --name=v --ioengine=nbd --uri="$(uri mem)" --rw=randrw --bssplit=4k/50:128k/30:1m/20 --size=64M --iodepth=16 --verify=crc32c --verify_state_save=0 --output-format=terse; }
read_only() { needs qemu-io && ! qemu-io -f raw -c 'write 0 4k' "$(uri fixed)" && needs nbdcopy && nbdcopy "$(uri fixed)" "$work/back" && cmp "$work/source" "$work/back"; }
status() { "$thermo_nbd" set --control "$work/c" max_buffer_pages=7 budget=32M && "$thermo_nbd" status --control "$work/c" --json | python3 -c 'import json,sys; s=json.load(sys.stdin); assert s["max_buffer_pages"]==7 and s["budget_bytes"]==32<<20 and s["requests"]>0' && "$thermo_nbd" squeeze --control "$work/c" && "$thermo_nbd" status --control "$work/c" --metrics | grep -q '^thermo_pool_free_pages{pool="disk"}' && ! "$thermo_nbd" set --control "$work/c" max_buffer_pages=8 budget=1; }

check "nbdinfo, --json, --list" info
check "nbdinfo --map" map
check "nbdcopy both ways, compared" copy
check "libnbd from python: every command, and errors" shell_
check "multi-conn: a flush covers other connections" two_connections
check "qemu-img convert, compare, map, bench" qemu_img
check "qemu-io" qemu_io
check "fio randrw verify=crc32c" fio_
check "a read-only export" read_only
check "status, set, squeeze, metrics" status
stop TERM
[ ! -S "$work/s" ] || { echo "FAIL  the server did not remove its socket" && failed=1; }

# The client starts the server, or passes a socket as systemd does.
stdin_() { /usr/bin/python3 -c 'import nbd' 2>/dev/null || return 77; /usr/bin/python3 -c 'import nbd,sys; h=nbd.NBD(); h.connect_command([sys.argv[1],"-s","--export","disk="+sys.argv[2]]); assert h.get_size()==64<<20; h.shutdown()' "$thermo_nbd" "$work/disk"; }
tools() { needs nbdinfo && nbdinfo -- [ "$thermo_nbd" --export "disk=$work/disk" ] | grep -q 'export-size: 67108864'; }
activation() { /usr/bin/python3 -c 'import nbd' 2>/dev/null || return 77; /usr/bin/python3 -c 'import nbd,sys; h=nbd.NBD(); h.connect_systemd_socket_activation([sys.argv[1],"--export","disk="+sys.argv[2]]); assert h.get_size()==64<<20; h.shutdown()' "$thermo_nbd" "$work/disk"; }
check "-s on standard input" stdin_
check "systemd socket activation" activation
check "nbdinfo starts it by itself" tools

# TLS with certificates of server and client.
tls() {
    needs openssl && needs nbdinfo || return 77
    local pki=$work/pki
    mkdir -p "$pki"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$pki/ca-key.pem" -out "$pki/ca-cert.pem" -days 2 -subj /CN=ca -addext basicConstraints=critical,CA:TRUE || return 1
    local who
    for who in server client; do
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$pki/$who-key.pem" -out "$pki/$who.csr" -subj /CN=localhost || return 1
        openssl x509 -req -in "$pki/$who.csr" -CA "$pki/ca-cert.pem" -CAkey "$pki/ca-key.pem" -CAcreateserial -days 2 -out "$pki/$who-cert.pem" -extfile <(printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n') || return 1
    done
    "$thermo_nbd" --unix "$work/t" --tcp 127.0.0.1:0 --export "disk=$work/disk" --tls-cert "$pki/server-cert.pem" --tls-key "$pki/server-key.pem" --tls-ca "$pki/ca-cert.pem" 2>"$work/tls.log" &
    local pid=$!
    for _ in $(seq 600); do [ -S "$work/t" ] && grep -q 'listening at 127' "$work/tls.log" && break; sleep 0.1; done
    local at code
    at=$(sed -n 's/^listening at 127/127/p' "$work/tls.log")
    nbdinfo "nbds://localhost:${at##*:}/disk?tls-certificates=$pki" && nbdcopy "$work/source" "nbds://localhost:${at##*:}/disk?tls-certificates=$pki" && cmp "$work/source" "$work/disk" && nbdcopy "nbds://localhost:${at##*:}/disk?tls-certificates=$pki" "$work/back" && cmp "$work/back" "$work/source" && ! nbdinfo "nbd://localhost:${at##*:}/disk"
    code=$?
    kill "$pid"
    wait "$pid" 2>/dev/null
    return $code
}
check "STARTTLS with x509 both ways, and no connection without TLS" tls

# Kill the server during writes: every acknowledged write must be in the file.
kill_() {
    /usr/bin/python3 -c 'import nbd' 2>/dev/null || { echo "python3-libnbd is not here" && return 77; }
    /usr/bin/python3 tests/nbd-kill.py "$thermo_nbd" "$work"
}
check "kill -9 during writes loses no acknowledged write" kill_
exit $failed
