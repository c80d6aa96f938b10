//! Compiles the BPF program with clang into the build directory. No generated file is kept in the repository.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/bpf/pagetable.bpf.c";

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    // The headers of libbpf, as its crate installed them for this build.
    let include = env::var("DEP_BPF_INCLUDE").expect("libbpf-sys says where its headers are");
    let object = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR")).join("pagetable.bpf.o");
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target's architecture");
    let status = Command::new(&clang)
        .args([
            "-target", "bpf", "-mcpu=v3", "-g", "-O2", "-Wall", "-Werror", "-c", SOURCE,
        ])
        .arg(format!("-I{include}"))
        // The BTF names source files: not by the folder of this build.
        .arg(format!("-fdebug-prefix-map={include}=/usr/include"))
        .arg("-fdebug-compilation-dir=.")
        // On Debian and its derivatives asm/types.h is in a folder named after the architecture.
        .arg(format!("-I/usr/include/{arch}-linux-gnu"))
        .arg("-o")
        .arg(&object)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} could not compile {SOURCE} ({status}); its message is above"),
        Err(error) => panic!("cannot run {clang}: {error}. Install clang (apt install clang), or set CLANG"),
    }
}
