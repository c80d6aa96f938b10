//! Hostile and careless clients.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;

use support::{Site, exchange, read_answer, request};

#[test]
fn other_sites_and_names_are_refused() {
    let site = Site::start();
    let address = site.address.to_string();
    let origin = format!("http://{address}");
    for (status, headers) in [
        (200, vec![("Host", "localhost:80")]),
        (200, vec![("Host", "[::1]:80")]),
        (200, vec![("Host", address.as_str()), ("Origin", &origin)]),
        (200, vec![("Sec-Fetch-Site", "same-origin")]),
        (
            200,
            vec![("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate")],
        ),
        (
            403,
            vec![("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "no-cors")],
        ),
        (403, vec![("Host", "rebound.example")]),
        (403, vec![("Host", "localhost.rebound.example")]),
        (403, vec![("Origin", "http://rebound.example")]),
        (403, vec![("Origin", "null")]),
        (
            403,
            vec![("Host", "localhost:1"), ("Origin", "http://localhost:2")],
        ),
        (400, vec![("Host", "a"), ("Host", "localhost")]),
        (400, vec![("Host", "")]),
    ] {
        let answer = site.ask("GET", "/api/v1/status", &headers, "");
        assert_eq!(answer.status, status, "{headers:?}: {answer:?}");
    }
    let foreign = [("Origin", "http://rebound.example")];
    assert_eq!(
        site.ask_locally("POST", "/api/v1/pause", &foreign, "").status,
        403
    );
    let named = Site::with(|config, _| config.hosts.push("server.example".to_owned()));
    assert_eq!(
        named
            .ask("GET", "/api/v1/status", &[("Host", "Server.example:9")], "")
            .status,
        200
    );
}

#[test]
fn large_requests_are_refused() {
    let site = Site::start();
    let body = "x".repeat(64 << 10 | 1);
    let json = [("Content-Type", "application/json")];
    for path in ["/api/v1/policies/web/mode", "/api/v1/pause"] {
        let answer = site.ask_locally("POST", path, &json, &body);
        assert_eq!(answer.status, 413, "{answer:?}");
        assert!(answer.error().contains("65536 bytes"), "{answer:?}");
    }
    let chunk = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let head = request(
        "POST",
        "/api/v1/policies/web/mode",
        &[json[0], ("Transfer-Encoding", "chunked")],
        "",
    );
    let chunked = exchange(UnixStream::connect(&site.socket).unwrap(), &(head + &chunk));
    assert_eq!(chunked.status, 413, "{chunked:?}");
    let long = "y".repeat(64 << 10);
    let status = site.get(&format!("/api/v1/{long}")).status;
    assert!([0, 414, 431].contains(&status), "{status}");
    let status = site.ask("GET", "/healthz", &[("X-Long", &long)], "").status;
    assert!([0, 431].contains(&status), "{status}");
    let many = vec![("X", "1"); 100];
    assert_eq!(site.ask("GET", "/healthz", &many, "").status, 431);
    assert_eq!(site.get("/healthz").status, 200);
}

#[test]
fn garbage_is_refused_and_others_are_served() {
    let site = Site::start();
    for garbage in [
        "\0\0\0\0\r\n\r\n",
        "GET\r\n\r\n",
        "\x16\x03\x01",
        "GET / HTTP/9.9\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\n",
    ] {
        let mut stream = site.connect();
        stream.write_all(garbage.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let status = read_answer(&stream).status;
        assert!([0, 400, 505].contains(&status), "{garbage:?}: {status}");
    }
    assert_eq!(site.get("/healthz").status, 200);
}

#[test]
fn slow_and_silent_clients_are_disconnected() {
    let site = Site::start();
    let json = [("Content-Type", "application/json"), ("Content-Length", "9")];
    let no_body = request("POST", "/api/v1/policies/web/mode", &json, "");
    let half_a_head = "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ";
    thread::scope(|scope| {
        for (text, expected) in [("", 0), (half_a_head, 408), (&no_body, 408)] {
            let mut stream = UnixStream::connect(&site.socket).unwrap();
            scope.spawn(move || {
                stream.write_all(text.as_bytes()).unwrap();
                // Ends only because the server closes the connection.
                let answer = read_answer(&stream);
                assert!([0, expected].contains(&answer.status), "{text:?}: {answer:?}");
            });
        }
    });
}

/// A connection that has its place: it was answered, and stays open.
fn hold_connection(site: &Site) -> TcpStream {
    let mut stream = site.connect();
    // Refused connections are closed at once.
    let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let _ = stream.read(&mut [0; 12]);
    stream
}

#[test]
fn connections_of_a_peer_are_limited() {
    let site = Site::start();
    let refused = loop {
        // Idle connections end after a while, so on a slow machine it may take a second try.
        let _held: Vec<TcpStream> = (0..32).map(|_| hold_connection(&site)).collect();
        let answer = site.get("/healthz");
        let other_peer = site.ask_locally("GET", "/healthz", &[], "");
        assert_eq!(other_peer.status, 200, "{other_peer:?}");
        if answer.status != 200 {
            break answer;
        }
    };
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.error().contains("too many connections"), "{refused:?}");
    while site.get("/healthz").status != 200 {}
}

#[test]
fn requests_of_a_peer_are_limited() {
    let site = Site::start();
    let mut stream = site.connect();
    let one = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let last = request("GET", "/healthz", &[], "");
    let writer = thread::spawn({
        let mut stream = stream.try_clone().unwrap();
        move || stream.write_all((one.repeat(999) + &last).as_bytes())
    });
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    writer.join().unwrap().unwrap();
    let served = answers.matches("HTTP/1.1 200").count();
    let refused = answers.matches("HTTP/1.1 429").count();
    assert_eq!(served + refused, 1000);
    assert!(served >= 200 && refused > 0, "{served} served, {refused} refused");
    assert!(answers.contains("too many requests") && answers.contains("retry-after: 1"));
}

#[test]
fn reading_the_past_is_limited() {
    let site = Site::start();
    let (sender, receiver) = mpsc::channel();
    let busy = site.agent.hold();
    for _ in 0..3 {
        let (sender, stream) = (sender.clone(), site.connect());
        let text = request("GET", "/api/v1/history?target=nginx.service", &[], "");
        thread::spawn(move || sender.send(exchange(stream, &text)));
    }
    let refused = receiver.recv().unwrap();
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.error().contains("try again"), "{refused:?}");
    drop(busy);
    assert_eq!(receiver.recv().unwrap().status, 200);
    assert_eq!(receiver.recv().unwrap().status, 200);
}

#[test]
fn streams_end_with_their_client() {
    let site = Site::start();
    let open = || {
        let mut stream = site.connect();
        let text = request("GET", "/api/v1/stream", &[], "");
        stream.write_all(text.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        (line.contains("200"), reader)
    };
    let streams: Vec<_> = (0..32).map(|_| open()).collect();
    assert!(streams.iter().all(|(is_open, _)| *is_open));
    assert!(!open().0, "one connection too many");
    assert_eq!(site.ask_locally("GET", "/api/v1/status", &[], "").status, 200);
    drop(streams);
    while !open().0 {
        site.agent.tick();
    }
}

#[test]
fn server_ends_with_connections_open() {
    let site = Site::start();
    let mut stream = site.connect();
    stream
        .write_all(request("GET", "/api/v1/stream", &[], "").as_bytes())
        .unwrap();
    let mut start = [0; 12];
    stream.read_exact(&mut start).unwrap();
    drop(site.server);
    assert!(TcpStream::connect(site.address).is_err());
}
