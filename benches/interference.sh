#!/usr/bin/env bash
# The accuracy lost to a second consumer of accessed bits. Memory that is touched every few milliseconds, and
# memory that is touched a few times a second, monitored at the default budget alone, with another thermo, and
# with a program that writes to clear_refs ten times a second. Each run takes SECONDS_EACH (20). Needs root.
# Consumers that set the young flag are tested by kdamond_adds_little_error in
# tests/guest/inside/interference.sh.
. "$(dirname "$0")/lib.bash"
. benches/targets.bash
need_built "$thermo" "$thermo_lab"
each=${SECONDS_EACH:-20}

no_consumer() { :; }
thermo_at_1_percent() { begin "$thermo" record --pid "$1" -o "$work/second.arrow"; }
thermo_at_5_ms() { begin "$thermo" record --pid "$1" --sample 5ms --aggr 100ms -o "$work/second.arrow"; }
clear_refs_loop() {
    # shellcheck disable=SC2016 # expanded by that shell
    begin bash -c 'while echo 1 >"/proc/$0/clear_refs"; do sleep 0.1; done' "$1"
}

# The hot part is touched sequentially, over and over.
configure() { # HOT_MIB
    printf 'hot, %d\ncold, %d\n\nfill\n1500\nhot, 0, 4096, 1\ncold, 0, 4096, 1\n\nhot\n1000000\nhot, 0, 64, 1\n' \
        $(($1 * 1048576)) $((256 * 1048576)) >"$work/second.cfg"
}

row() { # PATTERN CONSUMER FUNCTION
    begin_workload "$work/second.cfg" "$work/truth" --truth-span "$span"
    sleep 3
    "$3" "$target"
    if record_and_judge one "$each" "$work/truth" --pid "$target"; then
        python3 benches/interference.py "$1" "$2" "$work/one.info.json" "$work/one.judged.json" "$alone"
        # The baseline of the other rows.
        if [ "$3" = no_consumer ]; then cp "$work/one.judged.json" "$alone"; fi
    else
        echo "$1, with $2: the recording could not be evaluated"
    fi
    end_all
}

# TRUTH_SPAN is long enough for the workload to touch all hot memory.
pattern() { # NAME HOT_MIB TRUTH_SPAN
    alone=$work/alone.json span=$3
    rm -f "$alone"
    configure "$2"
    row "$1" "none" no_consumer
    row "$1" "thermo, 1 % of a CPU" thermo_at_1_percent
    row "$1" "thermo, 5 ms / 100 ms" thermo_at_5_ms
    row "$1" "clear_refs every 100 ms" clear_refs_loop
}

measure() {
    printf '%-30s %-30s %10s %10s %10s %9s   %s\n' touched 'second consumer' precision recall lost snapshots warnings
    pattern "every few ms (16 MiB)" 16 1s
    pattern "a few times a second (512 MiB)" 512 2s
}

keep interference "A second consumer of accessed bits" measure
