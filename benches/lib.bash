# Source from the scripts in this folder. Paths of the commands, background processes, and saving of results.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

thermo=${THERMO:-${CARGO_TARGET_DIR:-target}/release/thermo}
thermo_lab=$(dirname "$thermo")/thermo-lab
thermo_nbd=$(dirname "$thermo")/thermo-nbd
work=$(mktemp -d)

# Starts a command in the background; sets last to its pid. Pids are kept in a file, because measurements run
# in subshells.
begin() { # COMMAND...
    "$@" >/dev/null 2>"$work/errors" &
    last=$!
    echo "$last" >>"$work/started"
}

# Kills all processes that the script has started.
end_all() {
    local pid
    [ -e "$work/started" ] || return 0
    while read -r pid; do
        kill -KILL "$pid" 2>/dev/null || true
        # Otherwise the shell prints a message about the killed process.
        wait "$pid" 2>/dev/null || true
    done <"$work/started"
    rm -f "$work/started"
}

clean_up() {
    end_all
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

need_built() { # PROGRAM...
    local program
    for program in "$@"; do
        [ -x "$program" ] || { echo "$program does not exist: run  make build" >&2 && exit 2; }
    done
}

# Runs a command, prints its output, and saves the output in lab/results with date, machine and command.
keep() { # NAME TITLE COMMAND...
    local name=$1 title=$2 file begin=$SECONDS
    shift 2
    file=lab/results/$name.md
    mkdir -p lab/results
    "$@" 2>&1 | tee "$work/printed"
    {
        echo "# $title"
        echo
        echo "$(date -u '+%F %H:%M') UTC, kernel $(uname -r), $(nproc) CPUs ($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)), load $(cut -d' ' -f1-3 /proc/loadavg) at the end, $((SECONDS - begin)) s. Command: \`benches/$(basename "$0")\`."
        echo
        echo '```'
        cat "$work/printed"
        echo '```'
    } >"$file"
    echo "saved in $file" >&2
}

# Starts redis-server with so many keys of 900 bytes; sets redis_pid and socket.
start_redis() { # KEYS
    local folder=$work/redis
    mkdir -p "$folder"
    socket=$folder/redis.sock
    begin redis-server --port 0 --unixsocket "$socket" --save '' --appendonly no --daemonize no --dir "$folder"
    redis_pid=$last
    local tries
    for tries in $(seq 600); do
        redis-cli -s "$socket" ping >/dev/null 2>&1 && break
        [ "$tries" -lt 600 ] || { cat "$work/errors" >&2; exit 1; }
        sleep 0.1
    done
    redis-cli -s "$socket" eval "
        local value = string.rep('v', 900)
        for i = 0, $1 - 1 do redis.call('set', string.format('key:%012d', i), value .. i) end
        return $1" 0 >/dev/null
}
