//! A load generator that sends requests in batches, for benchmarks. `fio` and libnbd spend so much time per
//! request that on one connection they hide the speed of the server.
//!
//! `nbd_load SOCKET EXPORTS CONNECTIONS DEPTH BLOCK read|write SECONDS [hold SECONDS]`: EXPORTS is a
//! comma-separated list of names, used in turn. Prints one line: requests, seconds, errors. With `hold`,
//! prints `holding` and keeps the connections open for that time.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const REPLY: usize = 16;

#[derive(Clone)]
struct Load {
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
        // xorshift: good enough for access patterns.
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % (self.size / block) * block
    }

    fn send_requests(&mut self, load: &Load, count: u64) -> io::Result<()> {
        let mut bytes = Vec::new();
        for _ in 0..count {
            let offset = self.next_offset(load.block as u64);
            bytes.extend(0x2560_9513_u32.to_be_bytes());
            bytes.extend([0, 0, 0, u8::from(load.writes)]);
            bytes.extend(7_u64.to_be_bytes());
            bytes.extend(offset.to_be_bytes());
            bytes.extend(u32::try_from(load.block).unwrap_or_default().to_be_bytes());
            if load.writes {
                bytes.resize(bytes.len() + load.block, 0x5a);
            }
        }
        self.stream.write_all(&bytes)
    }

    // Sends one request for each reply until the time is over; then receives the outstanding replies.
    fn run(&mut self, load: &Load, begin: Instant) -> io::Result<(u64, u64)> {
        let reply_len = REPLY + if load.writes { 0 } else { load.block };
        let mut buffer = vec![0; (reply_len * 2).max(256 << 10)];
        let (mut filled, mut done, mut errors, mut outstanding) = (0, 0, 0, load.depth);
        self.send_requests(load, load.depth)?;
        while outstanding > 0 {
            match self.stream.read(&mut buffer[filled..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => filled += count,
            }
            let mut at = 0;
            let mut received = 0;
            while filled - at >= REPLY {
                let failed = buffer[at + 4..at + 8] != [0; 4];
                let len = if failed { REPLY } else { reply_len };
                if filled - at < len {
                    break;
                }
                errors += u64::from(failed);
                at += len;
                received += 1;
            }
            buffer.copy_within(at..filled, 0);
            filled -= at;
            done += received;
            outstanding -= received;
            if received > 0 && begin.elapsed() < load.time {
                self.send_requests(load, received)?;
                outstanding += received;
            }
        }
        Ok((done, errors))
    }
}

/// Shared by the threads of all connections: counters, and barriers for start and end.
struct Shared {
    done: AtomicU64,
    errors: AtomicU64,
    ready: Barrier,
    finished: Barrier,
}

impl Shared {
    // Runs one connection from opening to closing.
    fn run_connection(&self, number: usize, socket: &str, export: &str, load: &Load) {
        let opened = Connection::open(socket, export, 0x9e37_79b9 + number as u64 * 7919);
        self.ready.wait();
        let mut open_connection = None;
        match opened.and_then(|mut one| one.run(load, Instant::now()).map(|counts| (counts, one))) {
            Ok(((requests, failed), one)) => {
                self.done.fetch_add(requests, Ordering::Relaxed);
                self.errors.fetch_add(failed, Ordering::Relaxed);
                open_connection = Some(one);
            }
            Err(error) => {
                self.errors.fetch_add(1, Ordering::Relaxed);
                eprintln!("connection {number}: {error}");
            }
        }
        self.finished.wait();
        self.finished.wait();
        drop(open_connection);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [
        socket,
        exports,
        connections,
        depth,
        block,
        mode,
        seconds,
        rest @ ..,
    ] = &args[..]
    else {
        return Err(
            "nbd_load SOCKET EXPORTS CONNECTIONS DEPTH BLOCK read|write SECONDS [hold SECONDS]".into(),
        );
    };
    let load = Load {
        depth: depth.parse()?,
        block: block.parse()?,
        writes: mode == "write",
        time: Duration::from_secs_f64(seconds.parse()?),
    };
    let exports: Vec<&str> = exports.split(',').collect();
    let connections: usize = connections.parse()?;
    let shared = Arc::new(Shared {
        done: AtomicU64::new(0),
        errors: AtomicU64::new(0),
        ready: Barrier::new(connections + 1),
        finished: Barrier::new(connections + 1),
    });
    let mut threads = Vec::new();
    for number in 0..connections {
        let (socket, export) = (socket.clone(), exports[number % exports.len()].to_owned());
        let (load, shared) = (load.clone(), Arc::clone(&shared));
        threads.push(std::thread::spawn(move || {
            shared.run_connection(number, &socket, &export, &load);
        }));
    }
    shared.ready.wait();
    let begin = Instant::now();
    shared.finished.wait();
    let (seconds, requests) = (begin.elapsed().as_secs_f64(), shared.done.load(Ordering::Relaxed));
    println!(
        "{requests} {seconds:.3} {}",
        shared.errors.load(Ordering::Relaxed)
    );
    if let [_, hold] = rest {
        println!("holding");
        std::thread::sleep(Duration::from_secs_f64(hold.parse()?));
    }
    shared.finished.wait();
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked")?;
    }
    Ok(())
}
