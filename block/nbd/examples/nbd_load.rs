//! A client that asks in batches, for benchmarks: `fio` and libnbd spend so much per request that on one connection
//! they hide what a server can do.
//!
//! `nbd_load SOCKET EXPORTS CONNECTIONS DEPTH BLOCK read|write SECONDS [hold SECONDS]`: EXPORTS are names with commas
//! between, used in turn. Prints one line: requests, seconds, errors. With `hold`, connections stay open so long
//! afterwards, after a line `holding`.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const REPLY: usize = 16;

#[derive(Clone)]
struct Plan {
    depth: u64,
    block: usize,
    writes: bool,
    time: Duration,
}

struct Connection {
    stream: UnixStream,
    size: u64,
    seed: u64,
}

impl Connection {
    fn open(socket: &str, export: &str, seed: u64) -> io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        let mut hello = 3_u32.to_be_bytes().to_vec();
        hello.extend(b"IHAVEOPT\0\0\0\x01");
        hello.extend(u32::try_from(export.len()).unwrap_or_default().to_be_bytes());
        hello.extend(export.as_bytes());
        stream.write_all(&hello)?;
        let mut size = [0; 8];
        stream.read_exact(&mut size)?;
        stream.read_exact(&mut [0; 2])?;
        let size = u64::from_be_bytes(size);
        Ok(Self { stream, size, seed })
    }

    fn next_offset(&mut self, block: u64) -> u64 {
        // xorshift: only has to look random.
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % (self.size / block) * block
    }

    fn ask(&mut self, plan: &Plan, count: u64) -> io::Result<()> {
        let mut bytes = Vec::new();
        for _ in 0..count {
            let offset = self.next_offset(plan.block as u64);
            bytes.extend(0x2560_9513_u32.to_be_bytes());
            bytes.extend([0, 0, 0, u8::from(plan.writes)]);
            bytes.extend(7_u64.to_be_bytes());
            bytes.extend(offset.to_be_bytes());
            bytes.extend(u32::try_from(plan.block).unwrap_or_default().to_be_bytes());
            if plan.writes {
                bytes.resize(bytes.len() + plan.block, 0x5a);
            }
        }
        self.stream.write_all(&bytes)
    }

    // Asks as many as were answered, until the time is over; then takes what is outstanding.
    fn run(&mut self, plan: &Plan, begin: Instant) -> io::Result<(u64, u64)> {
        let answer = REPLY + if plan.writes { 0 } else { plan.block };
        let mut buffer = vec![0; (answer * 2).max(256 << 10)];
        let (mut filled, mut done, mut errors, mut outstanding) = (0, 0, 0, plan.depth);
        self.ask(plan, plan.depth)?;
        while outstanding > 0 {
            match self.stream.read(&mut buffer[filled..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => filled += count,
            }
            let mut at = 0;
            let mut now = 0;
            while filled - at >= REPLY {
                let failed = buffer[at + 4..at + 8] != [0; 4];
                let len = if failed { REPLY } else { answer };
                if filled - at < len {
                    break;
                }
                errors += u64::from(failed);
                at += len;
                now += 1;
            }
            buffer.copy_within(at..filled, 0);
            filled -= at;
            done += now;
            outstanding -= now;
            if now > 0 && begin.elapsed() < plan.time {
                self.ask(plan, now)?;
                outstanding += now;
            }
        }
        Ok((done, errors))
    }
}

/// What the threads of all connections share: what was answered, and the moments they wait for each other at.
struct Together {
    done: AtomicU64,
    errors: AtomicU64,
    ready: Barrier,
    over: Barrier,
}

impl Together {
    // One connection from its opening until all may close.
    fn load(&self, number: usize, socket: &str, export: &str, plan: &Plan) {
        let opened = Connection::open(socket, export, 0x9e37_79b9 + number as u64 * 7919);
        self.ready.wait();
        let mut keep = None;
        match opened.and_then(|mut one| one.run(plan, Instant::now()).map(|counts| (counts, one))) {
            Ok(((requests, failed), one)) => {
                self.done.fetch_add(requests, Ordering::Relaxed);
                self.errors.fetch_add(failed, Ordering::Relaxed);
                keep = Some(one);
            }
            Err(error) => {
                self.errors.fetch_add(1, Ordering::Relaxed);
                eprintln!("connection {number}: {error}");
            }
        }
        self.over.wait();
        self.over.wait();
        drop(keep);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [
        socket,
        exports,
        connections,
        depth,
        block,
        mode,
        seconds,
        rest @ ..,
    ] = &words[..]
    else {
        return Err(
            "nbd_load SOCKET EXPORTS CONNECTIONS DEPTH BLOCK read|write SECONDS [hold SECONDS]".into(),
        );
    };
    let plan = Plan {
        depth: depth.parse()?,
        block: block.parse()?,
        writes: mode == "write",
        time: Duration::from_secs_f64(seconds.parse()?),
    };
    let exports: Vec<&str> = exports.split(',').collect();
    let connections: usize = connections.parse()?;
    let together = Arc::new(Together {
        done: AtomicU64::new(0),
        errors: AtomicU64::new(0),
        ready: Barrier::new(connections + 1),
        over: Barrier::new(connections + 1),
    });
    let mut threads = Vec::new();
    for number in 0..connections {
        let (socket, export) = (socket.clone(), exports[number % exports.len()].to_owned());
        let (plan, together) = (plan.clone(), Arc::clone(&together));
        threads.push(std::thread::spawn(move || {
            together.load(number, &socket, &export, &plan);
        }));
    }
    together.ready.wait();
    let begin = Instant::now();
    together.over.wait();
    let (seconds, requests) = (
        begin.elapsed().as_secs_f64(),
        together.done.load(Ordering::Relaxed),
    );
    println!(
        "{requests} {seconds:.3} {}",
        together.errors.load(Ordering::Relaxed)
    );
    if let [_, hold] = rest {
        println!("holding");
        std::thread::sleep(Duration::from_secs_f64(hold.parse()?));
    }
    together.over.wait();
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked")?;
    }
    Ok(())
}
