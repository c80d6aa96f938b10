#!/usr/bin/env bash
# Makes the files that MariaDB needs in a guest: a data folder with one table, its messages, and /etc/passwd.
# Usage: tests/guest/mariadb.sh FOLDER MARK
#
# The table tier.records has 120,000 rows of 480 bytes. The text MARK is in the last 20,000 of them.
set -euo pipefail

folder=${1:?"FOLDER is missing: give an empty folder for the guest's files"}
mark=${2:?"MARK is missing: give the text of the rows that are read"}
for program in mariadbd mariadb mariadb-install-db; do
    command -v "$program" >/dev/null || { echo "mariadb: there is no $program: install the package mariadb-server" >&2; exit 2; }
done

work=$(mktemp -d)
server=
end() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap end EXIT
chmod 711 "$work"
user=$(id -un)
data=$work/data
mkdir "$data"

mariadb-install-db --no-defaults --user="$user" --datadir="$data" --skip-test-db --skip-name-resolve \
    --auth-root-authentication-method=normal >"$work/log" 2>&1 || { tail -n 5 "$work/log" >&2; exit 1; }
mariadbd --no-defaults --user="$user" --datadir="$data" --socket="$work/socket" --skip-networking --skip-grant-tables \
    --innodb-log-file-size=16M --innodb-flush-log-at-trx-commit=0 --innodb-doublewrite=0 --innodb-fast-shutdown=0 \
    --innodb-buffer-pool-dump-at-shutdown=0 >"$work/log" 2>&1 &
server=$!
ask() { mariadb --no-defaults --socket="$work/socket" --user=root --batch; }
for _ in $(seq 300); do
    ! ask <<<'select 1' >/dev/null 2>&1 || break
    kill -0 "$server" 2>/dev/null || { tail -n 5 "$work/log" >&2; exit 1; }
    sleep 0.1
done
ask <<END
create database tier;
use tier;
create table records (id int primary key, pad varchar(500) character set latin1 not null) engine=InnoDB;
insert into records select seq, rpad(if(seq > 100000, '$mark', 'record'), 480, md5(seq)) from seq_1_to_120000;
shutdown;
END
wait "$server"
server=

mkdir -p "$folder/mariadb" "$folder/etc" "$folder/usr/share/mysql/english"
cp -r "$data/." "$folder/mariadb/"
cp /usr/share/mysql/english/errmsg.sys "$folder/usr/share/mysql/english/"
echo 'root:x:0:0:root:/:/bin/sh' >"$folder/etc/passwd"
