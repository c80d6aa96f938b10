//! A virtual machine at its disk: the messages and queues of vhost-user, from the machine's side.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use thermo_nbd::{CHUNK, Export, Limits, Listen, Server, ServerError};
use thermo_pool::{Pools, Settings};
use thermo_units::Bytes;
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend as _};
use vhost::{VhostBackend as _, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes as _, FileOffset, GuestAddress, GuestMemoryBackend as _, GuestMemoryMmap};
use vmm_sys_util::eventfd::EventFd;

const PATIENCE: Duration = Duration::from_secs(60);
/// Memory of the machine, the parts of its queue in it, and where a request's parts are.
const MEMORY: usize = 8 << 20;
const DESCRIPTORS: u64 = 0;
const AVAIL: u64 = 0x1000;
const USED: u64 = 0x2000;
const QUEUE: u16 = 16;
const HEAD: u64 = 0x3000;
const STATUS: u64 = 0x4000;
const DATA: u64 = 1 << 20;

const SIZE: usize = 2 << 20;
/// Kinds of requests, and answers.
const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 4;
const OK: u8 = 0;
const IOERR: u8 = 1;
const UNSUPP: u8 = 2;

struct Machine {
    frontend: Frontend,
    memory: GuestMemoryMmap,
    kick: EventFd,
    asked: u16,
}

impl Machine {
    fn connect(socket: &Path) -> Self {
        let mut frontend = Frontend::connect(socket, 1).unwrap();
        frontend.set_owner().unwrap();
        let features = frontend.get_features().unwrap();
        let protocol = frontend.get_protocol_features().unwrap();
        assert!(protocol.contains(VhostUserProtocolFeatures::CONFIG | VhostUserProtocolFeatures::REPLY_ACK));
        frontend.set_protocol_features(protocol).unwrap();
        // From here on every message is answered, so what was refused is seen.
        frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        // All but notifications by index: every answer is then told of.
        frontend.set_features(features & !(1 << 29)).unwrap();
        let file = File::from(memfd_create("machine", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(MEMORY as u64).unwrap();
        let offset = Some(FileOffset::new(file, 0));
        let memory = GuestMemoryMmap::from_ranges_with_files([(GuestAddress(0), MEMORY, offset)]).unwrap();
        let base = memory.get_host_address(GuestAddress(0)).unwrap() as u64;
        let region = VhostUserMemoryRegionInfo::from_guest_region(memory.iter().next().unwrap()).unwrap();
        frontend.set_mem_table(&[region]).unwrap();
        let kick = EventFd::new(0).unwrap();
        frontend.set_vring_num(0, QUEUE).unwrap();
        frontend.set_vring_base(0, 0).unwrap();
        let rings = VringConfigData {
            queue_max_size: QUEUE,
            queue_size: QUEUE,
            flags: 0,
            desc_table_addr: base + DESCRIPTORS,
            used_ring_addr: base + USED,
            avail_ring_addr: base + AVAIL,
            log_addr: None,
        };
        frontend.set_vring_addr(0, &rings).unwrap();
        frontend.set_vring_call(0, &EventFd::new(0).unwrap()).unwrap();
        frontend.set_vring_kick(0, &kick).unwrap();
        frontend.set_vring_enable(0, true).unwrap();
        Self {
            frontend,
            memory,
            kick,
            asked: 0,
        }
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(at)).unwrap();
    }

    fn get(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_slice(&mut bytes, GuestAddress(at)).unwrap();
        bytes
    }

    // Puts a chain of parts (address, length, ours) into the queue without telling anybody.
    fn queue(&mut self, parts: &[(u64, u32, bool)]) {
        for (at, &(addr, len, ours)) in parts.iter().enumerate() {
            let more = u16::from(at + 1 < parts.len());
            let next = at as u16 + 1;
            let bytes = [
                &addr.to_le_bytes()[..],
                &len.to_le_bytes(),
                &(more | u16::from(ours) << 1).to_le_bytes(),
                &next.to_le_bytes(),
            ];
            self.put(DESCRIPTORS + 16 * at as u64, &bytes.concat());
        }
        self.put(
            AVAIL + 4 + 2 * u64::from(self.asked % QUEUE),
            &0_u16.to_le_bytes(),
        );
        self.asked += 1;
        self.put(AVAIL + 2, &self.asked.to_le_bytes());
    }

    // Tells of what is queued, and waits until it is done.
    fn wait(&self) {
        self.kick.write(1).unwrap();
        let begin = Instant::now();
        while self.get(USED + 2, 2) != self.asked.to_le_bytes() {
            assert!(begin.elapsed() < PATIENCE, "the request is not answered");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn head(&self, kind: u32, sector: u64) {
        let head = [&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()];
        self.put(HEAD, &head.concat());
        self.put(STATUS, &[0xee]);
    }

    fn ask(&mut self, kind: u32, sector: u64, data: &[(u64, u32, bool)]) -> u8 {
        self.head(kind, sector);
        let parts = [&[(HEAD, 16, false)], data, &[(STATUS, 1, true)]].concat();
        self.queue(&parts);
        self.wait();
        self.get(STATUS, 1)[0]
    }
}

struct House {
    dir: tempfile::TempDir,
    pools: Pools,
    server: Server,
}

fn house() -> House {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("disk"), vec![0; SIZE]).unwrap();
    let pools = Pools::new(Bytes::mib(1), Settings::default());
    let listen = vec![Listen::VhostUser {
        path: dir.path().join("socket"),
        export: "disk".to_owned(),
    }];
    let exports = vec![Export::open("disk", &dir.path().join("disk"), false).unwrap()];
    let server = Server::start(exports, listen, &pools, Limits::default(), None).unwrap();
    House { dir, pools, server }
}

impl House {
    fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    fn wait_until(&self, what: &str, is: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !is(self) {
            assert!(begin.elapsed() < PATIENCE, "{what} does not come to pass");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_machine_finds_its_disk_and_the_next_one_what_it_wrote() {
    let house = house();
    let mut first = Machine::connect(&house.socket());
    house.wait_until("a machine", |house| house.server.status().machines == 1);
    let flags = VhostUserConfigFlags::empty();
    let (_, space) = first.frontend.get_config(0, 60, flags, &[0; 60]).unwrap();
    assert_eq!(space[..8], (SIZE as u64 / 512).to_le_bytes());

    let bytes: Vec<u8> = (0..1 << 20).map(|at| (at % 253) as u8).collect();
    first.put(DATA, &bytes);
    let len = u32::try_from(bytes.len()).unwrap();
    assert_eq!(first.ask(WRITE, 8, &[(DATA, len, false)]), OK);
    assert_eq!(first.ask(FLUSH, 0, &[]), OK);
    assert!(std::fs::read(house.dir.path().join("disk")).unwrap()[4096..4096 + bytes.len()] == bytes);
    drop(first);
    house.wait_until("its leave", |house| house.server.status().machines == 0);

    let mut second = Machine::connect(&house.socket());
    assert_eq!(
        second.ask(
            READ,
            8,
            &[(DATA, 999_936, true), (DATA + 999_936, len - 999_936, true)]
        ),
        OK
    );
    assert!(second.get(DATA, bytes.len()) == bytes);
    let status = house.server.status();
    assert_eq!(
        (status.requests, status.written, status.broken),
        (3, Bytes::mib(1), 0),
        "{status:?}"
    );
    assert!(
        house.pools.usage().peak <= Bytes::mib(1),
        "{:?}",
        house.pools.usage()
    );
    house.pools.report_pressure();
    house.wait_until("an empty pool", |house| house.pools.usage().used == Bytes::ZERO);
}

#[test]
fn what_a_machine_gets_wrong_is_answered_and_it_goes_on() {
    let house = house();
    let mut machine = Machine::connect(&house.socket());
    assert_eq!(machine.ask(99, 0, &[]), UNSUPP);
    assert_eq!(machine.ask(READ, SIZE as u64, &[(DATA, 512, true)]), IOERR);
    assert_eq!(machine.ask(WRITE, 0, &[(1 << 40, 512, false)]), IOERR);
    // Nothing that could be answered: it is given back.
    machine.queue(&[(HEAD, 16, false)]);
    machine.wait();
    assert_eq!(machine.ask(READ, 0, &[(DATA, 512, true)]), OK);
    // More requests than the queue has places: it is not used any more, the server is.
    machine.put(AVAIL + 2, &(machine.asked + 2 * QUEUE).to_le_bytes());
    machine.kick.write(1).unwrap();
    house.wait_until("a word about it", |house| {
        house.server.status().last_error.is_some()
    });
    drop(machine);
    assert_eq!(
        Machine::connect(&house.socket()).ask(READ, 0, &[(DATA, 512, true)]),
        OK
    );
    assert!(house.pools.usage().peak <= Bytes(2 * CHUNK as u64));
}

#[test]
fn a_used_up_budget_keeps_no_machine_from_its_disk() {
    let house = house();
    let hog = house.pools.open("hog", Bytes(CHUNK as u64)).unwrap();
    let held: Vec<_> = std::iter::from_fn(|| hog.try_acquire(CHUNK).ok()).collect();
    assert!(!held.is_empty());
    let mut machine = Machine::connect(&house.socket());
    assert_eq!(machine.ask(READ, 0, &[(DATA, 1 << 20, true)]), OK);
    assert_eq!(machine.ask(WRITE, 0, &[(DATA, 1 << 20, false)]), OK);
    assert!(
        house.pools.usage().peak <= Bytes::mib(1),
        "{:?}",
        house.pools.usage()
    );
}

#[test]
fn messages_that_are_none_end_a_machine_and_nothing_else() {
    use std::io::{Read as _, Write as _};
    let house = house();
    for garbage in [&[0xff; 4096][..], b"GET / HTTP/1.0\r\n\r\n", &[0; 3], &[]] {
        let mut stream = std::os::unix::net::UnixStream::connect(house.socket()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // It may hang up before all is sent, or answer with a reset.
        let _ = stream.write_all(garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(Machine::connect(&house.socket()).ask(FLUSH, 0, &[]), OK);
}

#[test]
fn a_server_that_ends_with_a_machine_connected_begins_nothing_more() {
    let house = house();
    let mut machine = Machine::connect(&house.socket());
    assert_eq!(machine.ask(FLUSH, 0, &[]), OK);
    house.wait_until("a machine", |house| house.server.status().machines == 1);
    let House {
        dir,
        pools: _,
        server,
    } = house;
    drop(server);
    assert!(!dir.path().join("socket").exists());
    machine.head(FLUSH, 0);
    machine.queue(&[(HEAD, 16, false), (STATUS, 1, true)]);
    machine.kick.write(1).unwrap();
    // What it would take next from the queue.
    assert_eq!(machine.frontend.get_vring_base(0).unwrap(), 1);
    assert_eq!(machine.get(USED + 2, 2), 1_u16.to_le_bytes());
}

#[test]
fn a_disk_that_is_not_there_is_said_with_what_is() {
    let dir = tempfile::tempdir().unwrap();
    let pools = Pools::new(Bytes::mib(1), Settings::default());
    let listen = vec![Listen::VhostUser {
        path: dir.path().join("socket"),
        export: "dsik".to_owned(),
    }];
    let exports = vec![Export::memory("disk", Bytes::mib(1), false).unwrap()];
    let error = Server::start(exports, listen, &pools, Limits::default(), None).unwrap_err();
    assert!(matches!(error, ServerError::NoExport { .. }));
    let told = error.to_string();
    assert!(
        told.contains("\"dsik\"") && told.ends_with("There is disk"),
        "{told}"
    );
    assert!(!dir.path().join("socket").exists());
}
