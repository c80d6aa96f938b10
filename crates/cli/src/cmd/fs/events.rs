//! Serves the events of the engine on a socket, to any number of clients.

use std::io::{self, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use thermo_damonfs::Trace;

/// Pause after an error of the kernel that may pass.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Serves the events of `trace` at `socket` until the process ends.
pub fn serve(socket: &Path, trace: &Arc<Trace>) -> io::Result<()> {
    let (listener, trace) = (UnixListener::bind(socket)?, Arc::clone(trace));
    thread::Builder::new().name("events".to_owned()).spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Most likely out of descriptors: the connection stays in the queue until one is closed.
                thread::sleep(RETRY_INTERVAL);
                continue;
            };
            let events = trace.listen();
            drop(
                thread::Builder::new()
                    .name("events".to_owned())
                    .spawn(move || send_events(stream, &events)),
            );
        }
    })?;
    Ok(())
}

/// Sends events until the client disconnects.
fn send_events(mut stream: UnixStream, events: &Receiver<Arc<str>>) {
    // A line end: from now on no event is lost.
    let mut sent = stream.write_all(b"\n");
    while sent.is_ok() {
        let Ok(text) = events.recv() else { return };
        sent = stream.write_all(text.as_bytes());
    }
}
