//! Makes a component ready to run: checked, compiled or loaded, linked with exactly what its handler was granted, and
//! instantiated once on trial. Nothing of a job is run here.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold_domain::{
    Digest, Effect, HandlerName, InDoubtPolicy, NewJob, StepName,
    grants::{AttemptLimits, Grants},
};
use wasmtime::{Engine, Trap, component::Component};
use wasmtime_wasi_config::WasiConfigVariables;

use crate::{
    AttemptHost, BeginError, Begun, CompleteError, ComponentError, EnqueueRefusal, StoreUnavailable,
    attempt::Attempt,
    bindings::HandlerHostPre,
    compiled::CompiledFiles,
    imports, inspect,
    state::{self, GuestState},
};

/// How long a component may take to start.
const START_TIME_MAX: Duration = Duration::from_secs(2);

/// A component that is ready to run, with its handler's grants and limits.
#[derive(Clone)]
pub struct Prepared(Arc<Parts>);

struct Parts {
    digest: Digest,
    pre: HandlerHostPre<GuestState>,
    grants: Arc<Grants>,
    settings: Arc<WasiConfigVariables>,
    limits: AttemptLimits,
}

impl Prepared {
    /// The digest of the component that runs.
    pub fn digest(&self) -> Digest {
        self.0.digest
    }

    pub(crate) fn pre(&self) -> &HandlerHostPre<GuestState> {
        &self.0.pre
    }

    pub(crate) fn grants(&self) -> &Arc<Grants> {
        &self.0.grants
    }

    pub(crate) fn settings(&self) -> &Arc<WasiConfigVariables> {
        &self.0.settings
    }

    pub(crate) fn limits(&self) -> &AttemptLimits {
        &self.0.limits
    }
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("digest", &self.0.digest).finish_non_exhaustive()
    }
}

/// Refuses what can be refused without compiling.
pub(crate) fn check(
    handler: &HandlerName,
    digest: Digest,
    bytes: &[u8],
    grants: &Grants,
    component_max_bytes: usize,
) -> Result<(), ComponentError> {
    if bytes.len() > component_max_bytes {
        return Err(ComponentError::TooLarge { bytes: bytes.len(), max_bytes: component_max_bytes });
    }
    let inspection = inspect(bytes)?;
    let found = Digest::of(bytes);
    if found != digest {
        return Err(ComponentError::DigestMismatch { expected: digest, found });
    }
    inspect::check_grants(&inspection, handler, grants)
}

/// Compiles a component, or loads it compiled.
pub(crate) fn compile(
    engine: &Engine,
    files: &CompiledFiles,
    digest: Digest,
    bytes: &[u8],
) -> Result<Component, ComponentError> {
    if let Some(component) = files.load(engine, digest) {
        return Ok(component);
    }
    let component = Component::from_binary(engine, bytes).map_err(|error| compile_error(&error))?;
    match component.serialize() {
        Ok(compiled) => files.store(digest, &compiled),
        Err(error) => tracing::warn!(%error, component = %digest.short(), "a compiled component could not be kept"),
    }
    Ok(component)
}

/// Links a component with exactly what was granted.
pub(crate) fn link(
    component: &Component,
    digest: Digest,
    grants: &Grants,
    limits: &AttemptLimits,
) -> Result<Prepared, ComponentError> {
    let wrong_world = |error: wasmtime::Error| ComponentError::WrongWorld { message: format!("{error:#}") };
    let linker = imports::linker(component.engine(), grants)
        .map_err(|error| ComponentError::Host { message: format!("{error:#}") })?;
    let pre = HandlerHostPre::new(linker.instantiate_pre(component).map_err(wrong_world)?).map_err(wrong_world)?;
    Ok(Prepared(Arc::new(Parts {
        digest,
        pre,
        grants: Arc::new(grants.clone()),
        settings: Arc::new(imports::config::variables(grants)),
        limits: limits.clone(),
    })))
}

/// Instantiates a component once, with nothing behind its imports.
pub(crate) async fn try_out(engine: Engine, prepared: Prepared) -> Result<(), ComponentError> {
    let deadline = Instant::now() + START_TIME_MAX;
    let attempt = Arc::new(Attempt::new(
        Arc::new(NoHost),
        Arc::default(),
        prepared.limits(),
        InDoubtPolicy::DeadLetter,
        deadline,
        None,
        Arc::default(),
    ));
    let mut store = state::store(&engine, &attempt, prepared.settings());
    let started = tokio::time::timeout_at(deadline.into(), prepared.pre().instantiate_async(&mut store)).await;
    match started {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => match store.data().limiter.refused() {
            Some(refused) => Err(ComponentError::TooMuchMemory { message: refused.to_string() }),
            None => Err(start_error(&error)),
        },
        Err(_) => Err(too_slow()),
    }
}

fn too_slow() -> ComponentError {
    ComponentError::StartFailed { message: format!("it takes longer than {} s to start", START_TIME_MAX.as_secs()) }
}

fn start_error(error: &wasmtime::Error) -> ComponentError {
    if matches!(error.downcast_ref::<Trap>(), Some(Trap::Interrupt)) {
        return too_slow();
    }
    if let Some(error) = error.downcast_ref::<wasmtime::PoolConcurrencyLimitError>() {
        return ComponentError::Host { message: error.to_string() };
    }
    ComponentError::StartFailed { message: error.root_cause().to_string() }
}

/// The pool's own limits are met while compiling.
fn compile_error(error: &wasmtime::Error) -> ComponentError {
    let message = format!("{error:#}");
    if message.contains("pooling allocator") || message.contains("exceeds the limit of") {
        return ComponentError::TooMuchMemory { message };
    }
    ComponentError::Invalid { message }
}

/// A host behind which nothing is.
pub(crate) struct NoHost;

#[async_trait::async_trait]
impl AttemptHost for NoHost {
    async fn begin_step(&self, _: &StepName, _: &[u8]) -> Result<Begun, BeginError> {
        Err(BeginError::Unavailable)
    }

    async fn complete_step(&self, _: &StepName, _: Vec<u8>, _: Vec<Effect>) -> Result<(), CompleteError> {
        Err(CompleteError::Unavailable)
    }

    async fn take_back_step(&self, _: &StepName) -> Result<(), CompleteError> {
        Err(CompleteError::Unavailable)
    }

    async fn read_value(&self, _: &str, _: &str) -> Result<Option<Vec<u8>>, StoreUnavailable> {
        Err(StoreUnavailable("the component is only being tried out".into()))
    }

    async fn list_keys(&self, _: &str, _: Option<u64>) -> Result<(Vec<String>, Option<u64>), StoreUnavailable> {
        Err(StoreUnavailable("the component is only being tried out".into()))
    }

    fn check_new_job(&self, _: &NewJob) -> Result<(), EnqueueRefusal> {
        Err(EnqueueRefusal::Invalid("the component is only being tried out".into()))
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::Path};

    use leasehold_domain::grants::{OutboundGrant, StoreAccess};

    use super::*;
    use crate::{SandboxConfig, engine};

    fn engine() -> Engine {
        let config = SandboxConfig {
            slots: 1,
            memory_max_bytes: 64 << 20,
            stack_max_bytes: 512 << 10,
            component_max_bytes: 0,
            compiled_directory: "unused".into(),
        };
        engine::start(&engine::PoolLimits::of(&config).unwrap()).unwrap()
    }

    fn everything() -> Grants {
        let grant = OutboundGrant {
            scheme: "https".into(),
            host: "*".into(),
            port: 443,
            methods: std::collections::BTreeSet::new(),
            private: false,
            outside_step: false,
        };
        Grants {
            absent: std::collections::BTreeSet::new(),
            outbound: vec![grant],
            settings: BTreeMap::from([("a".into(), "b".into())]),
            stores: BTreeMap::from([("s".into(), StoreAccess::Read)]),
            ..Grants::default()
        }
    }

    #[test]
    fn h6_what_is_not_granted_is_not_linked_even_if_nobody_checked_before() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/guests/components/misbehave@1.0.0.wasm");
        let bytes = std::fs::read(path).unwrap();
        let component = Component::from_binary(&engine(), &bytes).unwrap();
        let limits = Attempt::for_tests(Instant::now()).limits.clone();
        let link = |grants: &Grants| link(&component, Digest::of(&bytes), grants, &limits);
        assert!(link(&everything()).is_ok());
        for (import, grants) in [
            ("wasi:http/", Grants { outbound: Vec::new(), ..everything() }),
            ("wasi:config/", Grants { settings: BTreeMap::new(), ..everything() }),
            ("wasi:keyvalue/", Grants { stores: BTreeMap::new(), ..everything() }),
        ] {
            let error = link(&grants).unwrap_err().to_string();
            assert!(error.contains(import), "{error}");
        }
    }
}
