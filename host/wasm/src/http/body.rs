//! Bodies with a bound of bytes and of time.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use wasmtime_wasi_http::Error;

/// A body that ends with an error when it is too long or too slow.
pub(super) struct Bounded<B> {
    body: Pin<Box<B>>,
    left: u64,
    bytes_max: u64,
    alarm: Pin<Box<Sleep>>,
    deadline: Instant,
    between: Option<Duration>,
    kind: Kind,
}

enum Kind {
    Request(Box<dyn Fn(usize) + Send + Sync>),
    Response,
}

impl<B: Body<Data = Bytes, Error = Error>> Bounded<B> {
    pub(super) fn request(
        body: B,
        bytes_max: u64,
        deadline: Instant,
        count_sent: Box<dyn Fn(usize) + Send + Sync>,
    ) -> Self {
        Self::new(body, bytes_max, deadline, None, Kind::Request(count_sent))
    }

    pub(super) fn response(
        body: B,
        bytes_max: u64,
        deadline: Instant,
        between: Option<Duration>,
    ) -> Self {
        Self::new(body, bytes_max, deadline, between, Kind::Response)
    }

    fn new(
        body: B,
        bytes_max: u64,
        deadline: Instant,
        between: Option<Duration>,
        kind: Kind,
    ) -> Self {
        let mut bounded = Self {
            body: Box::pin(body),
            left: bytes_max,
            bytes_max,
            alarm: Box::pin(tokio::time::sleep_until(deadline)),
            deadline,
            between,
            kind,
        };
        bounded.set_alarm();
        bounded
    }

    fn set_alarm(&mut self) {
        let Some(between) = self.between else { return };
        let at = self.deadline.min(Instant::now() + between);
        self.alarm.as_mut().reset(at);
    }

    fn too_long(&self) -> Error {
        match self.kind {
            Kind::Request(_) => Error::HttpRequestBodySize(Some(self.bytes_max)),
            Kind::Response => Error::HttpResponseBodySize(Some(self.bytes_max)),
        }
    }

    fn too_slow(&self) -> Error {
        match self.kind {
            Kind::Request(_) => Error::ConnectionWriteTimeout,
            Kind::Response => Error::ConnectionReadTimeout,
        }
    }
}

impl<B: Body<Data = Bytes, Error = Error>> Body for Bounded<B> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        match this.body.as_mut().poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                let Some(left) = this.left.checked_sub(bytes as u64) else {
                    return Poll::Ready(Some(Err(this.too_long())));
                };
                this.left = left;
                if let Kind::Request(count_sent) = &this.kind {
                    count_sent(bytes);
                }
                this.set_alarm();
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(end) => Poll::Ready(end),
            Poll::Pending => match this.alarm.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Some(Err(this.too_slow()))),
                Poll::Pending => Poll::Pending,
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
