//! A handler that imports raw sockets, which no configuration can grant.

use leasehold_guest::{Failure, Job, Raw, Success};

#[leasehold_guest::handler]
fn handle(_job: Job<Raw>) -> Result<Success, Failure> {
    #[cfg(target_arch = "wasm32")]
    drop(bindings::wasi::sockets::instance_network::instance_network());
    Ok(Success::done())
}

// Generated code: calls through the component's binary interface are unsafe by nature, and it documents nothing.
#[cfg(target_arch = "wasm32")]
#[allow(unsafe_code, missing_docs, unused_qualifications, clippy::all, clippy::pedantic)]
mod bindings {
    wit_bindgen::generate!({
        inline: "
            package guests:wants-sockets;
            world sockets {
                import wasi:sockets/instance-network@0.2.12;
            }
        ",
        path: "../../../guest-sdk/wit",
        generate_all,
    });
}
