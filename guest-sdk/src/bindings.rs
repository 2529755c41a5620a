//! The generated bindings of the WIT world `leasehold:job/handler`. Handlers use the rest of this crate instead; what is
//! here is for the `handler` attribute and for guests that need an import in the raw. Nothing here is written by hand.

// Generated code: calls through the component's binary interface are unsafe by nature, and it documents nothing.
#![allow(unsafe_code, missing_docs, unused_qualifications, clippy::all, clippy::pedantic)]

wit_bindgen::generate!({
    world: "leasehold:job/handler",
    path: "wit",
    generate_all,
    pub_export_macro: true,
    default_bindings_module: "::leasehold_guest::bindings",
});
