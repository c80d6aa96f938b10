//! An echo server: a pool for each connection, one budget for all, and free buffers released under memory
//! pressure.
//!
//!     cargo run -p thermo-pool --example echo_server -- 127.0.0.1:7777
//!
//! Connect with `nc 127.0.0.1 7777`. Press Enter here to report pressure and print the pool statistics.

use std::error::Error;
use std::io::{BufRead as _, Read as _, Write as _, stdin};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use thermo_pool::{Pool, Pools, PressureMonitor, ReclaimBus, Settings, source};
use thermo_units::Bytes;

const CHUNK: usize = 256 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let addr = std::env::args().nth(1).unwrap_or("127.0.0.1:7777".into());
    let pools = Pools::new(Bytes::mib(64), Settings::default());
    let bus = ReclaimBus::default();
    let _registration = pools.register_on(&bus, 0);
    let choice = source::choose(Path::new("/"), |name| std::env::var(name).ok());
    eprintln!("pressure: {:#?}", choice.reasons);
    let _monitor = PressureMonitor::start(&pools, &bus, choice.sources)?;

    let (listener, clients) = (TcpListener::bind(&addr)?, pools.clone());
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().flatten().enumerate() {
            // Admission control: once the budget is reserved, new connections are closed.
            match clients.open(&number.to_string(), Bytes(CHUNK as u64)) {
                Ok(pool) => drop(std::thread::spawn(move || echo(&pool, stream))),
                Err(error) => eprintln!("{error}"),
            }
        }
    });
    for _enter in stdin().lock().lines() {
        let summary = bus.report_pressure("Enter was pressed");
        eprintln!("{} released; {:?}", summary.freed, pools.usage());
        eprint!("{}", pools.prometheus());
    }
    Ok(())
}

fn echo(pool: &Pool, mut stream: TcpStream) -> Result<(), Box<dyn Error + Send + Sync>> {
    let cache = pool.cache();
    loop {
        // Holds a buffer only while processing a request, not while waiting for one.
        stream.peek(&mut [0])?;
        let mut buffer = cache.acquire(CHUNK)?;
        let len = stream.read(&mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..len])?;
        drop(buffer);
        cache.end_batch();
    }
}
