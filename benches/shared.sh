#!/usr/bin/env bash
# Shared memory: the buffers of a PostgreSQL server whose clients read the first tenth of a table, monitored
# without and with --shared at the default budget, compared with the server's own statistics. Needs root and
# postgresql (a user postgres, initdb, pgbench).
. "$(dirname "$0")/lib.bash"
need_built "$thermo"
programs=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)
scale=${SCALE:-20}
each=${SECONDS_EACH:-40}

as_postgres() { (cd "$work/pg" && setpriv --reuid postgres --regid postgres --clear-groups "$@"); }
ask() { as_postgres "$programs/psql" -h "$work/pg" -XAtq -d postgres -c "$1"; }

begin_server() {
    chmod 711 "$work"
    mkdir "$work/pg"
    chown postgres: "$work/pg"
    as_postgres "$programs/initdb" -D "$work/pg/data" -A trust -N >/dev/null
    begin setpriv --reuid postgres --regid postgres --clear-groups "$programs/postgres" -D "$work/pg/data" \
        -c shared_buffers=512MB -c huge_pages=off -c listen_addresses= -c unix_socket_directories="$work/pg" \
        -c fsync=off -c autovacuum=off
    server=$last
    until ask 'select 1' >/dev/null 2>&1; do kill -0 "$server"; sleep 0.1; done
    as_postgres "$programs/pgbench" -h "$work/pg" -i -q -s "$scale" postgres >/dev/null 2>&1
    ask 'create extension pg_prewarm; create extension pg_buffercache' >/dev/null
    ask "select pg_prewarm('pgbench_accounts'), pg_prewarm('pgbench_accounts_pkey')" >/dev/null
}

begin_load() {
    echo '\set aid random(1, 10000 * :scale)' >"$work/pg/hot.sql"
    echo 'SELECT abalance FROM pgbench_accounts WHERE aid = :aid;' >>"$work/pg/hot.sql"
    begin setpriv --reuid postgres --regid postgres --clear-groups "$programs/pgbench" -h "$work/pg" -n -M prepared \
        -c 4 -j 1 -T 100000 -P 1 -s "$scale" -f "$work/pg/hot.sql" postgres
    sleep 3
}

# SIGINT: fast shutdown, which disconnects clients instead of waiting for them.
end_server() {
    kill -INT "$server" 2>/dev/null || true
    while kill -0 "$server" 2>/dev/null; do sleep 0.1; done
}

monitor() { # NAME FLAGS...
    local name=$1
    shift
    "$thermo" record --pid "$server" --children "$@" --duration "${each}s" -o "$work/shared.arrow" >/dev/null
    "$thermo" report info "$work/shared.arrow" --json >"$work/info.json"
    "$thermo" report regions "$work/shared.arrow" --json --last >"$work/regions.json"
    python3 benches/shared.py "$name" "$work/info.json" "$work/regions.json" "$mapping"
}

measure() {
    mapping=$(sed -n 's/^\([0-9a-f]*-[0-9a-f]*\) rw-s.*/\1/p' "/proc/$server/maps" | head -n 1)
    echo "buffers with the first tenth of the table and of its index: $(ask "
        select pg_size_pretty(count(*) * 8192) from pg_buffercache b,
            (values (pg_relation_filenode('pgbench_accounts'), pg_relation_size('pgbench_accounts') / 81920),
                    (pg_relation_filenode('pgbench_accounts_pkey'), pg_relation_size('pgbench_accounts_pkey') / 81920))
                as r(node, blocks)
        where b.relfilenode = r.node and b.relblocknumber < r.blocks"), of 512 MB shared buffers"
    monitor "without --shared"
    monitor "with --shared" --shared
}

[ -n "$programs" ] || { echo "SKIP: postgresql is not installed"; exit 0; }
begin_server
begin_load
keep shared "Shared memory: the buffers of PostgreSQL" measure
end_server
