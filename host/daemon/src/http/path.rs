//! Refuses a path that is no text, in the API's words, before a route would read it. It knows no route.

use axum::{extract::Request, middleware::Next, response::Response};
use percent_encoding::percent_decode_str;

use super::refusal::{Refusal, malformed};

pub(super) async fn require_text(request: Request, next: Next) -> Result<Response, Refusal> {
    if percent_decode_str(request.uri().path()).decode_utf8().is_err() {
        let path = request.uri().path();
        return Err(malformed(format!("the path {path} is no UTF-8 once its %XX are decoded")));
    }
    Ok(next.run(request).await)
}
