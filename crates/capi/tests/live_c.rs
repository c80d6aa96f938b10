//! The library as seen from C: the header matches the library, and the example works.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder of the built library, next to the tests.
fn library_folder() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let deps = tests.parent().unwrap();
    let folders = [deps, deps.parent().unwrap()];
    let folder = folders
        .into_iter()
        .find(|folder| folder.join("libthermo.so").exists());
    folder.expect("cargo builds the library for its tests").to_owned()
}

/// Compiles a C program against the header and the library; `None` without a compiler. At run time the
/// program finds the library in its own folder, by the name that the library gives itself.
fn compile(source: &Path, to: &Path) -> Option<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = library_folder();
    let own = to.parent().unwrap();
    std::os::unix::fs::symlink(folder.join("libthermo.so"), own.join("libthermo.so.1")).unwrap();
    let output = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-I"])
        .arg(here.join("include"))
        .arg(source)
        .arg("-L")
        .arg(&folder)
        .arg(format!("-Wl,-rpath,{}", own.display()))
        .args(["-lthermo", "-o"])
        .arg(to)
        .output();
    match output {
        Err(why) => {
            eprintln!("SKIP: there is no C compiler: {why}");
            None
        }
        Ok(output) => {
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            Some(())
        }
    }
}

const LAYOUT: &str = r#"
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "thermo.h"
#define SAME(what, number) do { if ((long long)(what) != (long long)(number)) { printf("%s is %lld, not %lld\n", #what, (long long)(what), (long long)(number)); bad = 1; } } while (0)
int main(void)
{
	int bad = 0;
	uint64_t start, end;
	struct thermo *thermo = thermo_new();
	struct thermo_result result = { 0 };
	struct thermo_limits dry = { .flags = THERMO_DRY };
	SAME(sizeof(struct thermo_hint), 24);
	SAME(offsetof(struct thermo_hint, start), 8);
	SAME(sizeof(struct thermo_result), 32);
	SAME(offsetof(struct thermo_result, reason), 24);
	SAME(sizeof(struct thermo_limits), 32);
	SAME(offsetof(struct thermo_limits, kind), 24);
	SAME(thermo_abi(), THERMO_ABI);
	SAME(thermo_add_pid(thermo, 0), -EINVAL);
	SAME(thermo_add_pid(thermo, 4194305), -ESRCH);
	SAME(thermo_add_pidfd(thermo, -1), -EBADF);
	SAME(thermo_add_pidfd(thermo, 0), -EBADF);
	SAME(thermo_add_pid(NULL, 1), -EINVAL);
	SAME(thermo_add_pid(thermo, (uint32_t)getpid()), 0);
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	SAME(thermo_add_pidfd(thermo, pidfd), 1);
	close(pidfd);
	SAME(thermo_is_alive(thermo, 1), 1);
	SAME(thermo_is_alive(thermo, 7), 0);
	SAME(thermo_ranges(thermo, 7, NULL, NULL, NULL, 0), -ENOENT);
	SAME(thermo_ranges(thermo, 1, "no such name", NULL, NULL, 0), 0);
	SAME(thermo_ranges(thermo, 1, "[stack]", &start, &end, 1), 1);
	/* A page of the stack that is in memory. */
	uint64_t size = (uint64_t)sysconf(_SC_PAGESIZE), page = (uint64_t)&bad & ~(size - 1);
	struct thermo_hint hint = { 1, THERMO_COLD, page, page + size };
	SAME(thermo_give(thermo, &hint, 1, &dry, &result), 0);
	SAME(result.advised, 0);
	SAME(result.reason, THERMO_DRY_RUN);
	SAME(result.skipped, size);
	hint.process = 7;
	SAME(thermo_give(thermo, &hint, 1, NULL, &result), 0);
	SAME(result.reason, THERMO_GONE);
	SAME(result.refused, 1);
	hint.action = 99;
	SAME(thermo_give(thermo, &hint, 1, NULL, &result), -EINVAL);
	hint.action = THERMO_STAT;
	dry.flags = 64;
	SAME(thermo_give(thermo, &hint, 1, &dry, &result), -EINVAL);
	SAME(thermo_give(thermo, NULL, 1, NULL, &result), -EINVAL);
	SAME(thermo_give(thermo, NULL, 0, NULL, NULL), 0);
	thermo_remove(thermo, 1);
	SAME(thermo_is_alive(thermo, 1), 0);
	thermo_cancel(thermo);
	thermo_free(thermo);
	thermo_free(NULL);
	return bad;
}
"#;

#[test]
fn header_matches_library() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
    std::fs::write(&source, LAYOUT).unwrap();
    if compile(&source, &program).is_none() {
        return;
    }
    let output = Command::new(&program).stdin(Stdio::null()).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

#[test]
fn header_and_library_declare_same_functions() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let names = |text: &str, before: &str| -> Vec<String> {
        let lines = text
            .lines()
            .filter(|line| line.contains(before) && !line.starts_with(" *"));
        let name = |line: &str| {
            let from = line.find("thermo_")?;
            let name: String = line[from..]
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            line[from + name.len()..].starts_with('(').then_some(name)
        };
        let mut names: Vec<String> = lines.filter_map(name).collect();
        names.sort();
        // Comments in the header mention some functions.
        names.dedup();
        names
    };
    let header = std::fs::read_to_string(here.join("include/thermo.h")).unwrap();
    let library = std::fs::read_to_string(here.join("src/lib.rs")).unwrap();
    let declared = names(&header, "(");
    assert_eq!(declared, names(&library, "extern \"C\" fn"));
    assert!(declared.len() >= 10, "{declared:?}");
}

#[test]
fn session_example_hides_and_shows_program() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/session.c");
    assert!(std::fs::read_to_string(&source).unwrap().lines().count() < 100);
    let program = folder.path().join("session");
    if compile(&source, &program).is_none() {
        return;
    }
    let mut session = Command::new(&program)
        .args(["sleep", "600"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut to, mut from) = (
        session.stdin.take().unwrap(),
        BufReader::new(session.stdout.take().unwrap()),
    );
    for word in ["hide", "show"] {
        writeln!(to, "{word}").unwrap();
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        assert!(line.contains("bytes advised"), "{word}: {line:?}");
    }
    writeln!(to, "quit").unwrap();
    assert!(session.wait().unwrap().success());
}
