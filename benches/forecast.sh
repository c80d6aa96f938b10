#!/usr/bin/env bash
# Prediction beside reality: `thermo advise` watches a server without acting. Then `thermo reclaim` acts with
# several minimum ages, one after the other. Compares resident memory saved, what zram holds, and refaults.
# Swap is a zram device made for this. Needs root and zram.
#
# Usage: forecast.sh [--quick] [WORKLOAD...]   (redis memcached-hot memcached-uniform mariadb node java)
#   --quick  small data and short times
# Environment: AGES (10 30 60, in seconds), ROUNDS (3), WATCH (180 s), SETTLE and EACH (60 s each): with an
# age, the first SETTLE + age seconds are not counted, the next EACH are. CPU (1%): the budget of both.
. "$(dirname "$0")/lib.bash"
# shellcheck source=benches/servers.bash
. benches/servers.bash
# shellcheck source=scripts/zram.sh
. scripts/zram.sh

all="redis memcached-hot memcached-uniform mariadb node java"
size=full chosen=()
for argument in "$@"; do
    case "$argument" in
        --quick) size=quick ;;
        -*) echo "forecast: unknown option $argument: use --quick" >&2; exit 2 ;;
        *) chosen+=("$argument") ;;
    esac
done
set_sizes "$size"
if [ "$size" = full ]; then
    ages=${AGES:-10 30 60} rounds=${ROUNDS:-3} watch=${WATCH:-180} settle=${SETTLE:-60} each=${EACH:-60} warm_up=60
else
    ages=${AGES:-10 30} rounds=${ROUNDS:-1} watch=${WATCH:-90} settle=${SETTLE:-20} each=${EACH:-30} warm_up=15
fi
cpu=${CPU:-1%}
[ "${#chosen[@]}" -gt 0 ] || read -r -d '' -a chosen <<<"$all" || true
for name in "${chosen[@]}"; do
    declare -F "workload_${name//-/_}" >/dev/null || { echo "forecast: unknown workload $name: use" $all >&2; exit 2; }
done

page_cluster=$(cat /proc/sys/vm/page-cluster)
end() {
    end_all
    remove_zram
    echo "$page_cluster" >/proc/sys/vm/page-cluster
    rm -rf "$work"
}
trap end EXIT

predict_and_act() { # WORKLOAD
    local absent round age
    absent=$(missing "$1")
    if [ -n "$absent" ]; then
        echo "$1: skipped, $absent is not installed"
        return
    fi
    "workload_${1//-/_}"
    sleep "$warm_up"
    "$thermo" advise --pid "$target" --cpu "$cpu" --duration "${watch}s" --json >"$work/advice.json" 2>"$work/errors" ||
        [ "$?" -eq 1 ] || { cat "$work/errors" >&2; exit 1; }
    for round in $(seq "$rounds"); do
        for age in $ages; do
            python3 benches/forecast.py act --thermo "$thermo" --pid "$target" --age "$age" --settle "$settle" \
                --each "$each" --cpu "$cpu" --zram "$zram" --workload "$1" --round "$round" >>"$work/real.jsonl"
        done
    done
    python3 benches/forecast.py compare --workload "$1" --advice "$work/advice.json" --real "$work/real.jsonl"
    cp "$work/advice.json" "$work/advice-$1.json"
    end_all
    rm -rf "$work/mariadb"
}

measure() {
    local name
    python3 benches/forecast.py heading
    for name in "${chosen[@]}"; do predict_and_act "$name"; done
    python3 benches/forecast.py summary --folder "$work" --plot "${PLOT:-}"
}

need_built "$thermo"
make_zram 8G || { echo "forecast: this kernel has no zram" >&2; exit 2; }
echo 0 >/proc/sys/vm/page-cluster
if [ "$size" = full ]; then
    keep forecast "Advice beside reality" measure
else
    measure
fi
