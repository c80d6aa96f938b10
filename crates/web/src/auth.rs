//! Who asks, and what they may do.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use axum::http::{HeaderMap, StatusCode, header};
use subtle::ConstantTimeEq as _;

use crate::error::{ApiError, WebError};

/// Shortest token in characters: 128 bits in hexadecimal are 32, in base64 22.
const MIN_TOKEN: usize = 20;
/// Longest token file in bytes.
const MAX_TOKEN: u64 = 4096;

/// The other end of a connection. All connections of a peer share its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    /// A user of this machine, over the UNIX socket.
    User(u32),
    /// Every program of this machine, over the loopback interface: it chooses its address in 127.0.0.0/8.
    Loopback,
    /// An IPv4 address, or the first 64 bits of an IPv6 address: a host chooses the others as it likes.
    Address(IpAddr),
}

impl Peer {
    pub(crate) fn from_ip(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            ip if ip.is_loopback() => Self::Loopback,
            IpAddr::V6(ip) => Self::Address(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into()),
            ip @ IpAddr::V4(_) => Self::Address(ip),
        }
    }

    pub(crate) fn is_root(self) -> bool {
        self == Self::User(0)
    }
}

/// What a request may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    /// Read what other users of the machine may know.
    Read,
    /// Read everything; pause, resume, change modes, reload.
    Admin,
}

/// The bearer tokens.
#[derive(Default)]
pub(crate) struct Tokens {
    read: Option<Vec<u8>>,
    admin: Option<Vec<u8>>,
}

impl Tokens {
    /// Reads the token files.
    pub(crate) fn load(read: Option<&Path>, admin: Option<&Path>) -> Result<Self, WebError> {
        Ok(Self {
            read: read.map(load_token).transpose()?,
            admin: admin.map(load_token).transpose()?,
        })
    }

    /// Whether reading needs a token.
    pub(crate) fn protect_reading(&self) -> bool {
        self.read.is_some()
    }

    /// The role of a request.
    ///
    /// # Errors
    /// A token is needed and there is none, or it is wrong.
    pub(crate) fn role(&self, peer: Peer, headers: &HeaderMap) -> Result<Role, ApiError> {
        match headers.get(header::AUTHORIZATION) {
            Some(value) => self.role_of_token(value.as_bytes()),
            None => match peer {
                Peer::User(uid) if uid == 0 || uid == rustix::process::geteuid().as_raw() => Ok(Role::Admin),
                Peer::User(_) => Ok(Role::Read),
                Peer::Loopback | Peer::Address(_) if self.protect_reading() => Err(unauthorized(
                    "a token is needed: send the header `Authorization: Bearer TOKEN`",
                )),
                Peer::Loopback | Peer::Address(_) => Ok(Role::Read),
            },
        }
    }

    // Both tokens are compared whatever the first comparison says: the time tells nothing about them.
    fn role_of_token(&self, header: &[u8]) -> Result<Role, ApiError> {
        let Some(token) = bearer(header) else {
            return Err(unauthorized("the header must be `Authorization: Bearer TOKEN`"));
        };
        let is = |expected: &Option<Vec<u8>>| {
            expected
                .as_deref()
                .is_some_and(|expected| bool::from(expected.ct_eq(token)))
        };
        match (is(&self.admin), is(&self.read)) {
            (true, _) => Ok(Role::Admin),
            (false, true) => Ok(Role::Read),
            (false, false) => Err(unauthorized(
                "the token is wrong: use that of the agent's token file",
            )),
        }
    }
}

fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"Bearer ")
        .then(|| token.trim_ascii())
}

fn unauthorized(message: &str) -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, message)
}

fn load_token(path: &Path) -> Result<Vec<u8>, WebError> {
    let refuse = |why: String| WebError::Token {
        path: path.to_owned(),
        why,
    };
    let (mode, text) = read_file(path).map_err(|error| refuse(error.to_string()))?;
    if mode & 0o007 != 0 {
        return Err(refuse(format!(
            "every user may open it (mode {:o}): run chmod 600 on it, and make a new token",
            mode & 0o777
        )));
    }
    let token = text.trim_ascii();
    if token.len() < MIN_TOKEN || !token.iter().all(u8::is_ascii_graphic) {
        return Err(refuse(format!(
            "it must have one word of {MIN_TOKEN} to {MAX_TOKEN} printable characters, for example of `openssl \
             rand -hex 32`"
        )));
    }
    Ok(token.to_vec())
}

fn read_file(path: &Path) -> io::Result<(u32, Vec<u8>)> {
    let file = File::open(path)?;
    let mode = file.metadata()?.mode();
    let mut text = Vec::new();
    file.take(MAX_TOKEN).read_to_end(&mut text)?;
    Ok((mode, text))
}
