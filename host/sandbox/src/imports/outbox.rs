//! `leasehold:job/outbox`: jobs that are kept with the open step or the attempt. Nothing is enqueued here.

use leasehold_domain::{DurationMs, Effect, JobKey, Kind, Lane, NewJob};

use crate::{
    EnqueueRefusal,
    bindings::leasehold::job::outbox::{EnqueueError, Host, NewJob as WitNewJob},
    state::GuestState,
};

impl Host for GuestState {
    async fn enqueue(&mut self, job: WitNewJob) -> wasmtime::Result<Result<(), EnqueueError>> {
        self.attempt.count_call()?;
        let job = match self.checked(job) {
            Ok(job) => job,
            Err(error) => return Ok(Err(error)),
        };
        self.attempt.count_kept(size_bytes(&job))?;
        self.attempt.ledger().keep(Effect::Enqueue(job));
        Ok(Ok(()))
    }
}

fn size_bytes(job: &NewJob) -> usize {
    let names = [job.key.as_ref().map_or("", JobKey::as_str), job.lane.as_ref().map_or("", Lane::as_str)];
    let texts = names.into_iter().chain([job.kind.as_str(), job.content_type.as_str()]);
    let metadata = job.metadata.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
    job.payload.len() + texts.chain(metadata).map(str::len).sum::<usize>()
}

impl GuestState {
    fn checked(&self, job: WitNewJob) -> Result<NewJob, EnqueueError> {
        let invalid = |error: leasehold_domain::NameError| EnqueueError::Invalid(error.to_string());
        let kind = Kind::new(job.kind).map_err(|_| EnqueueError::UnknownKind)?;
        if let Some(allowed) = &self.attempt.grants.enqueue
            && !allowed.contains(kind.as_str())
        {
            let allowed = allowed.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(EnqueueError::Invalid(format!(
                "this handler may not enqueue jobs of the kind {kind}; allowed are: {allowed}"
            )));
        }
        let job = NewJob {
            kind,
            key: job.key.map(JobKey::new).transpose().map_err(invalid)?,
            lane: job.lane.map(Lane::new).transpose().map_err(invalid)?,
            content_type: job.content_type,
            payload: job.payload,
            delay_ms: DurationMs::try_from(job.delay_ms)
                .map_err(|_| EnqueueError::Invalid("the delay is out of range".into()))?,
            priority: 0,
            metadata: job.metadata,
        };
        self.attempt.host.check_new_job(&job).map_err(|refusal| match refusal {
            EnqueueRefusal::UnknownKind => EnqueueError::UnknownKind,
            EnqueueRefusal::TooLarge(limit) => EnqueueError::TooLarge(limit),
            EnqueueRefusal::Invalid(reason) => EnqueueError::Invalid(reason),
        })?;
        Ok(job)
    }
}
