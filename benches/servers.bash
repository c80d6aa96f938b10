# Source after lib.bash. Real servers under a steady random load, each a function workload_NAME that sets target,
# and missing NAME, which prints a program that is not installed. Packages: scripts/deps.sh eval.
# With $groups, a list of cgroup.procs files, the servers run in these control groups; their clients do not.

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
    sqlite_records=$((redis_keys * 7 / 10)) pg_scale=$((redis_keys / 20000))
}

# Starts a server in the background; sets target to its pid.
serve() { # COMMAND...
    begin sh -c 'for file in $0; do echo $$ >"$file" || exit; done; exec "$@"' "${groups:-}" "$@"
    target=$last
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
    serve setpriv --reuid mysql --regid mysql --clear-groups mariadbd --no-defaults --datadir="$folder/data" \
        --socket="$sql_socket" --pid-file="$folder/pid" --skip-networking --innodb-buffer-pool-size="${pool_mib}M" \
        --innodb-log-file-size=256M --innodb-flush-log-at-trx-commit=0 --innodb-doublewrite=0 \
        --innodb-max-dirty-pages-pct=0 --innodb-max-dirty-pages-pct-lwm=0 --innodb-buffer-pool-dump-at-shutdown=0
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

# Fills four tables, reads everything once, as after days of service, and starts the load.
start_sysbench() { # OPTION...
    local nth tries point_select
    start_mariadb
    point_select=(sysbench oltp_point_select --mysql-socket="$sql_socket" --mysql-user=root --mysql-db=sbtest
        --tables=4 --table-size="$sql_rows" --threads=4)
    ask_mariadb 'create database sbtest'
    "${point_select[@]}" prepare >"$work/errors"
    [ -z "${sql_change:-}" ] || for nth in 1 2 3 4; do ask_mariadb "update sbtest.sbtest$nth set $sql_change"; done
    for nth in 1 2 3 4; do ask_mariadb "select sum(length(pad)) from sbtest.sbtest$nth" >/dev/null; done
    for tries in $(seq 300); do has_dirty_pages || break; sleep 1; done
    begin "${point_select[@]}" "$@" --rate="$sql_rate" --time=100000 run
}

# The rows of sysbench are random digits.
workload_mariadb() { start_sysbench --rand-type=pareto --rand-pareto-h=0.1; }
workload_mariadb_uniform() { start_sysbench --rand-type=uniform; }

# Rows of words. Fewer, because each row is written twice.
workload_mariadb_text() {
    sql_rows=$((sql_rows / 2))
    sql_change="c = rpad('', 119, concat('order ', id, ' was sent to a customer in Europe ')), pad = 'paid by invoice'"
    start_sysbench --rand-type=pareto --rand-pareto-h=0.1
}

# Starts PostgreSQL as user postgres, with its data in $work. Its shared buffers hold all rows; those written
# last are read most.
workload_postgres() {
    local folder=$work/postgres bin tries as=(setpriv --reuid postgres --regid postgres --clear-groups)
    bin=$(postgres_bin)
    chmod 711 "$work"
    mkdir "$folder"
    chown postgres: "$folder"
    "${as[@]}" "$bin/initdb" --pgdata="$folder/data" --no-sync >"$work/errors" 2>&1 || { cat "$work/errors" >&2; return 1; }
    serve "${as[@]}" "$bin/postgres" -D "$folder/data" -k "$folder" -c listen_addresses= -c fsync=off \
        -c shared_buffers="${pool_mib}MB" -c huge_pages=off -c autovacuum=off -c checkpoint_timeout=1d
    for tries in $(seq 600); do
        pg_isready --quiet --host="$folder" && break
        kill -0 "$target" 2>/dev/null || { cat "$work/errors" >&2; return 1; }
        sleep 0.1
    done
    export PGHOST=$folder PGUSER=postgres PGDATABASE=postgres
    pgbench --initialize --quiet --scale="$pg_scale" >"$work/errors" 2>&1
    psql --quiet --command='create extension pg_prewarm' --command="select pg_prewarm('pgbench_accounts')" \
        --command="select pg_prewarm('pgbench_accounts_pkey')" --command=checkpoint >/dev/null
    cat >"$work/recent.sql" <<-'END'
		\set aid 100000 * :scale + 1 - random_exponential(1, 100000 * :scale, 11)
		SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
	END
    begin pgbench --no-vacuum --file="$work/recent.sql" --define=scale="$pg_scale" --client=2 --rate=2000 --time=100000
}

postgres_bin() { printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1; }

# The sqlite3 shell with a table in memory. Records written last are read most; the hot part moves on.
workload_sqlite() {
    local folder=$work/sqlite tries
    mkdir "$folder"
    python3 workloads/load/text.py --records "$sqlite_records" --bytes 600 --key >"$folder/records.tsv"
    mkfifo "$folder/sql"
    serve sh -c "cd '$folder' && exec sqlite3 :memory: <sql"
    begin sh -c 'exec python3 workloads/load/sqlite.py --records "$0" --queries 100000 --reads 200 --pattern fading \
        --drift 9000 --rate 10 >"$1"' "$sqlite_records" "$folder/sql"
    for tries in $(seq 600); do [ -e "$folder/ready" ] && break; sleep 0.1; done
    rm "$folder/records.tsv"
}

# Many short processes: three compilers at a time, one after the other, with pauses.
workload_compiler() {
    serve sh -c 'while :; do for nth in 1 2 3; do gcc -O3 -g -c "$0" -o /dev/null & done; wait; sleep 0.5; done' \
        benches/random_pages.c
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
    serve memcached -u root -s "$socket" -m 2048 -t 2 -o no_lru_crawler
    load_keys memcached "$socket" "$memcached_keys" 1024 "$1" "$2"
}

workload_memcached_hot() { start_memcached hot:0.05 4000; }
workload_memcached_uniform() { start_memcached uniform 4000; }

start_redis_server() { # PATTERN
    local socket=$work/redis.sock
    serve redis-server --port 0 --unixsocket "$socket" --save '' --appendonly no --daemonize no --dir "$work"
    load_keys redis "$socket" "$redis_keys" 512 "$1" 6000
}

workload_redis() { start_redis_server zipf:0.99; }
# A tenth of the keys is hot, and others become hot: all of them within 20 minutes.
workload_redis_moving() { start_redis_server moving:0.1:120; }

# The block cache holds all data. It is filled when memtables are flushed, so that it does not grow later.
workload_rocksdb() {
    serve db_bench --db="$work/rocksdb" --num="$rocksdb_keys" --value_size=512 --compression_type=none \
        --cache_size=$((rocksdb_keys * 1024)) --prepopulate_block_cache=1 --disable_wal=1 \
        --benchmarks=fillseq,readrandom --duration=100000 --benchmark_read_rate_limit=3000
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
    serve node --max-old-space-size=3000 workloads/load/cache.js $((random_pages * 2)) 1000000000 1
}

workload_java() {
    serve java -Xms1200m -Xmx1200m -Xmn64m workloads/load/Cache.java $((random_pages * 2)) 5000000 1 1
}

missing() { # WORKLOAD
    local program
    case "$1" in
        mariadb*) set -- mariadbd mariadb-install-db sysbench ;;
        memcached-*) set -- memcached ;;
        redis*) set -- redis-server ;;
        postgres) set -- pgbench psql "$(postgres_bin)/initdb" ;;
        sqlite) set -- sqlite3 ;;
        compiler) set -- gcc ;;
        rocksdb) set -- db_bench ;;
        node | java) set -- "$1" ;;
        *) set -- cc ;;
    esac
    for program; do command -v "$program" >/dev/null || { echo "$program"; return; }; done
}
