//! Tokens: made, listed and revoked. The answer that carries a token is kept by nobody on its way.

use axum::{
    Extension, Json,
    body::Body,
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use leasehold_api::{Page, Problem, Role, Timestamp, TokenAnswer, TokenRequest, TokenState, TokenView};
use leasehold_domain::token::{self, TokenName};
use leasehold_store::{RevokedToken, StoreError, TokenReference, TokenRow};

use super::{
    Api, body,
    refusal::{NO_STORE, Refusal, conflict, invalid, not_found, problem_of_store},
};
use crate::{
    config::{self, Actor},
    tokens::TokenError,
};

/// The longest time for which a token can be made; one without an end is made by naming none.
const EXPIRES_IN_MAX_MS: u64 = 10 * 366 * 86_400_000;

pub(super) async fn add(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    body: Body,
) -> Result<Response, Refusal> {
    let TokenRequest { name, role, expires_in_ms } = body::read_json(body, &api).await?;
    let name = TokenName::new(&name).map_err(|error| invalid("invalid_token_name", error.to_string()))?;
    let expires_in_ms = expires_in_ms.map(expires_in).transpose()?;
    let (row, token) = api
        .daemon
        .add_token(name, kept_role(role), expires_in_ms, &actor.name)
        .await
        .map_err(|error| refused(&error))?;
    let answer = TokenAnswer { view: view(&api, row)?, token: token.to_string() };
    Ok((StatusCode::CREATED, NO_STORE, Json(answer)).into_response())
}

fn expires_in(span_ms: u64) -> Result<i64, Problem> {
    let within = Some(span_ms).filter(|span_ms| (1..=EXPIRES_IN_MAX_MS).contains(span_ms));
    within.and_then(|span_ms| i64::try_from(span_ms).ok()).ok_or_else(|| {
        let detail = format!("expires_in_ms is {span_ms}; allowed is 1 to {EXPIRES_IN_MAX_MS} (ten years)");
        invalid("invalid_expiry", detail)
    })
}

const fn kept_role(role: Role) -> config::Role {
    match role {
        Role::Enqueue => config::Role::Enqueue,
        Role::View => config::Role::View,
        Role::Operate => config::Role::Operate,
        Role::Admin => config::Role::Admin,
    }
}

const fn shown_role(role: config::Role) -> Role {
    match role {
        config::Role::Enqueue => Role::Enqueue,
        config::Role::View => Role::View,
        config::Role::Operate => Role::Operate,
        config::Role::Admin => Role::Admin,
    }
}

fn refused(error: &TokenError) -> Problem {
    match error {
        TokenError::NameTaken { .. } => conflict(error.code(), error.to_string()),
        TokenError::NoRandomness(_) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.code(), error.to_string()),
        TokenError::Store(error) => problem_of_store(error),
    }
}

pub(super) async fn list(State(api): State<Api>) -> Result<Json<Page<TokenView>>, Refusal> {
    let rows = api.daemon.store().tokens().await?;
    let items = rows.into_iter().map(|row| view(&api, row)).collect::<Result<_, _>>()?;
    Ok(Json(Page { items, next_cursor: None }))
}

pub(super) async fn revoke(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Path(named): Path<String>,
) -> Result<Json<TokenView>, Refusal> {
    let reference = match named.parse() {
        Ok(id) => TokenReference::Id(id),
        Err(_) => TokenReference::Name(TokenName::new(&named).map_err(|_| no_token(&named))?),
    };
    match api.daemon.revoke_token(reference, &actor.name).await? {
        RevokedToken::Now(row) => Ok(Json(view(&api, row)?)),
        RevokedToken::Before(row) => {
            let detail = format!("token {} (id {}) is revoked already", row.name, row.id);
            Err(conflict("already_revoked", detail).with("id", row.id).into())
        }
        RevokedToken::NotFound => Err(no_token(&named)),
    }
}

fn no_token(named: &str) -> Refusal {
    // A whole token may have been pasted in the place of its name.
    let named = if named.contains(token::PREFIX) { "that name" } else { named };
    not_found(format!("there is no token {named}; `leasehold tokens ls` lists them by name and id"))
}

fn view(api: &Api, row: TokenRow) -> Result<TokenView, StoreError> {
    let actor = api.daemon.actor_of(&row)?;
    Ok(TokenView {
        id: row.id,
        actor: actor.name,
        role: shown_role(actor.role),
        state: match row.state(api.daemon.now_ms()) {
            token::TokenState::Active => TokenState::Active,
            token::TokenState::Expired => TokenState::Expired,
            token::TokenState::Revoked => TokenState::Revoked,
        },
        created_at: Timestamp::from_ms(row.created_at_ms),
        created_by: row.created_by,
        expires_at: row.expires_at_ms.map(Timestamp::from_ms),
        last_used_at: row.last_used_at_ms.map(Timestamp::from_ms),
        revoked_at: row.revoked_at_ms.map(Timestamp::from_ms),
        revoked_by: row.revoked_by,
        name: row.name,
    })
}
