# Monitoring without BPF: as a user other than root, and on a locked-down kernel.

record_without_privilege() {
    mkdir -p /etc /tmp/nobody
    chown 65534 /tmp/nobody
    echo 'nobody:x:65534:65534::/tmp/nobody:/bin/sh' >/etc/passwd
    cat >/tmp/nobody/record <<-'COMMANDS'
		thermo doctor --json >/tmp/nobody/doctor.json || exit
		thermo record -o /tmp/nobody/own.arrow --duration 3s -- thermo-lab workload /hot.cfg --duration 5s
	COMMANDS
    timeout 100 su -s /bin/sh nobody -c 'sh /tmp/nobody/record' >/tmp/stdout 2>/tmp/stderr || fail "the command ended with $?: $(last_error)"
    cp /tmp/nobody/doctor.json /out/doctor-nobody.json
    grep -q '"default_tracker":"smaps"' /out/doctor-nobody.json || fail "the default tracker is not smaps: $(cat /out/doctor-nobody.json)"
    run_thermo report info --json /tmp/nobody/own.arrow | grep -q '"tracker":"smaps"' || fail "the recording does not name the tracker smaps: $(last_error)"
}

# Root finds the direct map by a breakpoint; a service with few capabilities by page_offset_base.
direct_map_needs_few_capabilities() {
    local few=-all,+bpf,+perfmon,+sys_nice,+sys_ptrace,+syslog
    setpriv-util-linux --bounding-set=$few thermo doctor --json >/out/doctor-few.json || fail "doctor ended with $?"
    grep -q '"default_tracker":"pte"' /out/doctor-few.json || fail "the default tracker is not pte: $(cat /out/doctor-few.json)"
    echo 2 >/proc/sys/kernel/kptr_restrict
    setpriv-util-linux --bounding-set=$few thermo doctor >/tmp/doctor-hidden || fail "doctor ended with $?"
    echo 0 >/proc/sys/kernel/kptr_restrict
    grep '^  pte ' /tmp/doctor-hidden | grep -q 'page_offset_base in /proc/kallsyms' || fail "the reason does not name page_offset_base: $(cat /tmp/doctor-hidden)"
}

lockdown_is_reported() {
    local lockdown=/sys/kernel/security/lockdown status=0 expected
    [ -w $lockdown ] || skip "this kernel has no lockdown"
    echo confidentiality >$lockdown || skip "this kernel cannot be locked down"
    run_thermo doctor --json >/out/doctor-lockdown.json || fail "doctor ended with $?: $(last_error)"
    # With in-kernel DAMON the default is kdamond, otherwise smaps.
    if [ -d $damon ]; then expected=kdamond; else expected=smaps; fi
    grep -q "\"default_tracker\":\"$expected\"" /out/doctor-lockdown.json || fail "the default tracker is not $expected: $(run_thermo doctor | grep -E '  (pte|kdamond) ')"
    run_thermo doctor | grep '^  pte ' | sed "s/^ */# $name: /"
    start_workload hot.cfg
    run_thermo record -o /tmp/locked.arrow --tracker pte --pid "$pid" --duration 1s || status=$?
    [ "$status" -eq 2 ] || fail "record --tracker pte ended with $status, not 2: $(last_error)"
    last_error | grep -q 'locked down (confidentiality)' || fail "the error does not name lockdown: $(last_error)"
    last_error | grep -q -- '--tracker auto' || fail "the error does not name --tracker auto: $(last_error)"
    # shellcheck disable=SC2086
    find_hot_memory --tracker smaps $intervals --pid "$pid"
}
