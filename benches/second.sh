#!/usr/bin/env bash
# What a second consumer of accessed marks takes from us: memory that is touched every few milliseconds, and memory that
# is touched a few times a second, watched at the default budget alone, beside another thermo, and beside somebody who
# writes to clear_refs ten times a second. (Consumers that keep the young flag: second_consumer_is_measured of
# tests/guest/inside.) Each for SECONDS_EACH (20). As root.
. "$(dirname "$0")/lib.bash"
. benches/eighth.bash
need_built "$thermo" "$thermo_lab"
each=${SECONDS_EACH:-20}

nobody() { :; }
thermo_at_1_percent() { begin "$thermo" record --pid "$1" -o "$work/second.arrow"; }
thermo_at_5_ms() { begin "$thermo" record --pid "$1" --sample 5ms --aggr 100ms -o "$work/second.arrow"; }
clear_refs_loop() {
    # shellcheck disable=SC2016 # expanded by that shell
    begin bash -c 'while echo 1 >"/proc/$0/clear_refs"; do sleep 0.1; done' "$1"
}

# What is hot is touched from beginning to end and again.
configure() { # HOT_MIB
    printf 'hot, %d\ncold, %d\n\nfill\n1500\nhot, 0, 4096, 1\ncold, 0, 4096, 1\n\nhot\n1000000\nhot, 0, 64, 1\n' \
        $(($1 * 1048576)) $((256 * 1048576)) >"$work/second.cfg"
}

row() { # PATTERN BESIDE FUNCTION
    begin_workload "$work/second.cfg" "$work/truth" --truth-span "$span"
    sleep 3
    "$3" "$target"
    if record_and_judge one "$each" "$work/truth" --pid "$target"; then
        python3 benches/second.py "$1" "$2" "$work/one.info.json" "$work/one.judged.json" "$alone"
        # What the rows beside somebody are held against.
        if [ "$3" = nobody ]; then cp "$work/one.judged.json" "$alone"; fi
    else
        echo "$1, beside $2: nothing could be judged"
    fi
    end_all
}

# The spans of the truth are so long that each touches all that is hot.
pattern() { # NAME HOT_MIB TRUTH_SPAN
    alone=$work/alone.json span=$3
    rm -f "$alone"
    configure "$2"
    row "$1" "nobody" nobody
    row "$1" "thermo, 1 % of a CPU" thermo_at_1_percent
    row "$1" "thermo, 5 ms / 100 ms" thermo_at_5_ms
    row "$1" "clear_refs every 100 ms" clear_refs_loop
}

measure() {
    echo "touched                        beside                             right  hot found       lost  judged   the report tells of"
    pattern "every few ms (16 MiB)" 16 1s
    pattern "a few times a second (512 MiB)" 512 2s
}

keep second "A second consumer of accessed bits" measure
