//! Name servers that talk nonsense: a clear error for `mqlet send`, patience in
//! `mqlet run`, and never a crash.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use end_to_end::embedded_broker::{BOUND, send};
use end_to_end::eventually::eventually;
use end_to_end::host_folder::HostFolder;
use guest_artifacts::path;

/// Answers whatever it is asked with these bytes, and says nothing more. Its address.
fn server_that_says(answer: &'static [u8], then_closes: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else {
                return;
            };
            std::thread::spawn(move || {
                let mut request = [0; 1024];
                while connection.read(&mut request).is_ok_and(|bytes| bytes > 0) {
                    if connection.write_all(answer).is_err() || then_closes {
                        return;
                    }
                }
            });
        }
    });
    address
}

const NONSENSE: [(&str, &[u8], bool); 6] = [
    ("negative length", &[0xff; 64], false),
    (
        "two gigabytes announced",
        &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1, b'{'],
        false,
    ),
    (
        "header longer than its frame",
        &[0, 0, 0, 8, 0, 0, 0xff, 0xff, 1, 2, 3, 4],
        false,
    ),
    (
        "header that is no JSON",
        b"\0\0\0\x0a\0\0\0\x06HTTP/1",
        false,
    ),
    ("half a frame", &[0, 0, 1, 0, 0, 0, 0, 0xf0, b'{'], true),
    (
        "another protocol",
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        true,
    ),
];

#[test]
fn send_fails_with_the_address_of_the_server() {
    for (what, answer, then_closes) in NONSENSE {
        let address = server_that_says(answer, then_closes);
        let mut process = send(&[
            "send",
            "t",
            "x",
            "--namesrv-addr",
            &address,
            "--timeout",
            "1s",
        ]);
        process.close_stdin();
        let code = process.wait(BOUND).code();
        let lines = process.lines().join("\n");
        assert_eq!(code, Some(1), "{what}: {lines}");
        assert!(lines.contains(&address), "{what}: {lines}");
        assert!(!lines.contains("panicked"), "{what}: {lines}");
    }
}

#[test]
fn host_goes_on_trying_and_ends_in_order() {
    for (what, answer, then_closes) in [NONSENSE[0], NONSENSE[3]] {
        let address = server_that_says(answer, then_closes);
        let folder = HostFolder::new(&address, "").with_plugin("succeed", &path("succeed"), "");
        let mut host = folder.run(&[]);
        host.wait_for_line("serving", BOUND);
        eventually(&format!("a line about {what}"), BOUND, || {
            let lines = host.lines();
            let warned =
                |line: &String| line.contains("\"level\":\"WARN\"") && line.contains(&address);
            lines.iter().any(warned).then_some(())
        });
        host.interrupt();
        let code = host.wait(Duration::from_secs(30)).code();
        assert_eq!(code, Some(0), "{what}: {:?}", host.lines());
    }
}
