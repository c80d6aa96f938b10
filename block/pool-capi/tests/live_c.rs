//! Tests of the C interface, and of the example server in C where a compiler is available.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
#![expect(unsafe_code, reason = "callers in C pass raw pointers")]

use std::ffi::c_void;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use thermo_pool_capi::*;

extern "C" fn reclaim(data: *mut c_void) -> u64 {
    // SAFETY: the test registered the address of a counter that outlives the registration.
    unsafe { &*data.cast::<AtomicU64>() }.fetch_add(1, Ordering::Relaxed);
    4096
}

#[test]
fn buffers_stay_within_budget_and_pressure_frees_them() {
    let pools = thermo_pools_new(2 << 20);
    let calls = AtomicU64::new(0);
    // SAFETY: every object is used as the header requires: created before use, freed once at the end.
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
            "larger than the largest request"
        );
        thermo_buffer_data(one).cast::<u8>().write_bytes(7, 1 << 20);
        thermo_buffer_release(one);
        thermo_buffer_release(other);
        assert_eq!(thermo_pools_peak(pools), 2 << 20);
        // Repeated, because the bus drops a report that follows a report of a source too soon.
        let deadline = Instant::now() + Duration::from_secs(60);
        while thermo_pools_used(pools) > 0 || calls.load(Ordering::Relaxed) == 0 {
            assert!(Instant::now() < deadline, "free pages are not released");
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

// The static library of this build: the newest next to the test program.
fn library() -> Option<PathBuf> {
    let program = std::env::current_exe().unwrap();
    let files = std::fs::read_dir(program.parent()?).unwrap().flatten();
    let libraries = files.map(|file| file.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libthermo_pool_capi") && name.ends_with(".a")
    });
    libraries.max_by_key(|path| path.metadata().and_then(|facts| facts.modified()).ok())
}

// Compiles the example server into `folder`. None without the static library or a C compiler.
fn build_example(folder: &Path) -> Option<PathBuf> {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let Some(library) = library() else {
        eprintln!("SKIP: the static library was not built with the tests");
        return None;
    };
    let program = folder.join("blockd");
    let compiler = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(crate_dir.join("include"))
        .arg(crate_dir.join("examples/blockd.c"))
        .arg(library)
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program)
        .output();
    let Ok(built) = compiler else {
        eprintln!("SKIP: no C compiler is available");
        return None;
    };
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    Some(program)
}

#[test]
fn example_server_in_c_serves_reads_and_writes() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = build_example(dir.path()) else {
        return;
    };
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
    let mut request = |kind: u8, offset: u64, len: u32, data: &[u8], reply_len: usize| {
        let head = [&[kind][..], &offset.to_be_bytes(), &len.to_be_bytes(), data].concat();
        client.write_all(&head).unwrap();
        let mut bytes = vec![0; reply_len];
        client.read_exact(&mut bytes).unwrap();
        bytes
    };
    assert_eq!(request(b'w', 4096, 8192, &[9; 8192], 1), [0]);
    assert_eq!(request(b'r', 0, 1 << 20, &[], 1 << 20)[4095..4098], [5, 9, 9]);
    drop(server.stdin.take());
    let output = server.wait_with_output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && stdout.starts_with("used 0 peak "),
        "{stdout}"
    );
    assert!(
        stdout.contains("thermo_pool_free_pages{pool=\"client0\"} 0"),
        "{stdout}"
    );
}
