#!/usr/bin/env bash
# Accuracy of working set, idle ages and resident size of a recording, compared with the kernel's truth, on
# servers under a steady random load. Truth: accessed bits cleared by clear_refs, then Referenced of smaps
# after 5, 10 and 30 s. This clears the bits that a recording reads, so the truth is measured before and after
# the recording, not during it. Exit code 1: a difference exceeds 5 % of resident memory. Needs root.
#
# Usage: working_set.sh [--quick] [--truth-only] [WORKLOAD...]
#   --quick       small data, short warm-up, fewer rounds
#   --truth-only  only the truth and its noise; does not need thermo
# Workloads: mariadb memcached-hot memcached-uniform redis rocksdb random-1k random-10k random-100k, and
# similar accesses without a server: lab-mariadb lab-memcached-hot lab-memcached-uniform. Default: all.
# Packages: scripts/deps.sh eval. Missing servers are skipped with a message.
. "$(dirname "$0")/lib.bash"

all="mariadb memcached-hot memcached-uniform redis rocksdb random-1k random-10k random-100k
    lab-mariadb lab-memcached-hot lab-memcached-uniform"
size=full judged=yes chosen=()
for argument in "$@"; do
    case "$argument" in
        --quick) size=quick ;;
        --truth-only) judged= ;;
        -*) echo "working_set: unknown option $argument: use --quick or --truth-only" >&2; exit 2 ;;
        *) chosen+=("$argument") ;;
    esac
done

if [ "$size" = full ]; then
    sql_rows=${SQL_ROWS:-1200000} pool_mib=${POOL_MIB:-1400}
    memcached_keys=${MEMCACHED_KEYS:-450000} redis_keys=${REDIS_KEYS:-1000000}
    rocksdb_keys=${ROCKSDB_KEYS:-1200000} random_pages=${RANDOM_PAGES:-262144}
    warm_up=${WARM_UP:-60} rounds=${ROUNDS:-2}
else
    sql_rows=${SQL_ROWS:-200000} pool_mib=${POOL_MIB:-300}
    memcached_keys=${MEMCACHED_KEYS:-100000} redis_keys=${REDIS_KEYS:-200000}
    rocksdb_keys=${ROCKSDB_KEYS:-200000} random_pages=${RANDOM_PAGES:-65536}
    warm_up=${WARM_UP:-15} rounds=${ROUNDS:-1}
fi
record_s=${SECONDS_EACH:-60}
sql_rate=${SQL_RATE:-6000}

# Starts MariaDB as user mysql, with its data in $work; sets target.
start_mariadb() {
    local folder=$work/mariadb tries
    chmod 711 "$work"
    mkdir "$folder"
    chown mysql: "$folder"
    sql_socket=$folder/socket
    mariadb-install-db --no-defaults --user=mysql --datadir="$folder/data" --skip-test-db \
        --auth-root-authentication-method=normal >"$work/errors" 2>&1 || { cat "$work/errors" >&2; return 1; }
    # Durability does not matter here, but background writes would disturb the measurement.
    begin setpriv --reuid mysql --regid mysql --clear-groups mariadbd --no-defaults --datadir="$folder/data" \
        --socket="$sql_socket" --pid-file="$folder/pid" --skip-networking --innodb-buffer-pool-size="${pool_mib}M" \
        --innodb-log-file-size=256M --innodb-flush-log-at-trx-commit=0 --innodb-doublewrite=0 \
        --innodb-max-dirty-pages-pct=0 --innodb-max-dirty-pages-pct-lwm=0 --innodb-buffer-pool-dump-at-shutdown=0
    target=$last
    for tries in $(seq 600); do
        ask_mariadb 'select 1' >/dev/null 2>&1 && return
        kill -0 "$target" 2>/dev/null || break
        sleep 0.1
    done
    cat "$work/errors" >&2
    return 1
}

ask_mariadb() { mariadb --no-defaults --socket="$sql_socket" --user=root --batch --skip-column-names --execute="$1"; }

has_dirty_pages() { [ "$(ask_mariadb "show status like 'Innodb_buffer_pool_pages_dirty'" | cut -f2)" -gt 0 ]; }

workload_mariadb() {
    local nth tries point_select
    start_mariadb
    point_select=(sysbench oltp_point_select --mysql-socket="$sql_socket" --mysql-user=root --mysql-db=sbtest
        --tables=4 --table-size="$sql_rows" --threads=4)
    ask_mariadb 'create database sbtest'
    "${point_select[@]}" prepare >"$work/errors"
    # Read everything once, as after days of service, and wait until no page is dirty.
    for nth in 1 2 3 4; do ask_mariadb "select sum(length(pad)) from sbtest.sbtest$nth" >/dev/null; done
    for tries in $(seq 300); do has_dirty_pages || break; sleep 1; done
    begin "${point_select[@]}" --rand-type=pareto --rand-pareto-h=0.1 --rate="$sql_rate" --time=100000 run
}

# Fills a key-value server and starts to read from it.
load_keys() { # SERVER SOCKET KEYS BYTES PATTERN RATE
    local common=(--server "$1" --socket "$2" --keys "$3" --bytes "$4") tries
    for tries in $(seq 100); do [ -S "$2" ] && break; sleep 0.1; done
    python3 workloads/load/key_value.py fill "${common[@]}"
    begin python3 workloads/load/key_value.py read "${common[@]}" --pattern "$5" --rate "$6"
}

start_memcached() { # PATTERN RATE
    local socket=$work/memcached.sock
    # The LRU crawler reads every item at times. These are real accesses, but not a steady load.
    begin memcached -u root -s "$socket" -m 2048 -t 2 -o no_lru_crawler
    target=$last
    load_keys memcached "$socket" "$memcached_keys" 1024 "$1" "$2"
}

workload_memcached_hot() { start_memcached hot:0.05 4000; }
workload_memcached_uniform() { start_memcached uniform 4000; }

workload_redis() {
    local socket=$work/redis.sock
    begin redis-server --port 0 --unixsocket "$socket" --save '' --appendonly no --daemonize no --dir "$work"
    target=$last
    load_keys redis "$socket" "$redis_keys" 512 zipf:0.99 6000
}

# The block cache holds all data. It is filled when memtables are flushed, so that it does not grow later.
workload_rocksdb() {
    begin db_bench --db="$work/rocksdb" --num="$rocksdb_keys" --value_size=512 --compression_type=none \
        --cache_size=$((rocksdb_keys * 1024)) --prepopulate_block_cache=1 --disable_wal=1 \
        --benchmarks=fillseq,readrandom --duration=100000 --benchmark_read_rate_limit=3000
    target=$last
}

touch_pages() { # OPTIONS of random_pages...
    "$work/random_pages" --windows 5,10,30 "$@" >"$work/own.jsonl" 2>"$work/errors" &
    target=$!
    echo "$target" >>"$work/started"
}

workload_random_1k() { touch_pages --pages "$random_pages" --rate 1000; }
workload_random_10k() { touch_pages --pages "$random_pages" --rate 10000; }
workload_random_100k() { touch_pages --pages "$random_pages" --rate 100000; }

# The access statistics of the servers above on plain memory, for machines without these servers. Rates and
# shares are fitted to the truth of the servers: a point select of MariaDB uses about all four pages of a
# leaf; 5 % of memcached's keys lie on 23,000 of its 133,000 pages; a value of 1 kB lies on 1.3 pages, and its
# hash chain on one more.
workload_lab_mariadb() { touch_pages --pages $((random_pages * 11 / 10)) --rate 6000 --pareto 0.1 --item-pages 4; }
workload_lab_memcached_hot() { touch_pages --pages $((random_pages / 2)) --rate 6300 --hot 0.182 --scatter; }
workload_lab_memcached_uniform() { touch_pages --pages $((random_pages / 2)) --rate 6500; }

missing() { # WORKLOAD
    local program
    case "$1" in
        mariadb) set -- mariadbd mariadb-install-db sysbench ;;
        memcached-*) set -- memcached ;;
        redis) set -- redis-server ;;
        rocksdb) set -- db_bench ;;
        *) set -- cc ;;
    esac
    for program; do command -v "$program" >/dev/null || { echo "$program"; return; }; done
}

measure_truth() { # ROUNDS [OPTIONS of measure...]
    python3 benches/working_set.py measure --pid "$target" --out "$work/truth.jsonl" --rounds "$@" && return
    tail -c 1000 "$work/errors" >&2
    exit 1
}

record() {
    mkdir -p "$work/reports"
    "$thermo" record --pid "$target" --duration "${record_s}s" -o "$work/one.arrow" >/dev/null 2>"$work/errors" ||
        cat "$work/errors"
    local report
    for report in wss idle info; do
        "$thermo" report "$report" "$work/one.arrow" --json >"$work/reports/$report.json" || true
    done
}

row() { # WORKLOAD
    local flags=() absent
    absent=$(missing "$1")
    if [ -n "$absent" ]; then
        echo "$1: skipped, $absent is not installed"
        return
    fi
    rm -rf "$work/truth.jsonl" "$work/own.jsonl" "$work/reports"
    "workload_${1//-/_}"
    sleep "$warm_up"
    # Discard the first window: it contains accessed bits from filling.
    measure_truth 1 --windows 5
    rm "$work/truth.jsonl"
    measure_truth "$rounds"
    if [ -n "$judged" ]; then
        record
        flags+=(--reports "$work/reports")
    fi
    measure_truth "$rounds"
    [ ! -e "$work/own.jsonl" ] || flags+=(--own "$work/own.jsonl")
    python3 benches/working_set.py compare "$1" --truth "$work/truth.jsonl" ${flags[@]+"${flags[@]}"} ||
        echo "$1" >>"$work/beyond"
    end_all
    rm -rf "$work/mariadb" "$work/rocksdb"
}

measure() {
    local name
    for name in "${chosen[@]}"; do row "$name"; done
    if [ -e "$work/beyond" ]; then echo "difference above 5 % of resident, or missing: $(tr '\n' ' ' <"$work/beyond")"; fi
}

# Only a run of all workloads at full size is saved as a result.
is_complete=
if [ "${#chosen[@]}" -eq 0 ]; then
    is_complete=yes
    read -r -d '' -a chosen <<<"$all" || true
fi
for name in "${chosen[@]}"; do
    declare -F "workload_${name//-/_}" >/dev/null || { echo "working_set: unknown workload $name: use" $all >&2; exit 2; }
done
[ -z "$judged" ] || need_built "$thermo"
python3 benches/working_set_test.py 2>"$work/errors" || { cat "$work/errors" >&2; exit 2; }
cc -O2 -o "$work/random_pages" benches/random_pages.c -lm
if [ -n "$judged" ] && [ "$size" = full ] && [ "$is_complete" = yes ]; then
    keep working-set "Working sets and idle ages against the kernel" measure
else
    measure
fi
[ ! -e "$work/beyond" ]
