#!/usr/bin/env bash
# The cost of monitoring: own CPU time, and slow-down of the monitored program, with a budget and at 5 ms /
# 100 ms. Measures with and without monitoring alternately, so that the machine's load affects both. Needs
# root and redis-server.
. "$(dirname "$0")/lib.bash"
need_built "$thermo" "$thermo_lab"

measure() {
    python3 benches/overhead.py stairs "$thermo" "$work"
    # Touches all its memory at random, so the processor has to set every cleared accessed bit again.
    python3 benches/overhead.py random "$thermo" "$work"
    if command -v redis-server >/dev/null && command -v redis-benchmark >/dev/null; then
        python3 benches/overhead.py redis "$thermo" "$work" "$socket" "$redis_pid"
    else
        echo "SKIP: redis-server and redis-benchmark are not installed (scripts/deps.sh demo)"
    fi
}

if command -v redis-server >/dev/null; then start_redis 300000; fi
keep overhead "Slow-down of monitored programs" measure
