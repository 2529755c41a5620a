//! `wasi:http/types` and `wasi:http/outgoing-handler`: wasmtime's own, with every request going through `outbound`.

use wasmtime::component::Linker;

use crate::state::GuestState;

pub(crate) fn add(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)
}
