//! Entries for the fuzz targets: what a client reaches only through the socket.

use thermo_units::Nanos;

use super::connection::Connection;

/// The lines of a client that sends `pieces`, and whether it is disconnected for a line that is too long.
#[must_use]
pub fn lines(pieces: &[&[u8]]) -> (Vec<Vec<u8>>, bool) {
    let mut connection = Connection::new(Nanos::ZERO);
    let mut lines = Vec::new();
    for piece in pieces {
        connection.receive(piece);
        loop {
            match connection.next_line(Nanos::ZERO) {
                Ok(Some(line)) => lines.push(line),
                Ok(None) => break,
                Err(_) => return (lines, true),
            }
        }
    }
    (lines, false)
}
