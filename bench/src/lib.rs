//! What the benches share: a released daemon as a process, a lean client, the bare loops that bound what is possible,
//! and figures of processes. It never measures anything by itself and is no part of the product.

pub mod client;
pub mod daemon;
pub mod jobs;
pub mod large;
pub mod limits;
pub mod process;
pub mod spread;

/// A payload of 200 bytes, like that of a small e-mail.
#[must_use]
pub fn payload() -> String {
    let head = r#"{"to":"someone@example.com","subject":"Your order","text":""#;
    format!("{head}{}\"}}", "x".repeat(200 - head.len() - 2))
}
