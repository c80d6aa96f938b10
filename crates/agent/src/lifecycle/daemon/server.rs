//! The socket and its clients.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use serde_json::Value;
use thermo_kernel::unix_socket::{self, SocketPath};
use thermo_units::Nanos;

use super::DaemonError;
use super::requests::is_privileged;
use crate::lifecycle::connection::Connection;
use crate::lifecycle::wire;

/// The reason for clients that are replaced by others.
const TOO_MANY_CLIENTS: &str = "too many clients: close connections that are not used";
/// Maximum number of clients. One more disconnects the client that was silent longest.
const MAX_CLIENTS: usize = 64;
/// Maximum number of clients of one unprivileged user.
const MAX_CLIENTS_OF_USER: usize = 16;
/// Maximum number of connections accepted before requests are answered again.
const MAX_ACCEPTS: usize = 16;
/// Maximum bytes read from one client before the next client is read.
const READ_SIZE: usize = 16 << 10;

struct Client {
    stream: UnixStream,
    uid: u32,
    connection: Connection,
    /// Number of the round of [`Server::take_requests`] that returned a line of this client last.
    served: u64,
}

/// A line from a client.
pub(super) struct Line {
    pub(super) client: u64,
    pub(super) uid: u32,
    pub(super) text: Vec<u8>,
}

/// The socket. Dropping the server removes it.
pub(super) struct Server {
    listener: UnixListener,
    /// False after the kernel refused a connection: until the next round, the daemon does not wait for
    /// others.
    accepts: bool,
    /// A descriptor to close when the process has no other left. Without it, a client that waits to be
    /// accepted would keep the daemon awake, and would never learn the reason.
    reserve: Option<File>,
    path: PathBuf,
    /// Removes the socket.
    _socket: SocketPath,
    clients: BTreeMap<u64, Client>,
    next_id: u64,
    round: u64,
}

impl Server {
    /// Listens at `path`. Any local user may connect; requests are checked against the user of the
    /// connection.
    pub(super) fn listen(path: &Path) -> Result<Self, DaemonError> {
        let socket_error = |source| DaemonError::Socket {
            path: path.to_owned(),
            source,
        };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(socket_error)?;
        }
        let (listener, socket) = unix_socket::bind(path).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => DaemonError::AlreadyRunning(path.to_owned()),
            _ => socket_error(error),
        })?;
        listener.set_nonblocking(true).map_err(socket_error)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).map_err(socket_error)?;
        Ok(Self {
            listener,
            accepts: true,
            reserve: open_reserve(),
            path: path.to_owned(),
            _socket: socket,
            clients: BTreeMap::new(),
            next_id: 0,
            round: 0,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Accepts pending connections, at most [`MAX_ACCEPTS`].
    pub(super) fn accept(&mut self, now: Nanos) {
        self.accepts = true;
        self.reserve = self.reserve.take().or_else(open_reserve);
        for _ in 0..MAX_ACCEPTS {
            let accepted = match self.listener.accept() {
                Ok((stream, _)) => {
                    self.admit_peer(stream, now);
                    Ok(())
                }
                Err(error) if has_no_descriptor(&error) && self.reserve.is_some() => self.accept_last(now),
                Err(error) => Err(error),
            };
            match accepted {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The connection stays in the queue, or was given up by its client.
                Err(_) => {
                    self.accepts = false;
                    return;
                }
            }
        }
    }

    /// Accepts one connection with the reserved descriptor: a privileged client replaces another one, all
    /// others get the reason why they are disconnected. Fails if another process has taken the descriptor
    /// that was freed.
    fn accept_last(&mut self, now: Nanos) -> io::Result<()> {
        self.reserve = None;
        let accepted = self.listener.accept().map(|(stream, _)| {
            let privileged = peer_uid(&stream).is_some_and(is_privileged);
            let replaced = self.most_silent(|client| privileged && !is_privileged(client.uid));
            if let Some(mut client) = replaced.and_then(|id| self.clients.remove(&id)) {
                client.end(TOO_MANY_CLIENTS);
                self.admit_peer(stream, now);
            } else if stream.set_nonblocking(true).is_ok() {
                Client::new(stream, 0, now).end(
                    "the daemon can open no more files: try again later, or raise its limit with \
                     LimitNOFILE= in its unit (`ulimit -n`)",
                );
            }
        });
        self.reserve = open_reserve();
        accepted
    }

    fn admit_peer(&mut self, stream: UnixStream, now: Nanos) {
        if let Some(uid) = peer_uid(&stream)
            && stream.set_nonblocking(true).is_ok()
        {
            self.admit(stream, uid, now);
        }
    }

    /// Adds a client. Where there are too many, the one that was silent longest is disconnected: of its own
    /// user if that has too many, otherwise of the unprivileged users.
    fn admit(&mut self, stream: UnixStream, uid: u32, now: Nanos) {
        let privileged = is_privileged(uid);
        let client = Client::new(stream, uid, now);
        let of_user = self.clients.values().filter(|client| client.uid == uid).count();
        let excess = if !privileged && of_user >= MAX_CLIENTS_OF_USER {
            self.most_silent(|client| client.uid == uid)
        } else if self.clients.len() >= MAX_CLIENTS {
            self.most_silent(|client| !is_privileged(client.uid))
                .or_else(|| self.most_silent(|_| privileged))
                .or(Some(self.next_id))
        } else {
            None
        };
        self.clients.insert(self.next_id, client);
        self.next_id += 1;
        if let Some(mut client) = excess.and_then(|id| self.clients.remove(&id)) {
            client.end(TOO_MANY_CLIENTS);
        }
    }

    /// The client that was silent longest of those that satisfy `filter`.
    fn most_silent(&self, filter: impl Fn(&Client) -> bool) -> Option<u64> {
        let clients = self.clients.iter().filter(|(_, client)| filter(client));
        let most_silent = clients.min_by_key(|(_, client)| client.connection.last_line_at());
        most_silent.map(|(id, _)| *id)
    }

    /// Reads from the clients. Returns at most one line of each user, from the client that waits longest, so
    /// a user that floods the daemon delays others by one request.
    pub(super) fn take_requests(&mut self, now: Nanos) -> Vec<Line> {
        self.clients.retain(|_, client| client.read().is_ok());
        self.round += 1;
        let is_ready = |(_, client): &(&u64, &mut Client)| client.connection.is_ready();
        let mut ready: Vec<_> = self.clients.iter_mut().filter(is_ready).collect();
        ready.sort_by_key(|(_, client)| client.served);
        let (mut users, mut lines) = (BTreeSet::new(), Vec::new());
        for (id, client) in ready {
            if users.insert(client.uid) {
                client.served = self.round;
                let line = client.next_line(now);
                lines.extend(line.map(|text| Line {
                    client: *id,
                    uid: client.uid,
                    text,
                }));
            }
        }
        lines
    }

    /// True if [`Self::take_requests`] would return a line that was received already.
    pub(super) fn has_requests(&self) -> bool {
        self.clients.values().any(|client| client.connection.is_ready())
    }

    pub(super) fn answer(&mut self, client: u64, answer: &Value) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.connection.queue_line(&answer.to_string());
        }
    }

    /// Writes queued output without blocking, and disconnects finished clients.
    pub(super) fn write(&mut self) {
        self.clients
            .retain(|_, client| client.write().is_ok() && !client.connection.is_finished());
    }

    /// Disconnects clients that sent no request for `time`. One that does not read the reason either is
    /// dropped after the same time again.
    pub(super) fn disconnect_silent(&mut self, time: Nanos, now: Nanos) {
        let twice = Nanos(time.0.saturating_mul(2));
        self.clients
            .retain(|_, client| !(client.connection.is_closing() && client.connection.is_silent(twice, now)));
        for client in self.clients.values_mut() {
            if client.connection.is_silent(time, now) && !client.connection.is_closing() {
                client.disconnect_with_error(&format!(
                    "no request for {time}: connect again to send the next one"
                ));
            }
        }
        self.write();
    }

    /// The file descriptors to wait for, with their events.
    pub(super) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let clients = self.clients.values().map(|client| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, client.connection.wants_input());
            flags.set(PollFlags::OUT, client.connection.has_unsent());
            PollFd::from_borrowed_fd(client.stream.as_fd(), flags)
        });
        let listener = if self.accepts {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        std::iter::once(PollFd::new(&self.listener, listener)).chain(clients)
    }
}

impl Client {
    const fn new(stream: UnixStream, uid: u32, now: Nanos) -> Self {
        Self {
            stream,
            uid,
            connection: Connection::new(now),
            served: 0,
        }
    }

    /// Sends the reason for the end, as far as the socket takes it at once.
    fn end(&mut self, reason: &str) {
        self.disconnect_with_error(reason);
        // The client is gone after this, whether or not it gets the reason.
        let _ = self.write();
    }

    /// Reads once, if a line is missing. A client that ends its input still gets its answers.
    fn read(&mut self) -> io::Result<()> {
        if !self.connection.wants_input() {
            return Ok(());
        }
        let mut bytes = [0; READ_SIZE];
        match self.stream.read(&mut bytes) {
            Ok(0) => self.connection.close(),
            Ok(read) => self.connection.receive(bytes.get(..read).unwrap_or(&bytes)),
            Err(error) if is_retryable(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn next_line(&mut self, now: Nanos) -> Option<Vec<u8>> {
        self.connection.next_line(now).unwrap_or_else(|_| {
            self.disconnect_with_error(&format!(
                "the request is longer than {} bytes: send a shorter line",
                wire::MAX_LINE
            ));
            None
        })
    }

    fn disconnect_with_error(&mut self, reason: &str) {
        self.connection
            .queue_line(&wire::error_answer(reason).to_string());
        self.connection.close();
    }

    fn write(&mut self) -> io::Result<()> {
        while self.connection.has_unsent() {
            match self.stream.write(self.connection.unsent()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.connection.mark_sent(written),
                Err(error) if is_retryable(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn is_retryable(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// The user of the process at the other end.
fn peer_uid(stream: &UnixStream) -> Option<u32> {
    let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
    Some(peer.uid.as_raw())
}

fn open_reserve() -> Option<File> {
    File::open("/dev/null").ok()
}

/// Whether the process (`EMFILE`) or the system (`ENFILE`) has no descriptor left.
fn has_no_descriptor(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]
    use std::io::{BufRead as _, BufReader};
    use std::os::fd::AsRawFd as _;

    use rustix::event::Timespec;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    const NOBODY: u32 = 65534;

    fn server() -> (tempfile::TempDir, Server) {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::listen(&folder.path().join("s")).unwrap();
        (folder, server)
    }

    /// Connects a client of user `uid`. Returns its end of the connection.
    fn connect(server: &mut Server, uid: u32, at: u64) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        server.admit(ours, uid, Nanos::secs(at));
        theirs
    }

    fn clients_of(server: &Server, uid: u32) -> usize {
        server.clients.values().filter(|client| client.uid == uid).count()
    }

    #[test]
    fn strangers_cannot_evict_root() {
        let (_folder, mut server) = server();
        let _root = connect(&mut server, 0, 0);
        let first = connect(&mut server, NOBODY, 1);
        let strangers: Vec<UnixStream> = (2..70).map(|at| connect(&mut server, NOBODY, at)).collect();
        assert_eq!((clients_of(&server, 0), clients_of(&server, NOBODY)), (1, 16));
        let mut reason = String::new();
        BufReader::new(first).read_line(&mut reason).unwrap();
        assert!(reason.contains("too many clients"), "{reason}");
        // Many users together are limited, too.
        let others: Vec<UnixStream> = (0..70).map(|n| connect(&mut server, 2000 + n, 100)).collect();
        assert_eq!((clients_of(&server, 0), server.clients.len()), (1, MAX_CLIENTS));
        let more: Vec<UnixStream> = (0..70).map(|at| connect(&mut server, 0, 200 + at)).collect();
        assert_eq!(clients_of(&server, 0), MAX_CLIENTS);
        let _late = connect(&mut server, NOBODY, 300);
        assert_eq!(clients_of(&server, 0), MAX_CLIENTS);
        drop((strangers, others, more));
    }

    const IN_CHILD: &str = "THERMO_TEST_DESCRIPTORS";

    fn first_line(stream: UnixStream) -> String {
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line
    }

    /// Uses up all descriptors of this process.
    fn take_all_descriptors() -> Vec<File> {
        let highest = File::open("/dev/null").unwrap();
        let limit = u64::try_from(highest.as_raw_fd()).unwrap() + 1;
        let limit = Rlimit {
            current: Some(limit),
            ..getrlimit(Resource::Nofile)
        };
        setrlimit(Resource::Nofile, limit).unwrap();
        let mut all: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        all.push(highest);
        all
    }

    /// Runs a test of this program again in a process of its own, because the limit belongs to a process.
    fn run_in_child(test: &str) {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(IN_CHILD, "1")
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && output.contains("1 passed"), "{output}");
    }

    #[test]
    fn clients_are_answered_when_no_descriptor_is_left() {
        if std::env::var_os(IN_CHILD).is_none() {
            return run_in_child(
                "lifecycle::daemon::server::tests::clients_are_answered_when_no_descriptor_is_left",
            );
        }
        let (folder, mut server) = server();
        let stranger = connect(&mut server, NOBODY, 0);
        let path = folder.path().join("s");
        let own = [(); 3].map(|()| UnixStream::connect(&path).unwrap());
        let is_awake = |server: &Server| {
            let mut fds: Vec<PollFd> = server.poll_fds().collect();
            rustix::event::poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
        };
        let all = take_all_descriptors();
        assert!(is_awake(&server));
        server.accept(Nanos::ZERO);
        // This user is privileged, so the first of its clients replaces the stranger.
        let [_served, second, third] = own;
        assert_eq!((clients_of(&server, NOBODY), server.clients.len()), (0, 1));
        assert!(first_line(stranger).contains("too many clients"));
        for client in [second, third] {
            let reason = first_line(client);
            assert!(reason.contains("LimitNOFILE"), "{reason}");
        }
        assert!(!is_awake(&server));
        // Without a reserve, the connection waits, and the daemon sleeps meanwhile.
        server.reserve = None;
        let mut freed: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        drop(freed.pop());
        let _late = UnixStream::connect(&path).unwrap();
        assert!(is_awake(&server));
        server.accept(Nanos::ZERO);
        assert!(!is_awake(&server));
        drop((all, freed));
        server.accept(Nanos::ZERO);
        assert!(server.reserve.is_some() && !is_awake(&server));
    }

    #[test]
    fn round_ends_where_the_reserve_does_not_help() {
        if std::env::var_os(IN_CHILD).is_none() {
            return run_in_child(
                "lifecycle::daemon::server::tests::round_ends_where_the_reserve_does_not_help",
            );
        }
        let (_folder, mut server) = server();
        let all = take_all_descriptors();
        // Like a descriptor that another process took: no connection can be accepted, whatever is freed. A
        // socket that does not block would say that none waits.
        server.listener.set_nonblocking(false).unwrap();
        rustix::net::shutdown(&server.listener, rustix::net::Shutdown::Both).unwrap();
        server.accept(Nanos::ZERO);
        assert!(!server.accepts && server.reserve.is_some());
        drop(all);
    }

    #[test]
    fn connections_are_accepted_in_rounds() {
        let (folder, mut server) = server();
        let connect = |_| UnixStream::connect(folder.path().join("s")).unwrap();
        let clients: Vec<UnixStream> = (0..20).map(connect).collect();
        server.accept(Nanos::ZERO);
        assert_eq!(server.clients.len(), MAX_ACCEPTS);
        server.accept(Nanos::ZERO);
        assert_eq!(server.clients.len(), clients.len());
    }

    #[test]
    fn users_take_turns_and_so_do_their_clients() {
        let (_folder, mut server) = server();
        let mut flood = [connect(&mut server, NOBODY, 0), connect(&mut server, NOBODY, 0)];
        for (client, line) in flood.iter_mut().zip(["a\n", "b\n"]) {
            client.write_all(line.repeat(100).as_bytes()).unwrap();
        }
        let mut root = connect(&mut server, 0, 0);
        root.write_all(b"r\n").unwrap();
        let mut round = || {
            let lines = server.take_requests(Nanos::ZERO).into_iter();
            let mut texts: Vec<Vec<u8>> = lines.map(|line| line.text).collect();
            texts.sort();
            texts
        };
        assert_eq!(round(), [b"a", b"r"]);
        assert_eq!(
            (round(), round(), round()),
            (vec![b"b".to_vec()], vec![b"a".to_vec()], vec![b"b".to_vec()])
        );
        assert!(server.has_requests());
    }

    #[test]
    fn client_that_reads_no_answers_is_held_back_then_dropped() {
        let (_folder, mut server) = server();
        let mut client = connect(&mut server, NOBODY, 0);
        client.write_all(&b"x\n".repeat(10_000)).unwrap();
        let answer = Value::String("y".repeat(4000));
        let mut answered = 0;
        while let [line] = &server.take_requests(Nanos::ZERO)[..] {
            server.answer(line.client, &answer);
            server.write();
            answered += 1;
        }
        // What the socket takes, and 64 KiB.
        assert!((16..1000).contains(&answered), "{answered}");
        assert!(!server.has_requests());
        server.disconnect_silent(Nanos::secs(30), Nanos::secs(30));
        assert_eq!(server.clients.len(), 1);
        server.disconnect_silent(Nanos::secs(30), Nanos::secs(60));
        assert_eq!(server.clients.len(), 0);
    }

    #[test]
    fn client_that_ends_its_input_gets_all_answers() {
        let (_folder, mut server) = server();
        let mut client = connect(&mut server, NOBODY, 0);
        client.write_all(b"x\nx\n").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        for _ in 0..3 {
            for line in server.take_requests(Nanos::ZERO) {
                server.answer(line.client, &Value::Null);
            }
            server.write();
        }
        let mut answers = String::new();
        client.read_to_string(&mut answers).unwrap();
        assert_eq!(answers, "null\nnull\n");
    }
}
