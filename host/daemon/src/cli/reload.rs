//! `leasehold reload`: has the daemon apply its changed configuration.

use leasehold_api::ReloadAnswer;

use super::{Failure, Session, text::escape};

/// Runs the command.
pub async fn run(session: &Session) -> Result<(), Failure> {
    let answer = session.client.reload().await?;
    session.output.show(&answer, shown)
}

fn shown(answer: &ReloadAnswer) -> String {
    format!("{} is in force", escape(&answer.file))
}
