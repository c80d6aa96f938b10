# Helpers for the guest's tests. A test is a function of the same name.

# End the current test with a message.
fail() {
    echo "not ok $name: $*"
    exit 1
}
skip() {
    echo "SKIP $name: $*"
    exit 1
}
note() { echo "# $name: $*"; }

run_test() { # NAME
    name=$1
    (
        type "$name" >/dev/null 2>&1 || fail "unknown test"
        "$name"
        echo "ok $name"
    )
    stop_all
}

# Fails if COMMAND does not succeed within two minutes. The limit is long because emulation is slow and the
# host shared.
wait_until() { # CONDITION COMMAND...
    local condition=$1
    shift
    poll_until "$@" || fail "timed out after two minutes waiting until $condition: $(last_error)"
}
poll_until() { # COMMAND...
    local tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ "$tries" -lt 240 ] || return 1
        sleep 0.5
    done
}

# Run a command with a time limit of 150 s. Its error output is saved for last_error.
run_thermo() { run_logged thermo "$@"; }
run_logged() { timeout 150 "$@" 2>/tmp/stderr; } # COMMAND...
last_error() { grep -v '^ *$' /tmp/stderr | tail -n 2 | tr '\r\n' '  '; }

# Starts a workload and waits until only its hot part is touched. With hot-cold.cfg: 8 MiB hot, 120 MiB
# touched once. Sets pid. If program_name is set, that is the name of the program.
start_workload() { # CONFIGURATION [OPTIONS...]
    start_touching "$@"
    wait_until "everything was touched once" phase_is_hot_only
}

# Starts a workload and waits for the first line of its truth only.
start_touching() { # CONFIGURATION [OPTIONS...]
    local configuration=$1
    shift
    rm -f /tmp/ready /tmp/truth.jsonl
    "${program_name:-thermo-lab}" workload "/$configuration" --truth /tmp/truth.jsonl "$@" >/tmp/ready 2>/tmp/workload.stderr &
    pid=$!
    kill_at_end "$pid"
    wait_until "the truth has a line" test -s /tmp/truth.jsonl
}

# Prints the addresses of a region of the workload: 0xBEGIN-0xEND.
region() { # NAME
    grep -o " $1 0x[0-9a-f]*-0x[0-9a-f]*" /tmp/ready | sed "s/ $1 //"
}

# True if the last span touched nothing outside the hot part. Its addresses have to be compared: a single
# range may also be several adjacent regions while everything is still being touched.
phase_is_hot_only() {
    local hot span
    hot=$(region hot)
    span=$(last_truth | sed -n 's/.*"ranges":\[\[\([0-9]*,[0-9]*\)\]\]}$/\1/p')
    [ -n "$hot" ] && [ -n "$span" ] && [ "${span%,*}" -ge $((${hot%-*})) ] && [ "${span#*,}" -le $((${hot#*-})) ]
}

# The last complete line: the file may end in a partial one.
last_truth() { grep '}$' /tmp/truth.jsonl | tail -n 1; }

# Switches huge pages off until the test ends.
without_huge_pages() {
    echo never >/sys/kernel/mm/transparent_hugepage/enabled
    trap 'echo always >/sys/kernel/mm/transparent_hugepage/enabled' EXIT
}

# Processes to kill at the end of the test.
kill_at_end() { echo "$1" >>/tmp/started; }
stop_all() {
    local started
    for started in $(cat /tmp/started 2>/dev/null); do kill -KILL "$started" 2>/dev/null; done
    rm -f /tmp/started
}

# Compares the last snapshot of a recording with the truth.
judge() { # RECORDING
    run_thermo report regions --last --csv "$1" >/tmp/all.csv || fail "report ended with $?: $(last_error)"
    awk -F, -v pid="$pid" 'NR == 1 || $2 == pid' /tmp/all.csv >/tmp/regions.csv
    compare_with_truth
}

# Replaces ranges of the program's memory by the mappings that contain them.
whole_mappings() { # < "BEGIN END" lines
    local begin end from to rest
    while read -r begin end; do
        while IFS='- ' read -r from to rest; do
            if [ $((0x$from)) -lt "$end" ] && [ $((0x$to)) -gt "$begin" ]; then echo "$((0x$from)) $((0x$to))"; fi
        done <"/proc/$pid/maps"
    done
}

# Sets precision, recall and error of the hot bytes in /tmp/regions.csv, in percent. error: bytes wrongly
# reported hot or wrongly not, relative to the truly hot bytes.
compare_with_truth() {
    last_truth | sed 's/.*"ranges":\[\[//; s/\]\]}//; s/\],\[/\n/g' | tr ',' ' ' | $truth_filter >/tmp/truth
    read -r precision recall error <<-RESULT
		$(awk -f /accuracy.awk /tmp/truth /tmp/regions.csv)
	RESULT
}

# Records for longer each time until the last snapshot is accurate: the needed time depends on the host's
# load. An access check takes milliseconds in an emulated machine, so intervals are long. Required precision
# and recall, in percent.
least="80 80"
# Filter from touched ranges to the ranges that the tracker can distinguish.
truth_filter=cat
find_hot_memory() { # OPTIONS OF record...
    local seconds
    for seconds in 5 10 20 40 80; do
        rm -f /tmp/seen.arrow
        run_thermo record -o /tmp/seen.arrow --duration "${seconds}s" "$@" || fail "record ended with $?: $(last_error)"
        judge /tmp/seen.arrow
        note "after $seconds s: precision $precision %, recall $recall %"
        [ "$precision" -lt "${least% *}" ] || [ "$recall" -lt "${least#* }" ] || return 0
    done
    fail "after 80 s: precision $precision %, recall $recall %; required: $least %"
}

status_kib() { awk -v field="$1:" '$1 == field { print $2 }' "/proc/$pid/status"; }

# Number of major faults of the program so far.
major_faults() { awk '{ print $12 }' "/proc/$pid/stat"; }

# The last number of this field in JSON.
number_of() { # FIELD < JSON
    grep -o "\"$1\":[0-9]*" | tail -n 1 | cut -d: -f2
}

redis_responds() { redis-cli -s /tmp/redis.sock ping 2>/dev/null | grep -q PONG; }
