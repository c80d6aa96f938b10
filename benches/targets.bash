# Source after lib.bash. Workloads with a known truth, and recordings compared with it.

# Starts a process with so many MiB: the first seven eighths are touched once, the last eighth all the time.
# Returns when the truth has a line; sets target.
begin_target() { # MIB TRUTH [OPTIONS of workload...]
    local mib=$1 truth=$2
    shift 2
    printf 'cold, %d\nhot, %d\n\nfill\n%d\ncold, 0, 4096, 1\n\nhot\n1000000\nhot, 0, 4096, 1\n' \
        $((mib * 7 * 131072)) $((mib * 131072)) $((300 + mib)) >"$work/target-$mib.cfg"
    begin_touching "$work/target-$mib.cfg" "$truth" "$@"
}

# Starts a workload with any configuration. Returns when the truth has a line; sets target.
begin_touching() { # CONFIGURATION TRUTH [OPTIONS of workload...]
    begin_workload "$@"
    until [ -s "$2" ]; do
        kill -0 "$target" || { cat "$work/errors" >&2; exit 1; }
        sleep 0.1
    done
}

begin_workload() { # CONFIGURATION TRUTH [OPTIONS...]
    local configuration=$1 truth=$2
    shift 2
    rm -f "$truth"
    begin "$thermo_lab" workload --quiet --truth "$truth" "$@" "$configuration"
    target=$last
}

# Records for so many seconds. Writes NAME.info.json and NAME.judged.json (the comparison with TRUTH) to
# $work.
record_and_judge() { # NAME SECONDS TRUTH OPTIONS...
    local name=$1 each=$2 truth=$3
    shift 3
    "$thermo" record "$@" --duration "${each}s" -o "$work/$name.arrow" 2>"$work/errors" || cat "$work/errors" >&2
    "$thermo" report info "$work/$name.arrow" --json >"$work/$name.info.json"
    "$thermo_lab" monitor --judge "$work/$name.arrow" --truth "$truth" --json >"$work/$name.judged.json"
}
