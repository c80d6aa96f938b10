//! The functions as C sees them; and the server in C, built and run where there is a compiler.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![expect(unsafe_code, reason = "this is what callers in C do")]

use std::ffi::c_void;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use thermo_pool_capi::*;

extern "C" fn reclaim(data: *mut c_void) -> u64 {
    // SAFETY: the test registered the address of a number that outlives the registration.
    unsafe { &*data.cast::<AtomicU64>() }.fetch_add(1, Ordering::Relaxed);
    4096
}

#[test]
fn buffers_are_lent_within_the_budget_and_pressure_takes_the_free_ones() {
    let pools = thermo_pools_new(2 << 20);
    let calls = AtomicU64::new(0);
    // SAFETY: every object is used as the header says: made before, freed once, at the end.
    unsafe {
        let pool = thermo_pool_open(pools, c"disk".as_ptr(), 1 << 20);
        assert!(
            thermo_pool_open(pools, c"disk".as_ptr(), 4096).is_null(),
            "the name is taken"
        );
        let registration = thermo_pools_register(
            pools,
            c"cache".as_ptr(),
            1,
            Some(reclaim),
            (&raw const calls).cast_mut().cast(),
        );
        let one = thermo_pool_acquire(pool, 1 << 20, 0);
        let other = thermo_pool_acquire(pool, 1 << 20, 0);
        assert!(
            thermo_pool_acquire(pool, 4096, 0).is_null(),
            "the budget is used up"
        );
        assert!(
            thermo_pool_acquire(pool, (1 << 20) + 1, -1).is_null(),
            "larger than the largest"
        );
        thermo_buffer_data(one).cast::<u8>().write_bytes(7, 1 << 20);
        thermo_buffer_release(one);
        thermo_buffer_release(other);
        assert_eq!(thermo_pools_peak(pools), 2 << 20);
        // More than once: a report right behind one of the machine's own is not passed on.
        let deadline = Instant::now() + Duration::from_secs(60);
        while thermo_pools_used(pools) > 0 || calls.load(Ordering::Relaxed) == 0 {
            assert!(Instant::now() < deadline, "free pages stay");
            thermo_pools_report_pressure(pools);
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(thermo_pool_free_pages(pool), 0);
        let mut text = [0; 64];
        let whole = thermo_pools_metrics(pools, text.as_mut_ptr(), text.len());
        assert!(whole > 64 && text[63] == 0 && text[62] != 0);
        thermo_registration_drop(registration);
        thermo_pool_close(pool);
        thermo_pools_free(pools);
        thermo_buffer_release(std::ptr::null_mut());
    }
}

// Where the static library of this very build lies: beside the test program, the newest.
fn library() -> Option<PathBuf> {
    let program = std::env::current_exe().unwrap();
    let files = std::fs::read_dir(program.parent()?).unwrap().flatten();
    let libraries = files.map(|file| file.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libthermo_pool_capi") && name.ends_with(".a")
    });
    libraries.max_by_key(|path| path.metadata().and_then(|facts| facts.modified()).ok())
}

#[test]
fn a_server_in_c_serves_from_the_pools() {
    let (Some(library), source) = (
        library(),
        Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/blockd.c"),
    ) else {
        eprintln!("SKIP: the static library was not built with the tests");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("blockd");
    let compiler = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
        .arg(source)
        .arg(library)
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program)
        .output();
    let Ok(built) = compiler else {
        eprintln!("SKIP: no C compiler is here");
        return;
    };
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );

    let (socket, disk) = (dir.path().join("s"), dir.path().join("disk"));
    std::fs::write(&disk, vec![5; 2 << 20]).unwrap();
    let mut server = Command::new(&program)
        .args([&socket, &disk])
        .arg((16 << 20).to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut client = loop {
        match UnixStream::connect(&socket) {
            Ok(client) => break client,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut ask = |kind: u8, offset: u64, len: u32, data: &[u8], answer: usize| {
        let head = [&[kind][..], &offset.to_be_bytes(), &len.to_be_bytes(), data].concat();
        client.write_all(&head).unwrap();
        let mut bytes = vec![0; answer];
        client.read_exact(&mut bytes).unwrap();
        bytes
    };
    assert_eq!(ask(b'w', 4096, 8192, &[9; 8192], 1), [0]);
    assert_eq!(ask(b'r', 0, 1 << 20, &[], 1 << 20)[4095..4098], [5, 9, 9]);
    drop(server.stdin.take());
    let output = server.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && told.starts_with("used 0 peak "),
        "{told}"
    );
    assert!(
        told.contains("thermo_pool_free_pages{pool=\"client0\"} 0"),
        "{told}"
    );
}
