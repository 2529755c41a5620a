//! The body of an answer: bounded in size and in the time between its parts, and counted as in flight until it ends. It
//! never buffers.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep};
use wasmtime_wasi_http::Error;

use crate::attempt::Attempt;

/// Counts a request as in flight for as long as it lives.
pub(super) struct InFlight(Arc<Attempt>);

impl InFlight {
    pub(super) fn new(attempt: Arc<Attempt>) -> Self {
        attempt.ledger().requests_in_flight += 1;
        Self(attempt)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let in_flight = &mut self.0.ledger().requests_in_flight;
        *in_flight = in_flight.saturating_sub(1);
    }
}

/// An answer's body on its way to the guest.
pub(super) struct AnswerBody {
    incoming: Incoming,
    left_bytes: usize,
    max_bytes: usize,
    patience: Option<(Duration, Pin<Box<Sleep>>)>,
    /// Let go of at the body's end.
    in_flight: Option<InFlight>,
}

impl AnswerBody {
    pub(super) fn new(incoming: Incoming, max_bytes: usize, between: Option<Duration>, in_flight: InFlight) -> Self {
        let patience = between.map(|between| (between, Box::pin(tokio::time::sleep(between))));
        Self { incoming, left_bytes: max_bytes, max_bytes, patience, in_flight: Some(in_flight) }
    }

    fn too_large(&self) -> Error {
        Error::HttpResponseBodySize(u64::try_from(self.max_bytes).ok())
    }

    fn take(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, Error> {
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        self.left_bytes = self.left_bytes.checked_sub(bytes).ok_or_else(|| self.too_large())?;
        if let Some((between, sleep)) = &mut self.patience {
            sleep.as_mut().reset(Instant::now() + *between);
        }
        Ok(frame)
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match Pin::new(&mut self.incoming).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(self.take(frame))),
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(super::send::broken(&error)))),
            Poll::Ready(None) => {
                self.in_flight = None;
                Poll::Ready(None)
            }
            Poll::Pending => match &mut self.patience {
                Some((_, sleep)) => sleep.as_mut().poll(cx).map(|()| Some(Err(Error::ConnectionReadTimeout))),
                None => Poll::Pending,
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
