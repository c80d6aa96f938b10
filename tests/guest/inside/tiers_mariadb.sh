# MariaDB on memory tiers. guest.sh puts the folder of tests/guest/mariadb.sh into the guest: a table whose
# newest rows have the mark. They are read all the time.

ask_mariadb() { mariadb --no-defaults --socket=/tmp/mariadb.sock --user=root --batch --skip-column-names "$@" 2>/tmp/mariadb.stderr; }
mariadb_responds() { ask_mariadb --execute='select 1' >/dev/null; }

# The guest has no users, no network and no asynchronous I/O. MariaDB reserves 8 TiB of addresses.
start_tier_mariadb() {
    mariadbd --no-defaults --user=root --datadir=/mariadb --socket=/tmp/mariadb.sock --skip-networking \
        --skip-grant-tables --innodb-buffer-pool-size=128M --innodb-flush-method=fsync --innodb-use-native-aio=0 \
        --innodb-buffer-pool-load-at-startup=0 --performance-schema=0 --tmpdir=/tmp --pid-file=/tmp/mariadb.pid \
        >/tmp/mariadb.log 2>&1 &
    pid=$!
    kill_at_end "$pid"
}

# Starts MariaDB on the slow node, reads the whole table once, and its newest part until the end of the test.
start_filled_mariadb() {
    command -v mariadbd >/dev/null || skip "MariaDB is not in this initramfs: install it on the host"
    start_on_slow_node mariadb_responds start_tier_mariadb
    echo 1 >/cgroup/tiers/cpuset.mems
    note "rows: $(ask_mariadb --execute='select count(*), sum(crc32(pad)) from tier.records' | tr '\t' ' ')"
    echo 0-1 >/cgroup/tiers/cpuset.mems
    check_hot_is_far MariaDB
    # Reads of a hundred rows in random order, which read each row as often as the others.
    awk 'BEGIN { srand(1); for (n = 0; n < 2000; n++) {
        first = 100001 + int(rand() * 200) * 100
        printf "select sum(crc32(pad)) from tier.records where id between %d and %d;\n", first, first + 99
    } }' >/tmp/reads.sql
    while ask_mariadb </tmp/reads.sql >/dev/null; do :; done &
    kill_at_end $!
}

tiers_mariadb_hot_is_near() {
    need_two_nodes
    start_filled_mariadb
    check_hot_comes_near MariaDB
}
