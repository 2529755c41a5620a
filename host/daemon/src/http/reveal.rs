//! The original of a dead letter, for those who may see it. It goes into the answer and nowhere else: not into a log, an
//! error or a cache.

use axum::{
    Extension, Json,
    body::Body,
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use leasehold_api::{RevealAnswer, RevealRequest};
use leasehold_domain::DeadLetterId;
use leasehold_store::{Original, Revealed};

use super::{
    Api, body,
    dead_letters::{no_letter, not_open},
    jobs,
    refusal::{NO_STORE, Refusal, conflict},
    words::reason,
};
use crate::config::Actor;

pub(super) async fn reveal(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(path): Path<String>,
    body: Body,
) -> Result<Response, Refusal> {
    let id = DeadLetterId(jobs::id(&path)?);
    let RevealRequest { reason: why } = body::read_json(body, &api).await?;
    match api.daemon.store().reveal(id, &actor.name, &reason(why, &api.daemon.config())?, api.daemon.now_ms()).await? {
        Revealed::Original(original) => Ok((NO_STORE, Json(answer(id, *original))).into_response()),
        Revealed::NotKept => {
            let detail = format!(
                "the original of dead letter {id} is not kept (keep_original of its kind, or original_retention), so that \
                 nobody can see it"
            );
            Err(conflict("original_not_kept", detail).into())
        }
        Revealed::NotOpen { state } => Err(not_open(id, &state)),
        Revealed::NotFound => Err(no_letter(id)),
    }
}

fn answer(id: DeadLetterId, original: Original) -> RevealAnswer {
    let Original { job, kind, lane, content_type, key, metadata, payload } = original;
    RevealAnswer {
        id: id.0,
        job_id: job,
        kind,
        lane,
        key,
        metadata: metadata.into_iter().collect(),
        content_type,
        payload_base64: BASE64_STANDARD.encode(payload),
    }
}
