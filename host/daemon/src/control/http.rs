//! The little of HTTP/1.1 that a request for one JSON answer needs, both sides: one
//! request a connection, bodies with a length, everything bounded.
//!
//! Heads are parsed by `httparse`. A whole HTTP library would do more than a socket for
//! one user needs, and would build wasmtime's dependencies with other features.

use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

const HEAD_BYTES_MAX: usize = 8 * 1024;
const HEADERS_MAX: usize = 32;
/// Of a request.
pub(super) const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// Of an answer: what a host with very many queues has to say.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

/// What is asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) body: Vec<u8>,
    /// What stands behind `Bearer` in `authorization`.
    pub(super) bearer: Option<String>,
}

/// What is answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// JSON.
    pub(super) body: Vec<u8>,
}

/// What comes behind the head of a request; nobody has been asked to send it yet.
#[derive(Debug)]
pub(super) struct Rest {
    length: usize,
    begun: Vec<u8>,
}

/// Why bytes are no request or answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    #[error("the connection broke")]
    Io(#[from] std::io::Error),
    #[error("the connection ended early")]
    Early,
    #[error("not HTTP: {0}")]
    Malformed(String),
    #[error("too large: {0}")]
    TooLarge(&'static str),
}

impl Answer {
    pub(super) fn json(status: u16, value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => Self { status, body },
            // Only maps with odd keys fail.
            Err(error) => Self {
                status: 500,
                body: format!("{{\"error\":\"{error}\"}}").into_bytes(),
            },
        }
    }
}

/// Reads the head of a request.
pub(super) async fn read_request_head(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<(Request, Rest), HttpError> {
    let (head, rest) = read_head(stream).await?;
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    request
        .parse(&head)
        .map_err(|error| HttpError::Malformed(error.to_string()))?;
    let length = content_length(request.headers)?.unwrap_or(0);
    let (method, path) = (request.method.unwrap_or(""), request.path.unwrap_or(""));
    let (method, path) = (method.to_owned(), path.to_owned());
    let bearer = bearer(request.headers);
    let request = Request {
        method,
        path,
        body: Vec::new(),
        bearer,
    };
    let begun = rest;
    Ok((request, Rest { length, begun }))
}

/// Reads the body of a request.
pub(super) async fn read_request_body(
    stream: &mut (impl AsyncRead + Unpin),
    rest: Rest,
    bytes_max: usize,
) -> Result<Vec<u8>, HttpError> {
    if rest.length > bytes_max {
        return Err(HttpError::TooLarge("the body of the request"));
    }
    read_body(stream, rest.begun, rest.length).await
}

fn bearer(headers: &[httparse::Header<'_>]) -> Option<String> {
    let mut headers = headers.iter();
    let header = headers.find(|header| header.name.eq_ignore_ascii_case("authorization"))?;
    let (scheme, token) = std::str::from_utf8(header.value).ok()?.split_once(' ')?;
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    is_bearer.then(|| token.trim().to_owned())
}

/// Writes one answer.
pub(super) async fn write_answer(
    stream: &mut (impl AsyncWrite + Unpin),
    answer: &Answer,
) -> std::io::Result<()> {
    let reason = match answer.status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        413 => "Content Too Large",
        422 => "Unprocessable Content",
        503 => "Service Unavailable",
        _ => "Error",
    };
    let head = format!(
        "HTTP/1.1 {} {reason}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        answer.status,
        answer.body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&answer.body).await?;
    stream.shutdown().await
}

/// Writes one request and reads its answer, which may come before the request was read.
pub(super) async fn exchange(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    request: &Request,
) -> Result<Answer, HttpError> {
    let head = format!(
        "{} {} HTTP/1.1\r\nhost: mqlet\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        request.method,
        request.path,
        request.body.len()
    );
    let written = write_request(stream, head.as_bytes(), &request.body).await;
    let (head, rest) = match (read_head(stream).await, written) {
        (Ok(answer), _) => answer,
        // What went wrong first.
        (Err(_), Err(error)) => return Err(error.into()),
        (Err(error), Ok(())) => return Err(error),
    };
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    response
        .parse(&head)
        .map_err(|error| HttpError::Malformed(error.to_string()))?;
    let status = response.code.unwrap_or(0);
    let Some(length) = content_length(response.headers)? else {
        return Err(HttpError::Malformed("no content-length".to_owned()));
    };
    if length > ANSWER_BYTES_MAX {
        return Err(HttpError::TooLarge("the answer"));
    }
    let body = read_body(stream, rest, length).await?;
    Ok(Answer { status, body })
}

async fn write_request(
    stream: &mut (impl AsyncWrite + Unpin),
    head: &[u8],
    body: &[u8],
) -> std::io::Result<()> {
    stream.write_all(head).await?;
    stream.write_all(body).await?;
    stream.flush().await
}

/// The head with its empty line, and what came behind it.
async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> Result<(Vec<u8>, Vec<u8>), HttpError> {
    let mut bytes = Vec::with_capacity(1024);
    loop {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            let rest = bytes.split_off(end + 4);
            return Ok((bytes, rest));
        }
        if bytes.len() >= HEAD_BYTES_MAX {
            return Err(HttpError::TooLarge("the head"));
        }
        let mut some = [0; 1024];
        match stream.read(&mut some).await? {
            0 => return Err(HttpError::Early),
            count => bytes.extend_from_slice(&some[..count]),
        }
    }
}

async fn read_body(
    stream: &mut (impl AsyncRead + Unpin),
    mut body: Vec<u8>,
    length: usize,
) -> Result<Vec<u8>, HttpError> {
    body.truncate(length);
    let missing = (length - body.len()) as u64;
    stream.take(missing).read_to_end(&mut body).await?;
    if body.len() < length {
        return Err(HttpError::Early);
    }
    Ok(body)
}

fn content_length(headers: &[httparse::Header<'_>]) -> Result<Option<usize>, HttpError> {
    let mut length = None;
    for header in headers {
        if header.name.eq_ignore_ascii_case("transfer-encoding") {
            let text = "bodies need a content-length".to_owned();
            return Err(HttpError::Malformed(text));
        }
        if header.name.eq_ignore_ascii_case("content-length") {
            let text = std::str::from_utf8(header.value).unwrap_or("");
            let number = text.trim().parse();
            let number =
                number.map_err(|_| HttpError::Malformed(format!("content-length {text:?}")))?;
            length = Some(number);
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_comes_out_as_it_went_in_and_so_does_its_answer() {
        let (mut here, mut there) = tokio::io::duplex(64);
        let served = tokio::spawn(async move {
            let request = read_request(&mut there).await.expect("a request");
            let answer = Answer::json(404, &serde_json::json!({ "error": "nobody" }));
            write_answer(&mut there, &answer).await.expect("written");
            request
        });
        let request = Request {
            method: "POST".to_owned(),
            path: "/v1/pause".to_owned(),
            body: vec![b'x'; 5000],
            bearer: None,
        };
        let answer = exchange(&mut here, &request).await.expect("an answer");
        assert_eq!(answer.status, 404);
        assert_eq!(answer.body, b"{\"error\":\"nobody\"}");
        assert_eq!(served.await.expect("served"), request);
    }

    async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Result<Request, HttpError> {
        let (mut request, rest) = read_request_head(stream).await?;
        request.body = read_request_body(stream, rest, REQUEST_BYTES_MAX).await?;
        Ok(request)
    }

    async fn reads(mut bytes: &[u8]) -> String {
        match read_request(&mut bytes).await {
            Ok(request) => format!("{request:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test]
    async fn what_is_no_request_is_refused() {
        assert!(reads(b"hello\r\n\r\n").await.contains("not HTTP"));
        assert!(reads(b"GET / HT").await.contains("ended early"));
        assert!(reads(&[b'a'; 20_000]).await.contains("too large: the head"));
        let huge = b"POST / HTTP/1.1\r\ncontent-length: 99999999\r\n\r\n";
        assert!(reads(huge).await.contains("too large: the body"));
        let short = b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\nabc";
        assert!(reads(short).await.contains("ended early"));
        let negative = b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n";
        assert!(reads(negative).await.contains("content-length"));
        let chunked = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
        assert!(reads(chunked).await.contains("content-length"));
    }
}
