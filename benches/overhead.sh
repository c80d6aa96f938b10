#!/usr/bin/env bash
# What watching costs: our CPU time, and how much slower the watched program gets, with a budget and at 5 ms / 100 ms. The program is
# watched and left alone in turns, so that both halves see the same machine. As root; needs redis-server.
. "$(dirname "$0")/lib.bash"
need_built "$thermo" "$thermo_lab"

measure() {
    python3 benches/overhead.py stairs "$thermo" "$work"
    # All of it touched all the time, at random: every mark that is taken off has to be set again.
    python3 benches/overhead.py random "$thermo" "$work"
    if command -v redis-server >/dev/null && command -v redis-benchmark >/dev/null; then
        python3 benches/overhead.py redis "$thermo" "$work" "$socket" "$redis_pid"
    else
        echo "SKIP: redis-server and redis-benchmark are not installed (scripts/deps.sh demo)"
    fi
}

if command -v redis-server >/dev/null; then start_redis 300000; fi
keep overhead "Slow-down of monitored programs" measure
