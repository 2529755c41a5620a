//! `wasi:keyvalue/store`: the stores that the handler was granted. Writes are kept with the open step or the attempt;
//! reads see them first, then what is stored.

use leasehold_domain::{Effect, grants::StoreAccess};
use wasmtime::component::Resource;

use crate::{
    StoreUnavailable,
    attempt::Attempt,
    bindings::wasi::keyvalue::store::{Error, Host, HostBucket, KeyResponse},
    ledger::Written,
    state::GuestState,
};

/// What stands behind a guest's `bucket`.
#[derive(Debug, Clone)]
pub struct OpenStore {
    name: String,
    access: StoreAccess,
}

impl Host for GuestState {
    async fn open(&mut self, identifier: String) -> wasmtime::Result<Result<Resource<OpenStore>, Error>> {
        let Some(access) = self.attempt.grants.stores.get(&identifier).copied() else {
            return Ok(Err(Error::AccessDenied));
        };
        Ok(Ok(self.table.push(OpenStore { name: identifier, access })?))
    }
}

impl HostBucket for GuestState {
    async fn get(
        &mut self,
        bucket: Resource<OpenStore>,
        key: String,
    ) -> wasmtime::Result<Result<Option<Vec<u8>>, Error>> {
        let store = self.table.get(&bucket)?.name.clone();
        Ok(value(&self.attempt.clone(), &store, &key).await.map_err(|error| unavailable(&error)))
    }

    async fn set(
        &mut self,
        bucket: Resource<OpenStore>,
        key: String,
        value: Vec<u8>,
    ) -> wasmtime::Result<Result<(), Error>> {
        let bytes = key.len() + value.len();
        self.write(&bucket, bytes, |store| Effect::Set { store, key, value })
    }

    async fn delete(&mut self, bucket: Resource<OpenStore>, key: String) -> wasmtime::Result<Result<(), Error>> {
        let bytes = key.len();
        self.write(&bucket, bytes, |store| Effect::Delete { store, key })
    }

    async fn exists(&mut self, bucket: Resource<OpenStore>, key: String) -> wasmtime::Result<Result<bool, Error>> {
        let store = self.table.get(&bucket)?.name.clone();
        Ok(value(&self.attempt.clone(), &store, &key)
            .await
            .map(|value| value.is_some())
            .map_err(|error| unavailable(&error)))
    }

    async fn list_keys(
        &mut self,
        bucket: Resource<OpenStore>,
        cursor: Option<u64>,
    ) -> wasmtime::Result<Result<KeyResponse, Error>> {
        let store = self.table.get(&bucket)?.name.clone();
        Ok(keys(&self.attempt.clone(), &store, cursor).await.map_err(|error| unavailable(&error)))
    }

    async fn drop(&mut self, bucket: Resource<OpenStore>) -> wasmtime::Result<()> {
        self.table.delete(bucket)?;
        Ok(())
    }
}

impl GuestState {
    fn write(
        &mut self,
        bucket: &Resource<OpenStore>,
        bytes: usize,
        effect: impl FnOnce(String) -> Effect,
    ) -> wasmtime::Result<Result<(), Error>> {
        self.attempt.count_call()?;
        let OpenStore { name, access } = self.table.get(bucket)?.clone();
        if access != StoreAccess::ReadWrite {
            return Ok(Err(Error::AccessDenied));
        }
        self.attempt.count_kept(bytes)?;
        self.attempt.ledger().keep(effect(name));
        Ok(Ok(()))
    }
}

async fn value(attempt: &Attempt, store: &str, key: &str) -> Result<Option<Vec<u8>>, StoreUnavailable> {
    let own = attempt.ledger().own_write(store, key);
    match own {
        Some(Written::Set(value)) => Ok(Some(value)),
        Some(Written::Removed) => Ok(None),
        None => attempt.host.read_value(store, key).await,
    }
}

/// A page of the stored keys without those that this attempt removed; its own new ones follow on the last page.
async fn keys(attempt: &Attempt, store: &str, cursor: Option<u64>) -> Result<KeyResponse, StoreUnavailable> {
    let own = attempt.ledger().own_keys(store);
    let (mut keys, cursor) = attempt.host.list_keys(store, cursor).await?;
    keys.retain(|key| own.get(key) != Some(&false));
    if cursor.is_none() {
        for key in own.into_iter().filter_map(|(key, is_set)| is_set.then_some(key)) {
            if attempt.host.read_value(store, &key).await?.is_none() {
                keys.push(key);
            }
        }
    }
    Ok(KeyResponse { keys, cursor })
}

fn unavailable(error: &StoreUnavailable) -> Error {
    Error::Other(error.to_string())
}
