//! Gives the library its name for the dynamic linker. The number is that of the interface: it changes when
//! programs have to be compiled again.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libthermo.so.1");
}
