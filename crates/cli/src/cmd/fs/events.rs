//! Events of the engine over a socket, to as many as connect.

use std::io::{self, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;

use thermo_damonfs::Trace;

/// Serves the events of `trace` at `socket` for as long as the process lives.
pub fn serve(socket: &Path, trace: &Arc<Trace>) -> io::Result<()> {
    let (listener, trace) = (UnixListener::bind(socket)?, Arc::clone(trace));
    thread::Builder::new().name("events".to_owned()).spawn(move || {
        // One that went before it was served is no reason to end.
        for stream in listener.incoming().filter_map(Result::ok) {
            let events = trace.listen();
            drop(
                thread::Builder::new()
                    .name("events".to_owned())
                    .spawn(move || tell(stream, &events)),
            );
        }
    })?;
    Ok(())
}

/// Until nobody listens any more.
fn tell(mut stream: UnixStream, events: &Receiver<Arc<str>>) {
    // Says that from now on nothing is missed.
    let mut told = stream.write_all(b"\n");
    while told.is_ok() {
        let Ok(text) = events.recv() else { return };
        told = stream.write_all(text.as_bytes());
    }
}
