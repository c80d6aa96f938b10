//! Serves a file at a Unix socket until Enter is typed.
//!
//!     cargo run -p thermo-nbd --example serve -- disk.img /tmp/nbd.sock
//!     nbdinfo 'nbd+unix:///?socket=/tmp/nbd.sock'

use std::path::Path;

use thermo_nbd::{Export, Limits, Listen, Server, Sockets};
use thermo_pool::{Pools, PressureMonitor, ReclaimBus, Settings, source};
use thermo_units::Bytes;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [file, socket] = &args[..] else {
        return Err("usage: serve FILE SOCKET".into());
    };
    let pools = Pools::new(Bytes::mib(64), Settings::default());
    let bus = ReclaimBus::default();
    let _registration = pools.register_on(&bus, 0);
    let choice = source::choose(Path::new("/"), |name| std::env::var(name).ok());
    eprintln!("pressure: {:#?}", choice.reasons);
    let _monitor = PressureMonitor::start(&pools, &bus, choice.sources)?;

    // The empty name: the export for clients that request no name.
    let exports = vec![Export::open("", Path::new(file), false)?];
    let sockets = Sockets::open(vec![Listen::Unix(socket.into())])?;
    let server = Server::start(exports, sockets, &pools, Limits::default(), None)?;
    std::io::stdin().read_line(&mut String::new())?;
    eprintln!("{:?}; {:?}", server.status(), pools.usage());
    Ok(())
}
