//! `wasi:config/store`: the settings and secrets that the handler was granted, and nothing else of the configuration.

use leasehold_domain::grants::Grants;
use wasmtime::component::Linker;
use wasmtime_wasi_config::{WasiConfig, WasiConfigVariables};

use crate::state::GuestState;

pub(crate) fn add(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    wasmtime_wasi_config::add_to_linker(linker, |state: &mut GuestState| WasiConfig::from(&*state.settings))
}

/// The granted settings as the guest reads them.
pub(crate) fn variables(grants: &Grants) -> WasiConfigVariables {
    grants.settings.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}
