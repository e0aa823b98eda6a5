//! Reaches outside as each message says, and answers with a dead letter that has what came of
//! it. The words of a body:
//!
//! `config KEY` | `length KEY` (of what `config` has) | `all` (every setting) |
//! `open BUCKET` | `set BUCKET KEY VALUE` | `get BUCKET KEY` | `delete BUCKET KEY` | `exists BUCKET KEY` | `keys BUCKET` |
//! `weed BUCKET` (deletes each page of keys before it asks for the next) | `page BUCKET CURSOR` |
//! `fill BUCKET COUNT BYTES` (so many keys with values of that size) |
//! `add BUCKET KEY DELTA` | `METHOD URL [BYTES]` (with a body of that size) |
//! `hoard COUNT` (requests with as much of a body as can be written, never sent: how many bytes) |
//! `many COUNT URL` (at once; how many had which status or error) | `read PATH` |
//! `write PATH` | `clock MS` (how far the two clocks move while it computes for that long).

wit_bindgen::generate!({
    path: "../../wit",
    inline: "
        package guests:reach;

        world reach {
            include mqlet:listener/concurrent-listener@0.1.0;
            import wasi:config/store@0.2.0-rc.1;
            import wasi:keyvalue/store@0.2.0-draft;
            import wasi:keyvalue/atomics@0.2.0-draft;
            import wasi:http/types@0.2.12;
            import wasi:http/outgoing-handler@0.2.12;
        }
    ",
    world: "guests:reach/reach",
    generate_all,
});

use std::collections::BTreeMap;

use exports::mqlet::listener::concurrent::{BatchContext, ConsumeStatus, Guest, Message, Outcome};
use guests::{bytes, text};
use mqlet::listener::call;
use wasi::http::outgoing_handler::handle;
use wasi::http::types::{
    ErrorCode, Fields, FutureIncomingResponse, Method, OutgoingBody, OutgoingRequest, Scheme,
};
use wasi::io::streams::StreamError;
use wasi::keyvalue::{atomics, store as buckets};
use wasi::logging::logging::{Level, log};

struct Listener;

impl Guest for Listener {
    fn consume_message(
        messages: Vec<Message>,
        data: Vec<u8>,
        _context: BatchContext,
    ) -> Result<ConsumeStatus, String> {
        let outcomes = messages.iter().map(|message| {
            let body = text(bytes!(data, message.body));
            let answer = obey(&body).unwrap_or_else(|error| format!("error: {error}"));
            log(Level::Info, "reach", &format!("reach[{answer}]"));
            Outcome::DeadLetter(answer)
        });
        Ok(ConsumeStatus::Each(outcomes.collect()))
    }
}

export!(Listener);

fn obey(body: &str) -> Result<String, String> {
    let words: Vec<&str> = body.split(' ').collect();
    let said = |error: buckets::Error| format!("{error:?}");
    match words[..] {
        ["config", key] => {
            let value = wasi::config::store::get(key).map_err(|error| format!("{error:?}"))?;
            Ok(format!("{value:?}"))
        }
        ["length", key] => {
            let value = wasi::config::store::get(key).map_err(|error| format!("{error:?}"))?;
            Ok(format!("{} bytes", value.unwrap_or_default().len()))
        }
        ["all"] => {
            let all = wasi::config::store::get_all().map_err(|error| format!("{error:?}"))?;
            Ok(format!("{all:?}"))
        }
        ["open", bucket] => buckets::open(bucket)
            .map(|_| "open".to_owned())
            .map_err(said),
        ["set", bucket, key, value] => {
            let bucket = buckets::open(bucket).map_err(said)?;
            bucket.set(key, value.as_bytes()).map_err(said)?;
            Ok("set".to_owned())
        }
        ["get", bucket, key] => {
            let bucket = buckets::open(bucket).map_err(said)?;
            let value = bucket.get(key).map_err(said)?;
            Ok(value.map_or_else(|| "none".to_owned(), |value| text(&value)))
        }
        ["delete", bucket, key] => {
            let bucket = buckets::open(bucket).map_err(said)?;
            bucket.delete(key).map_err(said)?;
            Ok("deleted".to_owned())
        }
        ["exists", bucket, key] => {
            let bucket = buckets::open(bucket).map_err(said)?;
            Ok(bucket.exists(key).map_err(said)?.to_string())
        }
        ["page", bucket, cursor] => {
            let bucket = buckets::open(bucket).map_err(said)?;
            let page = bucket.list_keys(Some(number(cursor)? as u64));
            Ok(page.map_err(said)?.keys.join(","))
        }
        [word @ ("keys" | "weed"), bucket] => {
            let bucket = buckets::open(bucket).map_err(said)?;
            let (mut keys, mut cursor) = (Vec::new(), None);
            loop {
                let page = bucket.list_keys(cursor).map_err(said)?;
                for key in page.keys.iter().filter(|_| word == "weed") {
                    bucket.delete(key).map_err(said)?;
                }
                keys.extend(page.keys);
                cursor = page.cursor;
                if cursor.is_none() {
                    break;
                }
            }
            keys.sort();
            Ok(if keys.len() > 20 {
                keys.len().to_string()
            } else {
                keys.join(",")
            })
        }
        ["fill", bucket, count, bytes] => {
            let bucket = buckets::open(bucket).map_err(said)?;
            let value = vec![b'v'; number(bytes)?];
            for key in 0..number(count)? {
                if let Err(error) = bucket.set(&format!("key-{key}"), &value) {
                    return Ok(format!("{key} set, then {}", said(error)));
                }
            }
            Ok(format!("{count} set"))
        }
        ["add", bucket, key, delta] => {
            let bucket = buckets::open(bucket).map_err(said)?;
            let sum = atomics::increment(&bucket, key, number(delta)? as u64).map_err(said)?;
            Ok(sum.to_string())
        }
        ["read", path] => std::fs::read_to_string(path).map_err(|error| error.to_string()),
        ["write", path] => {
            std::fs::write(path, "written").map_err(|error| error.to_string())?;
            Ok("written".to_owned())
        }
        ["clock", ms] => clock(number(ms)?),
        ["hoard", count] => hoard(number(count)?),
        ["many", count, url] => many(number(count)?, url),
        [method, url] => fetch(method, url, 0),
        [method, url, bytes] => fetch(method, url, number(bytes)?),
        _ => Err(format!("what is {body}?")),
    }
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

/// How far the host's clock and the two of WASI move.
fn clock(ms: usize) -> Result<String, String> {
    let (now, wall) = (std::time::Instant::now(), std::time::SystemTime::now());
    let host = call::now_ms();
    let mut turns = 0_u64;
    // A frozen clock never moves: the turns end it.
    while now.elapsed().as_millis() < ms as u128 && turns < 3_000_000 {
        turns = std::hint::black_box(turns + 1);
    }
    let wall = wall.elapsed().map_err(|error| error.to_string())?;
    Ok(format!(
        "{} {} {}",
        now.elapsed().as_millis(),
        wall.as_millis(),
        call::now_ms() - host
    ))
}

fn request(method: &str, url: &str, body: usize) -> Result<FutureIncomingResponse, ErrorCode> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    let fields = Fields::new();
    if body > 0 {
        let length = body.to_string().into_bytes();
        fields
            .set("content-length", &[length])
            .expect("a header that may be set");
    }
    let request = OutgoingRequest::new(fields);
    let method = match method {
        "GET" => Method::Get,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "CONNECT" => Method::Connect,
        other => Method::Other(other.to_owned()),
    };
    let refused = |()| ErrorCode::HttpRequestUriInvalid;
    request.set_method(&method).map_err(refused)?;
    let scheme = match scheme {
        "https" => Scheme::Https,
        _ => Scheme::Http,
    };
    request.set_scheme(Some(&scheme)).map_err(refused)?;
    request.set_authority(Some(authority)).map_err(refused)?;
    request.set_path_with_query(Some(path)).map_err(refused)?;
    let outgoing = request.body().map_err(refused)?;
    let answer = handle(request, None)?;
    if body > 0 {
        let stream = outgoing.write().map_err(refused)?;
        let mut left = body;
        while left > 0 {
            let part = vec![b'x'; left.min(4096)];
            if stream.blocking_write_and_flush(&part).is_err() {
                break;
            }
            left -= part.len();
        }
    }
    // What is wrong with the body is said by the answer too.
    let _finished = OutgoingBody::finish(outgoing, None);
    Ok(answer)
}

/// Status and body.
fn answer(answer: &FutureIncomingResponse) -> Result<String, String> {
    let said = |error: ErrorCode| format!("{error:?}");
    answer.subscribe().block();
    let response = match answer.get() {
        Some(Ok(response)) => response.map_err(said)?,
        _ => return Err("no answer".to_owned()),
    };
    let status = response.status();
    let body = response.consume().map_err(|()| "no body".to_owned())?;
    let stream = body.stream().map_err(|()| "no stream".to_owned())?;
    let mut content = Vec::new();
    loop {
        match stream.blocking_read(64 * 1024) {
            Ok(part) => content.extend(part),
            Err(StreamError::Closed) => break,
            Err(StreamError::LastOperationFailed(error)) => {
                let error = error.to_debug_string();
                return Err(format!("after {} bytes {error}", content.len()));
            }
        }
    }
    Ok(match content.len() {
        0..=200 => format!("{status} {}", text(&content)),
        length => format!("{status} {length} bytes"),
    })
}

fn fetch(method: &str, url: &str, body: usize) -> Result<String, String> {
    let sent = request(method, url, body).map_err(|error| format!("{error:?}"))?;
    answer(&sent)
}

fn hoard(count: usize) -> Result<String, String> {
    let mut hoarded = Vec::new();
    let mut bytes = 0;
    for _ in 0..count {
        let request = OutgoingRequest::new(Fields::new());
        let body = request.body().map_err(|()| "no body")?;
        let stream = body.write().map_err(|()| "no stream")?;
        while let Ok(most @ 1..) = stream.check_write() {
            let part = vec![b'x'; most as usize];
            stream.write(&part).map_err(|error| format!("{error:?}"))?;
            bytes += part.len();
        }
        hoarded.push((stream, body, request));
    }
    Ok(bytes.to_string())
}

fn many(count: usize, url: &str) -> Result<String, String> {
    let sent: Vec<_> = (0..count).map(|_| request("GET", url, 0)).collect();
    let mut answers: BTreeMap<String, usize> = BTreeMap::new();
    for sent in sent {
        let answer = match sent {
            Ok(sent) => answer(&sent).unwrap_or_else(|error| error),
            Err(error) => format!("{error:?}"),
        };
        *answers.entry(answer).or_default() += 1;
    }
    Ok(format!("{answers:?}"))
}
