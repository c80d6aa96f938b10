# Changes of the machine that outlive a killed script, noted for `thermo doctor --leftovers`: the format is
# that of crates/kernel/src/leftovers.rs. Source it.

# The start time of process PID, in clock ticks since boot; nothing if there is none.
start_time_of() { # PID
    sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20
}

# Writes a note of this script and prints its path. Remove the file when the change is undone. With DEVICE,
# the change ends with this device node.
note_leftover() { # KIND TEXT [DEVICE]
    local until='- -'
    [ -z "${3:-}" ] || until="device $3"
    local folder=/run/thermocline
    local note=$folder/$1-$$-script
    mkdir -p "$folder"
    printf 'thermo-leftovers 1 %s %s %s\n%s %s\n' "$1" $$ "$(start_time_of $$)" "$until" "$2" >"$note.new"
    mv "$note.new" "$note"
    echo "$note"
}

# Keeps packages from starting services while this script runs (policy-rc.d of Debian). A file that a killed
# script left allows them again, and removes itself when it is asked next.
forbid_services() { # FILE
    policy=$1
    policy_note=$(note_leftover policy-rc.d "$policy, which kept packages from starting services: \`rm $policy\` removes it")
    cat >"$policy.new" <<EOF
#!/bin/sh
# No package starts a service while process $$ (scripts/deps.sh of thermocline) installs.
since=\$(sed 's/.*) //' /proc/$$/stat 2>/dev/null | cut -d' ' -f20)
[ "\$since" = $(start_time_of $$) ] && exit 101
rm -f "\$0" "$policy_note"
EOF
    chmod +x "$policy.new"
    mv "$policy.new" "$policy"
}

allow_services() { rm -f "$policy" "$policy_note"; }
