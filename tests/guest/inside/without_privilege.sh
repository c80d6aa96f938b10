# What is left where BPF may not be used: for another user than root, and on a locked-down kernel.

record_without_privilege() {
    mkdir -p /etc /tmp/nobody
    chown 65534 /tmp/nobody
    echo 'nobody:x:65534:65534::/tmp/nobody:/bin/sh' >/etc/passwd
    cat >/tmp/nobody/record <<-'COMMANDS'
		thermo doctor --json >/tmp/nobody/doctor.json || exit
		thermo record -o /tmp/nobody/own.arrow --duration 3s -- thermo-lab workload /hot.cfg --duration 5s
	COMMANDS
    timeout 100 su -s /bin/sh nobody -c 'sh /tmp/nobody/record' >/tmp/stdout 2>/tmp/stderr || fail "it ended with $?: $(last_words)"
    cp /tmp/nobody/doctor.json /out/doctor-nobody.json
    grep -q '"default_tracker":"smaps"' /out/doctor-nobody.json || fail "not smaps by default: $(cat /out/doctor-nobody.json)"
    thermo_says report info --json /tmp/nobody/own.arrow | grep -q '"tracker":"smaps"' || fail "not recorded by smaps: $(last_words)"
}

lockdown_is_told() {
    local lockdown=/sys/kernel/security/lockdown status=0 expected
    [ -w $lockdown ] || skip "this kernel has no lockdown"
    echo confidentiality >$lockdown || skip "this kernel cannot be locked down"
    thermo_says doctor --json >/out/doctor-lockdown.json || fail "doctor ended with $?: $(last_words)"
    # Where the kernel looks by itself it is asked; where not, mappings are counted.
    if [ -d $damon ]; then expected=kdamond; else expected=smaps; fi
    grep -q "\"default_tracker\":\"$expected\"" /out/doctor-lockdown.json || fail "not $expected by default: $(thermo_says doctor | grep -E '  (pte|kdamond) ')"
    thermo_says doctor | grep '^  pte ' | sed "s/^ */# $name: /"
    start_workload hot.cfg
    thermo_says record -o /tmp/locked.arrow --tracker pte --pid "$pid" --duration 1s || status=$?
    [ "$status" -eq 2 ] || fail "record --tracker pte ended with $status, not 2: $(last_words)"
    last_words | grep -q 'locked down (confidentiality)' || fail "the reason is not told: $(last_words)"
    last_words | grep -q -- '--tracker auto' || fail "the way out is not named: $(last_words)"
    # shellcheck disable=SC2086
    sees_the_hot_part --tracker smaps $intervals --pid "$pid"
}
