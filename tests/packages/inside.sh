#!/bin/bash
# Runs in an emulated Debian machine, with the packages in old/ and new/: installs the old ones, upgrades to
# the new ones, checks services and commands, removes and purges, and compares the files with those before.
# Result lines go to standard output: `ok NAME`, `not ok NAME: why`, `# remark`.
cd "$(dirname "$0")" || exit 1
export DEBIAN_FRONTEND=noninteractive PAGER=cat MANPAGER=cat
here=$PWD
# The second serial port is a file outside.
stty -F /dev/ttyS1 raw clocal
exec >/dev/ttyS1 2>&1

# check NAME COMMAND...: one result line; the command's output only if it fails.
check() {
    local name=$1
    shift
    if "$@" >"$here/output" 2>&1; then
        echo "ok $name"
    else
        echo "not ok $name: $(tail -n 4 "$here/output" | tr '\n' ' ')"
    fi
}

seconds() { # NAME COMMAND...
    local name=$1 begin=$EPOCHREALTIME
    shift
    check "$name" "$@"
    awk -v a="$begin" -v b="$EPOCHREALTIME" -v name="$name" 'BEGIN { printf "# %s took %.1f s\n", name, b - a }'
}

# Repeats a command until it succeeds, for at most a minute.
wait_for() {
    local try
    for try in $(seq 60); do
        "$@" && return
        sleep 1
    done
    echo "gave up after $try tries: $*"
    return 1
}

packages_in() { find "$here/$1" -name '*.deb' ! -name '*-dbgsym*' | sort; }
install_from() { # FOLDER
    # shellcheck disable=SC2046 # one argument for each package
    apt-get install -y --no-install-recommends $(packages_in "$1")
}
names() { echo thermocline thermo-nbd thermo-lab thermo-upload libthermo1 libthermo-pool1 libthermo-dev; }

# Every file but those that other programs change all the time.
list_files() { # OUTPUT
    # /etc/passwd- and the like are copies that programs make before they change a file.
    find / -xdev \( -path /proc -o -path /sys -o -path /tmp -o -path /var/log -o -path /var/cache -o -path /var/lib/apt \
        -o -path /var/lib/dpkg -o -path /var/lib/systemd -o -path /root -o -path '/etc/*-' -o -path /etc/.pwd.lock \) \
        -prune -o -print | sort >"$1"
    find /var/lib/systemd/deb-systemd-helper* | sort >>"$1"
    # /run is a file system of its own. Units that systemd generates, and its notes, change by themselves.
    find /run -xdev \( -path /run/systemd -o -path /run/udev -o -path /run/user -o -path /run/log \) -prune -o -print | sort >>"$1"
    getent passwd >>"$1"
    getent group >>"$1"
}

ready() { curl_unix /readyz; }
# The machine has no curl.
curl_unix() { # PATH
    python3 - "$1" <<'PYTHON'
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.settimeout(30)
connection.connect("/run/thermo/agent.sock")
connection.sendall(f"GET {sys.argv[1]} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
answer = b""
while part := connection.recv(65536):
    answer += part
text = answer.decode()
print(text)
sys.exit(0 if text.startswith("HTTP/1.1 200") else 1)
PYTHON
}

main_pid() { systemctl show -p MainPID --value "$1"; }

# The last lines of the journal of a unit that is not active, as remarks.
explain() { # UNIT
    systemctl is-active --quiet "$1" || journalctl -u "$1" -n 15 --no-pager -o cat | sed "s/^/# $1: /"
}

services_work() {
    check agent_is_active systemctl is-active thermo-agent.service
    explain thermo-agent.service
    explain thermo-agent.socket
    check agent_socket_is_active systemctl is-active thermo-agent.socket
    check agent_is_enabled systemctl is-enabled thermo-agent.service
    check lifecycle_is_not_enabled test "$(systemctl is-enabled thermo-lifecycle.service 2>/dev/null)" = disabled
    check nbd_socket_is_enabled systemctl is-enabled thermo-nbd.socket
    check nbd_has_not_started test "$(systemctl is-active thermo-nbd.service)" = inactive
    check nothing_failed test -z "$(systemctl list-units --failed --plain --no-legend | grep thermo)"
    check agent_answers wait_for ready
    check agent_runs_as_its_user test "$(stat -c %U "/proc/$(main_pid thermo-agent)")" = thermo
    check users_are_distinct test "$(systemctl show -p User --value thermo-agent thermo-lifecycle thermo-upload thermo-nbd | grep . | sort -u | wc -l)" = 4
    check agent_is_confined grep -q thermo-agent "/proc/$(main_pid thermo-agent)/attr/current"
}

commands_work() {
    thermo doctor >doctor.txt 2>&1
    local status=$?
    check doctor_is_green test "$status" -eq 0
    sed -n 's/^/# doctor: /p' doctor.txt | head -n 12
    check doctor_has_no_leftovers thermo doctor --leftovers
    local page
    for page in thermo.1 thermo-record.1 thermo.7 thermo-schemes.5 thermo-agent.toml.5 thermo-nbd.1 thermo-lab.1 thermo-upload.1; do
        check "man_$page" sh -c "man ${page##*.} ${page%.*} | grep -q NAME"
    done
    check schemes_are_installed thermo schemes check /usr/share/thermocline/schemes/proactive_reclaim.damos
    check lab_finds_its_workloads sh -c 'cd /usr/share/thermo-lab && timeout 60 thermo-lab workload workloads/hot-cold.cfg --duration 1s'
    check version_is_that_of_the_package test "$(thermo --version)" = "thermo $(dpkg-query -W -f '${Version}' thermocline | sed 's/~.*//')"
}

# A unit with a process, and the shell's own completion set-up, as a user has it.
completions_work() {
    cat >/tmp/test/complete.bash <<'BASH'
. /usr/share/bash-completion/bash_completion
_completion_loader thermo
COMP_WORDS=(thermo record --unit '') COMP_CWORD=3 COMP_TYPE=9 COMP_LINE='thermo record --unit ' COMP_POINT=21
_clap_complete_thermo thermo '' --unit
printf '%s\n' "${COMPREPLY[@]}"
COMP_WORDS=(thermo record --pid '')
_clap_complete_thermo thermo '' --pid
printf '%s\n' "${COMPREPLY[@]}"
BASH
    check bash_completes_units sh -c 'bash /tmp/test/complete.bash | grep -x dbus.service'
    check bash_completes_processes sh -c "bash /tmp/test/complete.bash | grep -x $$"
    check fish_completes_units sh -c "fish -c 'complete -C \"thermo record --unit \"' | grep -x dbus.service"
    check fish_completes_processes sh -c "fish -c 'complete -C \"thermo record --pid \"' | grep -P '^$$\\tbash'"
    cat >/tmp/test/complete.zsh <<'ZSH'
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=; autoload -Uz compinit; compinit -u -D; print rea''dy"
zpty -r shell text '*ready*'
zpty -w -n shell $'thermo record --unit dbus.serv\t'
zpty -r shell text '*dbus.service*' && print completed
ZSH
    check zsh_completes_units sh -c 'HOME=/tmp timeout 120 zsh -f /tmp/test/complete.zsh | grep completed'
}

# A program in C against the packages.
libraries_work() {
    cp /usr/share/doc/libthermo-dev/examples/*.c* . 2>/dev/null
    gunzip -f ./*.c.gz 2>/dev/null
    # shellcheck disable=SC2046 # several flags
    check session_is_linked gcc session.c $(pkg-config --cflags --libs libthermo) -o session
    check session_runs sh -c "printf 'hide\nshow\nquit\n' | ./session sleep 60"
    # shellcheck disable=SC2046 # several flags
    check blockd_is_linked gcc blockd.c $(pkg-config --cflags --libs libthermo_pool) -o blockd
    check blockd_finds_its_library sh -c 'ldd ./blockd | grep -q "libthermo_pool.so.1 => /"'
}

agent_survives_a_kill() {
    local before history
    cat >/etc/thermo/agent.toml <<'TOML'
[history]
every = "1s"

[[policy]]
name = "machine"
match = { unit = ["dbus", "systemd-journald"] }
TOML
    check configuration_is_valid thermo agent check
    check reload systemctl reload thermo-agent
    check policy_is_there wait_for sh -c 'thermo agent status --json | grep -q machine'
    check history_is_written wait_for sh -c 'find /var/lib/thermo -name "*.arrow" -size +4k | grep -q .'
    before=$(main_pid thermo-agent)
    kill -9 "$before"
    is_another() { [ "$(main_pid thermo-agent)" != "$before" ] && [ "$(main_pid thermo-agent)" != 0 ]; }
    check agent_is_restarted wait_for is_another
    check agent_answers_after_the_kill wait_for ready
    for history in $(find /var/lib/thermo -name '*.arrow' | sort | head -n 1); do
        check history_is_readable sh -c "thermo report info $history >/dev/null; test \$? -le 1"
    done
    check ledger_is_readable thermo agent ledger --json
    check watchdog_is_set test "$(systemctl show -p WatchdogUSec --value thermo-agent)" = 3min
    check reports_read_the_history sh -c 'thermo report summary --since -10m >/dev/null; test $? -le 1'
}

nbd_is_started_by_its_socket() {
    truncate -s 4M /var/lib/thermo-nbd/disk.img
    chown thermo-nbd: /var/lib/thermo-nbd/disk.img
    check nbd_socket_starts systemctl start thermo-nbd.socket
    cat >nbd.py <<'PYTHON'
import socket
connection = socket.socket(socket.AF_UNIX)
connection.settimeout(60)
connection.connect("/run/thermo-nbd.sock")
greeting = connection.recv(18)
assert greeting[:16] == b"NBDMAGICIHAVEOPT", greeting
PYTHON
    check nbd_greets_its_first_client python3 nbd.py
    check nbd_is_active wait_for systemctl is-active thermo-nbd.service
    check nbd_runs_as_its_user test "$(stat -c %U "/proc/$(main_pid thermo-nbd)")" = thermo-nbd
    check nbd_is_confined grep -q thermo-nbd "/proc/$(main_pid thermo-nbd)/attr/current"
    check nbd_survives_a_kill sh -c "kill -9 $(main_pid thermo-nbd) && python3 nbd.py"
}

exposure() {
    local unit
    for unit in thermo-agent thermo-nbd thermo-lifecycle; do
        echo "# $(systemd-analyze security "$unit.service" --no-pager 2>/dev/null | grep Overall)"
    done
}

# What the profiles do not list is logged, whether it was denied or not. That the profiles were loaded is
# logged as well: otherwise an empty log would prove nothing.
denials() {
    local found
    check profiles_are_logged sh -c 'journalctl -k --no-pager | grep -q "apparmor=\"STATUS\".*thermo-agent"'
    echo "# $(aa-status 2>/dev/null | grep -c thermo) lines of aa-status name thermo; modes: $(cat /proc/"$(main_pid thermo-agent)"/attr/current), $(cat /proc/"$(main_pid thermo-nbd)"/attr/current)"
    found=$(journalctl -k --no-pager | grep -E 'apparmor="(DENIED|ALLOWED)".*thermo' | sed 's/.*apparmor=/apparmor=/; s/pid=[0-9]*//' | sort | uniq -c | head -n 20)
    [ -z "$found" ] || sed 's/^/# profile: /' <<<"$found"
    check profiles_allow_everything test -z "$found"
}

echo "# $(. /etc/os-release && echo "$PRETTY_NAME"), Linux $(uname -r), booted in $(cut -d. -f1 /proc/uptime) s"
systemctl is-system-running --wait >/dev/null 2>&1
man -w man >/dev/null 2>&1
list_files before
seconds install_old install_from old
services_work
seconds upgrade install_from new
check upgraded test "$(dpkg-query -W -f '${Version}' thermocline)" = "$(cat new/version)"
services_work
commands_work
completions_work
libraries_work
agent_survives_a_kill
nbd_is_started_by_its_socket
exposure
denials
# shellcheck disable=SC2046 # one argument for each package
seconds remove apt-get remove -y $(names)
check agent_has_ended test "$(systemctl is-active thermo-agent.service)" != active
check configuration_is_kept test -e /etc/thermo/agent.toml
rm -f /var/lib/thermo-nbd/disk.img
# shellcheck disable=SC2046 # one argument for each package
seconds purge dpkg --purge $(names)
list_files after
# Lines that are gone do not count: dh_apparmor removes folders of apparmor that are empty.
diff before after | sed -n 's/^> //p' >left
check nothing_is_left test ! -s left
head -n 20 left | sed 's/^/# left: /'
# shellcheck disable=SC2046 # one argument for each package
seconds install_new install_from new
check works_again systemctl is-active thermo-agent.service
echo "the machine has finished"
