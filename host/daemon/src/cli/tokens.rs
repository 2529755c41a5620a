//! `leasehold tokens`: makes tokens for callers of the API, lists them and takes them back.

use clap::{Args, Subcommand};
use leasehold_api::{Page, Role, TokenAnswer, TokenRequest, TokenView};

use super::{
    Failure, Session, payload,
    text::{self, table, time},
};

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub enum TokensCommand {
    /// Make a token; it is shown this once and kept nowhere
    Add(AddArguments),
    /// List tokens, the newest first, without the tokens themselves
    Ls,
    /// Take a token back; calls with it are refused from then on
    Revoke(RevokeArguments),
}

/// What token to make.
#[derive(Debug, Args)]
pub struct AddArguments {
    /// Its name, such as ci; its bearer is token:NAME in the audit log
    #[arg(long)]
    name: String,
    /// What its bearer may do: enqueue, view, operate or admin
    #[arg(long, value_parser = role)]
    role: Role,
    /// After which time it ends, such as 90d [default: it does not end by itself]
    #[arg(long, value_name = "TIME", value_parser = payload::duration_ms)]
    expires: Option<u64>,
}

/// Which token to take back.
#[derive(Debug, Args)]
pub struct RevokeArguments {
    /// The token's name or id
    #[arg(value_name = "NAME|ID")]
    token: String,
}

/// Runs the command.
pub async fn run(command: TokensCommand, session: &Session) -> Result<(), Failure> {
    match command {
        TokensCommand::Add(AddArguments { name, role, expires }) => {
            let request = TokenRequest { name, role, expires_in_ms: expires };
            let answer = session.client.add_token(&request).await?;
            if !session.output.is_json() {
                session.output.note(&explained(&answer));
            }
            session.output.show(&answer, |answer| answer.token.clone())
        }
        TokensCommand::Ls => {
            let page = session.client.tokens().await?;
            session.output.show(&page, listed)
        }
        TokensCommand::Revoke(RevokeArguments { token }) => {
            let token = session.client.revoke_token(&token).await?;
            session.output.show(&token, |token| format!("token {} is revoked", text::escape(&token.name)))
        }
    }
}

fn role(text: &str) -> Result<Role, String> {
    Role::parse(text).ok_or_else(|| format!("the roles are {}", Role::ALL.map(Role::as_str).join(", ")))
}

/// What stands beside the token, which alone goes to the standard output.
fn explained(answer: &TokenAnswer) -> String {
    let TokenView { name, actor, role, expires_at, .. } = &answer.view;
    let ends = expires_at.map_or_else(|| "it does not end by itself".to_owned(), |at| format!("it ends {at}"));
    format!("token {name} of {actor}, role {role}; {ends}. It is shown this once: keep it as a secret")
}

fn listed(page: &Page<TokenView>) -> String {
    let header = ["ID", "NAME", "ROLE", "STATE", "ACTOR", "MADE", "BY", "ENDS", "USED IN THE HOUR FROM"];
    let row = |token: &TokenView| {
        [
            token.id.to_string(),
            token.name.clone(),
            token.role.to_string(),
            token.state.as_str().to_owned(),
            token.actor.clone(),
            time(Some(token.created_at)),
            token.created_by.clone(),
            time(token.revoked_at.or(token.expires_at)),
            time(token.last_used_at),
        ]
    };
    table(header, page.items.iter().map(row))
}
