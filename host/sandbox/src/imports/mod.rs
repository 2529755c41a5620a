//! What a guest can import, one file for each interface. Nothing is linked here that `inspect` does not know of.

pub(crate) mod config;
pub(crate) mod http;
pub mod keyvalue;
pub(crate) mod logging;
pub(crate) mod outbox;
pub(crate) mod records;
pub mod steps;
pub(crate) mod wasi;

use leasehold_domain::grants::Grants;
use wasmtime::{
    Engine,
    component::{HasSelf, Linker},
};

use crate::{
    bindings::{leasehold::job, wasi as generated},
    state::GuestState,
};

/// A linker with exactly what these grants allow.
pub(crate) fn linker(engine: &Engine, grants: &Grants) -> wasmtime::Result<Linker<GuestState>> {
    let mut linker = Linker::new(engine);
    wasi::add(&mut linker)?;
    job::types::add_to_linker::<_, HasSelf<_>>(&mut linker, |state: &mut GuestState| state)?;
    job::steps::add_to_linker::<_, HasSelf<_>>(&mut linker, |state: &mut GuestState| state)?;
    job::outbox::add_to_linker::<_, HasSelf<_>>(&mut linker, |state: &mut GuestState| state)?;
    generated::logging::logging::add_to_linker::<_, HasSelf<_>>(&mut linker, |state: &mut GuestState| state)?;
    if !grants.outbound.is_empty() {
        http::add(&mut linker)?;
    }
    if grants.reads_settings() {
        config::add(&mut linker)?;
    }
    if !grants.stores.is_empty() {
        generated::keyvalue::store::add_to_linker::<_, HasSelf<_>>(&mut linker, |state: &mut GuestState| state)?;
    }
    if !grants.annotate.is_empty() {
        job::records::add_to_linker::<_, HasSelf<_>>(&mut linker, |state: &mut GuestState| state)?;
    }
    Ok(linker)
}
