//! Names of pods by a kubelet that the test plays.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thermo_agent::kubernetes::kubelet::{Kubelet, KubeletConfig, KubeletError};
use thermo_agent::kubernetes::kubelet_thread::KubeletThread;

const PODS: &str = include_str!("pods.json");

/// How the kubelet of a test answers.
enum Plays {
    /// With this status and body.
    Answers(&'static str, &'static str),
    /// Not before the test ends.
    Waits,
}

/// A kubelet that the test plays: it serves a connection for each entry, and hands out what was asked.
struct FakeKubelet {
    address: SocketAddr,
    requests: Receiver<String>,
    /// Ends those that wait.
    _end: mpsc::Sender<()>,
}

fn play(plays: Vec<Plays>, tls: Option<Arc<rustls::ServerConfig>>) -> FakeKubelet {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (asked, requests) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    thread::spawn(move || {
        for play in plays {
            let Ok((mut stream, _)) = listener.accept() else {
                return;
            };
            let request = match &tls {
                Some(config) => {
                    let mut connection = rustls::ServerConnection::new(Arc::clone(config)).unwrap();
                    serve(rustls::Stream::new(&mut connection, &mut stream), &play, &ended)
                }
                None => serve(&mut stream, &play, &ended),
            };
            // The test may have ended.
            let _ = asked.send(request);
        }
    });
    FakeKubelet {
        address,
        requests,
        _end: end,
    }
}

/// Reads a request and plays the answer. Errors are those of a client that has refused the server.
fn serve(mut stream: impl Read + Write, play: &Plays, ended: &Receiver<()>) -> String {
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut part) {
            Ok(length) if length > 0 => request.extend_from_slice(&part[..length]),
            _ => return "no request".to_owned(),
        }
    }
    match play {
        Plays::Answers(status, body) => {
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
            );
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.write_all(body.as_bytes());
            let _ = stream.flush();
        }
        Plays::Waits => drop(ended.recv()),
    }
    String::from_utf8(request).unwrap()
}

fn config(address: SocketAddr) -> KubeletConfig {
    KubeletConfig {
        is_encrypted: false,
        host: address.ip().to_string(),
        port: address.port(),
        token_file: PathBuf::from("/nonexistent/token"),
        ca_file: PathBuf::from("/nonexistent/ca.crt"),
        node: None,
    }
}

#[test]
fn one_request_lists_the_pods_of_the_node() {
    let fake = play(vec![Plays::Answers("200 OK", PODS)], None);
    let pods = Kubelet::new(config(fake.address)).pods().unwrap();
    assert_eq!(pods.len(), 5);
    let request = fake.requests.recv().unwrap();
    assert!(request.starts_with("GET /pods HTTP/1.1\r\n"), "{request}");
    assert!(
        !request.to_lowercase().contains("authorization"),
        "no token without TLS"
    );
    assert!(fake.requests.recv().is_err(), "one connection");
}

#[test]
fn refusals_and_nonsense_are_told_apart() {
    for (status, body, expected) in [
        (
            "401 Unauthorized",
            "Unauthorized",
            "refuses the token (401): check token_file",
        ),
        ("403 Forbidden", "Forbidden", "it needs `get` on nodes/pods"),
        (
            "500 Internal Server Error",
            "oh",
            "did not answer with pods: status 500",
        ),
        (
            "200 OK",
            "{\"kind\":\"PodList\",\"items\":[",
            "did not answer with pods: EOF while parsing",
        ),
        ("200 OK", "<html>", "did not answer with pods: expected value"),
        (
            "200 OK",
            "{\"kind\":\"Status\"}",
            "it is \"Status\", not a PodList",
        ),
    ] {
        let fake = play(vec![Plays::Answers(status, body)], None);
        let error = Kubelet::new(config(fake.address)).pods().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(error.contains(&format!("http://{}", fake.address)), "{error}");
    }
}

#[test]
fn slow_answer_ends_at_the_limit() {
    let fake = play(vec![Plays::Waits], None);
    let kubelet = Kubelet::new(config(fake.address)).with_time_limit(Duration::from_secs(1));
    let error = kubelet.pods().unwrap_err();
    assert!(matches!(error, KubeletError::Slow { seconds: 1, .. }), "{error}");
}

#[test]
fn missing_kubelet_and_files_have_a_sentence() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = Kubelet::new(config(address)).pods().unwrap_err().to_string();
    assert!(
        error.starts_with("cannot reach the kubelet at http://127.0.0.1:"),
        "{error}"
    );

    let folder = tempfile::tempdir().unwrap();
    let mut config = config(address);
    config.is_encrypted = true;
    let error = |config: &KubeletConfig| Kubelet::new(config.clone()).pods().unwrap_err().to_string();
    assert!(error(&config).starts_with("cannot read the token /nonexistent/token"));
    config.token_file = folder.path().join("token");
    fs::write(&config.token_file, "two words\n").unwrap();
    let why = error(&config);
    assert!(
        why.contains("it has no word of printable characters") && !why.contains("two"),
        "{why}"
    );
    fs::write(&config.token_file, "word\n").unwrap();
    assert!(error(&config).starts_with("cannot read certificates in /nonexistent/ca.crt"));
    config.ca_file = folder.path().join("token");
    assert!(error(&config).contains("token: "), "not a certificate");
}

/// A certificate with its key for `names`, made by openssl, as a kubelet that signs its own has it.
fn make_certificate(folder: &Path, names: &str) -> Option<(PathBuf, PathBuf)> {
    let (certificate, key) = (folder.join("kubelet.crt"), folder.join("kubelet.key"));
    let config = folder.join("openssl.cnf");
    let text = format!(
        "[req]\ndistinguished_name=name\nx509_extensions=more\n[name]\n[more]\n\
         basicConstraints=critical,CA:FALSE\nsubjectAltName={names}\n"
    );
    fs::write(&config, text).unwrap();
    let mut openssl = Command::new("openssl");
    openssl.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
    ]);
    openssl
        .args(["-nodes", "-days", "2", "-subj", "/CN=node", "-config"])
        .arg(config);
    openssl.arg("-keyout").arg(&key).arg("-out").arg(&certificate);
    let output = openssl.output().ok()?;
    assert!(output.status.success(), "{output:?}");
    Some((certificate, key))
}

#[test]
fn token_goes_only_to_a_kubelet_with_the_right_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let Some((certificate, key)) = make_certificate(folder.path(), "DNS:worker-1") else {
        return println!("SKIP: no openssl to make a certificate");
    };
    let other = tempfile::tempdir().unwrap();
    let foreign = make_certificate(other.path(), "DNS:worker-1").unwrap().0;
    let chain = vec![CertificateDer::from_pem_file(&certificate).unwrap()];
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(&key).unwrap());
    let answers = (0..4).map(|_| Plays::Answers("200 OK", PODS)).collect();
    let fake = play(answers, Some(Arc::new(tls.unwrap())));
    let token_file = folder.path().join("token");
    fs::write(&token_file, "first-token\n").unwrap();
    let ask = |ca_file: &Path, node: Option<&str>| {
        let config = KubeletConfig {
            is_encrypted: true,
            token_file: token_file.clone(),
            ca_file: ca_file.to_owned(),
            node: node.map(str::to_owned),
            ..config(fake.address)
        };
        Kubelet::new(config).pods()
    };
    // The address is not in the certificate, the name of the node is.
    assert_eq!(ask(&certificate, Some("worker-1")).unwrap().len(), 4);
    assert!(
        fake.requests
            .recv()
            .unwrap()
            .contains("authorization: Bearer first-token\r\n")
    );
    // Tokens are replaced while the agent runs.
    fs::write(&token_file, "second-token\n").unwrap();
    assert!(ask(&certificate, Some("worker-1")).is_ok());
    assert!(fake.requests.recv().unwrap().contains("Bearer second-token\r\n"));
    for (ca_file, node) in [(&certificate, None), (&foreign, Some("worker-1"))] {
        let error = ask(ca_file, node).unwrap_err();
        assert!(matches!(error, KubeletError::Untrusted { .. }), "{error}");
        assert_eq!(fake.requests.recv().unwrap(), "no request");
    }
}

#[test]
fn thread_asks_once_for_each_order() {
    let plays = vec![
        Plays::Answers("500 Internal Server Error", ""),
        Plays::Answers("200 OK", PODS),
    ];
    let fake = play(plays, None);
    let thread = KubeletThread::start(Kubelet::new(config(fake.address))).unwrap();
    assert!(thread.answer().is_none(), "nothing was requested");
    let answer = || {
        assert!(thread.request());
        fake.requests.recv().unwrap();
        loop {
            match thread.answer() {
                Some(answer) => return answer,
                None => thread::yield_now(),
            }
        }
    };
    assert!(matches!(answer(), Err(KubeletError::Invalid { .. })));
    assert_eq!(answer().unwrap().len(), 5);
}
