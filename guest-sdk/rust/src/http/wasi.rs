//! A request by the resources of `wasi:http`.

use super::{HttpError, Request, Response};
use crate::bindings::reach::wasi::http::outgoing_handler::handle;
use crate::bindings::reach::wasi::http::types::{
    ErrorCode, Fields, IncomingResponse, Method, OutgoingBody, OutgoingRequest, RequestOptions,
    Scheme,
};
use crate::bindings::reach::wasi::io::streams::StreamError;

/// Bytes that are written or read at once; more than 4096 cannot be written.
const PART_BYTES: usize = 4096;
const READ_BYTES: u64 = 64 << 10;

pub(super) fn send(request: Request) -> Result<Response, HttpError> {
    let outgoing = outgoing(&request)?;
    let body = outgoing.body().map_err(|()| invalid("it has no body"))?;
    let options = request.timeout.map(|timeout| {
        let options = RequestOptions::new();
        let nanoseconds = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        // Every option may be set; that one cannot be is no reason to send nothing.
        let _ = options.set_connect_timeout(Some(nanoseconds));
        let _ = options.set_first_byte_timeout(Some(nanoseconds));
        options
    });
    let answer = handle(outgoing, options).map_err(failed)?;
    write(body, &request.body);
    answer.subscribe().block();
    match answer.get() {
        Some(Ok(response)) => read(&response.map_err(failed)?),
        _ => Err(HttpError::Failed("no answer".to_owned())),
    }
}

fn outgoing(request: &Request) -> Result<OutgoingRequest, HttpError> {
    let (scheme, rest) = match request.url.split_once("://") {
        Some(("http", rest)) => (Scheme::Http, rest),
        Some(("https", rest)) => (Scheme::Https, rest),
        _ => return Err(invalid("its URL begins with neither http:// nor https://")),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    // A fragment is the asker's own.
    let path = path.split('#').next().unwrap_or_default();
    let path = match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("/{path}"),
    };
    let headers = Fields::new();
    for (name, value) in &request.headers {
        let appended = headers.append(name, value);
        appended.map_err(|error| invalid(&format!("header {name:?}: {error:?}")))?;
    }
    let has_length = |(name, _): &(String, _)| name.eq_ignore_ascii_case("content-length");
    if !request.body.is_empty() && !request.headers.iter().any(has_length) {
        let length = request.body.len().to_string();
        let appended = headers.append("content-length", length.as_bytes());
        appended.map_err(|error| invalid(&format!("its length: {error:?}")))?;
    }
    let outgoing = OutgoingRequest::new(headers);
    let method = match request.method.as_str() {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "DELETE" => Method::Delete,
        "OPTIONS" => Method::Options,
        "PATCH" => Method::Patch,
        other => Method::Other(other.to_owned()),
    };
    let part = |name: &'static str| move |()| invalid(name);
    outgoing.set_method(&method).map_err(part("its method"))?;
    outgoing
        .set_scheme(Some(&scheme))
        .map_err(part("its scheme"))?;
    outgoing
        .set_authority(Some(authority))
        .map_err(part("its host"))?;
    outgoing
        .set_path_with_query(Some(&path))
        .map_err(part("its path"))?;
    Ok(outgoing)
}

/// What cannot be written the answer tells, too.
fn write(body: OutgoingBody, content: &[u8]) {
    if let Ok(stream) = body.write() {
        for part in content.chunks(PART_BYTES) {
            if stream.blocking_write_and_flush(part).is_err() {
                break;
            }
        }
    }
    let _ = OutgoingBody::finish(body, None);
}

fn read(response: &IncomingResponse) -> Result<Response, HttpError> {
    let lost = |reason: &str| HttpError::Failed(reason.to_owned());
    let headers = response.headers().entries();
    let body = response.consume().map_err(|()| lost("it has no body"))?;
    let stream = body.stream().map_err(|()| lost("its body has no stream"))?;
    let mut content = Vec::new();
    loop {
        match stream.blocking_read(READ_BYTES) {
            Ok(part) => content.extend(part),
            Err(StreamError::Closed) => break,
            Err(StreamError::LastOperationFailed(error)) => {
                let (bytes, error) = (content.len(), error.to_debug_string());
                return Err(HttpError::Failed(format!("after {bytes} bytes: {error}")));
            }
        }
    }
    Ok(Response {
        status: response.status(),
        headers,
        body: content,
    })
}

fn invalid(what: &str) -> HttpError {
    HttpError::Invalid(what.to_owned())
}

fn failed(error: ErrorCode) -> HttpError {
    match error {
        ErrorCode::HttpRequestDenied | ErrorCode::DestinationIpProhibited => HttpError::Denied,
        ErrorCode::ConnectionTimeout
        | ErrorCode::DnsTimeout
        | ErrorCode::ConnectionReadTimeout
        | ErrorCode::ConnectionWriteTimeout
        | ErrorCode::HttpResponseTimeout => HttpError::Timeout,
        ErrorCode::HttpRequestUriInvalid | ErrorCode::HttpRequestMethodInvalid => {
            HttpError::Invalid(format!("{error:?}"))
        }
        error => HttpError::Failed(format!("{error:?}")),
    }
}
