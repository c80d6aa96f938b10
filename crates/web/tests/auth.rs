//! Who may do what, over each kind of connection.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use support::{ADMIN_TOKEN, READ_TOKEN, Site, exchange, request, token_file};
use thermo_fake_agent::FakeAgent;
use thermo_web::{Server, ServerConfig, TlsFiles, WebError};

/// Routes that everybody may use: they say nothing about programs.
const OPEN: [&str; 3] = ["/healthz", "/readyz", "/api/v1/openapi.json"];

/// Every route of the document: method and path.
fn routes() -> Vec<(String, String)> {
    let document = serde_json::to_value(thermo_web::openapi()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let methods = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().keys();
        methods.map(|method| (method.to_uppercase(), path.replace("{name}", "web")))
    });
    // The stream does not end.
    methods.filter(|(_, path)| !path.ends_with("/stream")).collect()
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

#[test]
fn roles_hold_for_every_route() {
    let with_tokens = Site::with_tokens();
    let without = Site::start();
    let read = bearer(READ_TOKEN);
    let admin = bearer(ADMIN_TOKEN);
    for (method, path) in routes() {
        let status = |site: &Site, headers: &[(&str, &str)]| site.ask(&method, &path, headers, "").status;
        let is_change = method == "POST";
        let is_open = OPEN.contains(&path.as_str());
        let anonymous = status(&with_tokens, &[]);
        assert_eq!(anonymous == 401, !is_open, "{method} {path}: {anonymous}");
        let wrong = status(
            &with_tokens,
            &[("Authorization", "Bearer wrong-0123456789abcdef")],
        );
        assert_eq!(wrong == 401, !is_open, "{method} {path}: {wrong}");
        let reader = status(&with_tokens, &[("Authorization", &read)]);
        assert_eq!(reader == 403, is_change, "{method} {path}: {reader}");
        let admin = status(&with_tokens, &[("Authorization", &admin)]);
        assert!(![401, 403].contains(&admin), "{method} {path}: {admin}");
        let open_port = status(&without, &[]);
        assert_eq!(open_port == 403, is_change, "{method} {path}: {open_port}");
        assert_ne!(open_port, 401, "{method} {path}");
        let owner = without.ask_locally(&method, &path, &[], "").status;
        assert!(![401, 403].contains(&owner), "{method} {path}: {owner}");
    }
    assert_eq!(
        with_tokens.get("/").status,
        200,
        "the page asks for the token itself"
    );
}

#[test]
fn token_of_another_scheme_or_length_is_refused() {
    let site = Site::with_tokens();
    for header in [
        "",
        "Basic cmVhZDpyZWFk",
        "Bearer",
        "Bearer ",
        READ_TOKEN,
        "Bearer read",
    ] {
        let answer = site.ask("GET", "/api/v1/status", &[("Authorization", header)], "");
        assert_eq!(answer.status, 401, "{header}");
        assert!(answer.headers.contains("www-authenticate: bearer"), "{answer:?}");
    }
}

#[test]
fn other_users_may_only_read_over_the_socket() {
    let site = Site::start();
    if !rustix::process::geteuid().is_root() || Command::new("curl").arg("--version").output().is_err() {
        return println!("SKIP: needs root and curl to connect as another user");
    }
    fs::set_permissions(site.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&site.socket, fs::Permissions::from_mode(0o666)).unwrap();
    let status = |arguments: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "--unix-socket"])
            .arg(&site.socket);
        let output = curl.args(arguments).uid(65534).gid(65534).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(status(&["http://localhost/api/v1/targets"]), "200");
    assert_eq!(status(&["-X", "POST", "http://localhost/api/v1/pause"]), "403");
}

#[test]
fn socket_is_for_owner_and_group_and_replaces_no_file() {
    let site = Site::start();
    let mode = fs::metadata(&site.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let start = |path: &Path| {
        let config = ServerConfig {
            socket: Some(path.to_owned()),
            ..ServerConfig::default()
        };
        Server::start(config, FakeAgent::new(0))
            .map(drop)
            .unwrap_err()
            .to_string()
    };
    let error = start(&site.socket);
    assert!(error.contains("another agent listens there"), "{error}");
    let file = site.folder.path().join("notes");
    fs::write(&file, "mine").unwrap();
    let error = start(&file);
    assert!(error.contains("is a regular file"), "{error}");
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    let (socket, folder) = (site.socket.clone(), site.folder);
    drop(site.server);
    assert!(!socket.exists());
    drop(folder);
}

#[test]
fn other_machines_need_tls_and_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let read_token = Some(token_file(&folder, "read", READ_TOKEN));
    let any = "0.0.0.0:0".parse().unwrap();
    for config in [
        ServerConfig {
            listen: Some(any),
            ..ServerConfig::default()
        },
        ServerConfig {
            listen: Some(any),
            read_token,
            ..ServerConfig::default()
        },
        ServerConfig {
            inherited: vec![OwnedFd::from(TcpListener::bind(any).unwrap())],
            ..ServerConfig::default()
        },
    ] {
        let error = Server::start(config, FakeAgent::new(0)).unwrap_err();
        assert!(matches!(error, WebError::Unprotected(_)), "{error}");
    }
}

#[test]
fn inherited_sockets_serve() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = tcp.local_addr().unwrap();
    let unix = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let config = ServerConfig {
        inherited: vec![tcp.into(), unix.into()],
        ..ServerConfig::default()
    };
    let server = Server::start(config, FakeAgent::new(0)).unwrap();
    assert_eq!(server.address(), Some(address));
    let text = request("GET", "/healthz", &[], "");
    assert_eq!(exchange(TcpStream::connect(address).unwrap(), &text).status, 200);
    let stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    assert_eq!(exchange(stream, &text).status, 200);
    drop(server);
    assert!(path.exists(), "the socket of the service manager stays");
    let not_listening = OwnedFd::from(fs::File::open("/dev/null").unwrap());
    let config = ServerConfig {
        inherited: vec![not_listening],
        ..ServerConfig::default()
    };
    let error = Server::start(config, FakeAgent::new(0)).unwrap_err().to_string();
    assert!(error.contains(".socket unit"), "{error}");
}

#[test]
fn token_files_must_be_secret_and_long() {
    let folder = tempfile::tempdir().unwrap();
    let short = token_file(&folder, "short", "12345");
    let open = token_file(&folder, "open", READ_TOKEN);
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    let two_words = token_file(&folder, "words", "one two three four five six");
    let missing = folder.path().join("missing");
    for (path, expected) in [
        (short, "20 to"),
        (open, "mode 644"),
        (two_words, "one word"),
        (missing, "No such file"),
    ] {
        let config = ServerConfig {
            admin_token: Some(path),
            ..ServerConfig::default()
        };
        let error = Server::start(config, FakeAgent::new(0)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// A certificate of localhost with its key, made by openssl.
fn make_certificate(folder: &Path) -> Option<TlsFiles> {
    let files = TlsFiles {
        certificate: folder.join("cert.pem"),
        key: folder.join("key.pem"),
    };
    let config = folder.join("openssl.cnf");
    let text = "[req]\ndistinguished_name=name\nx509_extensions=more\n[name]\n[more]\n\
                basicConstraints=critical,CA:FALSE\nsubjectAltName=DNS:localhost,IP:127.0.0.1\n";
    fs::write(&config, text).unwrap();
    let mut openssl = Command::new("openssl");
    openssl.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]);
    openssl
        .args(["-days", "2", "-subj", "/CN=localhost", "-config"])
        .arg(config);
    openssl
        .arg("-keyout")
        .arg(&files.key)
        .arg("-out")
        .arg(&files.certificate);
    let output = openssl.output().ok()?;
    assert!(output.status.success(), "{output:?}");
    Some(files)
}

#[test]
fn tls_with_a_token_serves_any_address() {
    let folder = tempfile::tempdir().unwrap();
    let Some(files) = make_certificate(folder.path()) else {
        return println!("SKIP: no openssl to make a certificate");
    };
    let certificate = CertificateDer::from_pem_file(&files.certificate).unwrap();
    let config = ServerConfig {
        listen: Some("0.0.0.0:0".parse().unwrap()),
        tls: Some(files),
        read_token: Some(token_file(&folder, "read", READ_TOKEN)),
        ..ServerConfig::default()
    };
    let server = Server::start(config, FakeAgent::new(0)).unwrap();
    let port = server.address().unwrap().port();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let client = Arc::new(client);
    let ask = |headers: &[(&str, &str)]| {
        let name = ServerName::try_from("localhost").unwrap();
        let connection = rustls::ClientConnection::new(Arc::clone(&client), name).unwrap();
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let stream = rustls::StreamOwned::new(connection, stream);
        exchange(stream, &request("GET", "/api/v1/status", headers, ""))
    };
    assert_eq!(ask(&[]).status, 401);
    let read = bearer(READ_TOKEN);
    assert_eq!(
        ask(&[("Authorization", &read), ("Host", "server.example")]).status,
        200
    );
    let plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
    assert_eq!(exchange(plain, &request("GET", "/healthz", &[], "")).status, 0);
}
