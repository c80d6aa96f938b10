# Source after lib.bash. Real servers under a steady random load, each a function workload_NAME that sets target,
# and missing NAME, which prints a program that is not installed. Packages: scripts/deps.sh eval.

# Sets the sizes: full, or quick with little data. Each may be set from outside.
set_sizes() { # full|quick
    if [ "$1" = full ]; then
        sql_rows=${SQL_ROWS:-1200000} pool_mib=${POOL_MIB:-1400}
        memcached_keys=${MEMCACHED_KEYS:-450000} redis_keys=${REDIS_KEYS:-1000000}
        rocksdb_keys=${ROCKSDB_KEYS:-1200000} random_pages=${RANDOM_PAGES:-262144}
    else
        sql_rows=${SQL_ROWS:-200000} pool_mib=${POOL_MIB:-300}
        memcached_keys=${MEMCACHED_KEYS:-100000} redis_keys=${REDIS_KEYS:-200000}
        rocksdb_keys=${ROCKSDB_KEYS:-200000} random_pages=${RANDOM_PAGES:-65536}
    fi
    sql_rate=${SQL_RATE:-6000}
}

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

# Caches of records in a program with a garbage collector. A tenth is read all the time.
workload_node() {
    begin node --max-old-space-size=3000 workloads/load/cache.js $((random_pages * 2)) 1000000000 1
    target=$last
}

workload_java() {
    begin java -Xms1200m -Xmx1200m -Xmn64m workloads/load/Cache.java $((random_pages * 2)) 1000000000 1 1
    target=$last
}

missing() { # WORKLOAD
    local program
    case "$1" in
        mariadb) set -- mariadbd mariadb-install-db sysbench ;;
        memcached-*) set -- memcached ;;
        redis) set -- redis-server ;;
        rocksdb) set -- db_bench ;;
        node | java) set -- "$1" ;;
        *) set -- cc ;;
    esac
    for program; do command -v "$program" >/dev/null || { echo "$program"; return; }; done
}
