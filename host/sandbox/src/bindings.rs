//! What the world `leasehold:job/handler` looks like from the host. Only the interfaces that this crate implements
//! itself are generated here; the rest of a guest's imports come from wasmtime's own crates.

#![allow(missing_docs, clippy::all, clippy::pedantic, reason = "generated code")]

wasmtime::component::bindgen!({
    path: "../../guest-sdk/wit",
    inline: r#"
        package leasehold:sandbox;
        world handler-host {
            import leasehold:job/types@0.1.0;
            import leasehold:job/steps@0.1.0;
            import leasehold:job/outbox@0.1.0;
            import leasehold:job/records@0.1.0;
            import wasi:keyvalue/store@0.2.0-draft;
            import wasi:logging/logging@0.1.0-draft;
            use leasehold:job/types@0.1.0.{job, success, failure};
            export handle: func(job: job) -> result<success, failure>;
        }
    "#,
    world: "leasehold:sandbox/handler-host",
    imports: { default: async | trappable },
    exports: { default: async },
    with: {
        "leasehold:job/steps.step": crate::imports::steps::StepHandle,
        "wasi:keyvalue/store.bucket": crate::imports::keyvalue::OpenStore,
    },
});
