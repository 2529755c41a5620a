//! The one import beyond the SDK's: `wasi:cli/exit`.

// Generated code: calls through the component's binary interface are unsafe by nature, and it documents nothing.
#[allow(unsafe_code, missing_docs, unused_qualifications, clippy::all, clippy::pedantic)]
mod bindings {
    wit_bindgen::generate!({
        inline: "
            package guests:misbehave;
            world exits {
                import wasi:cli/exit@0.2.12;
            }
        ",
        path: "../../../guest-sdk/wit",
        generate_all,
    });
}

/// Leaves the instance as a program that failed does.
pub fn exit() -> ! {
    bindings::wasi::cli::exit::exit(Err(()));
    unreachable!("the host came back from exit")
}
