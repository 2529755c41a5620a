//! `leasehold dlq replay --kind`: replays many dead letters. It shows what would be done before it does it, and starts
//! nothing that it has not shown or been told to start unseen.

use std::{
    collections::BTreeMap,
    io::{self, BufRead as _, IsTerminal as _, Write as _},
};

use clap::Args;
use leasehold_api::{
    BulkReplayPreview, BulkReplayPreviewRequest, BulkReplayRequest, BulkReplayView, RefusedReplays, ReplaySelection,
    Timestamp,
};
use leasehold_domain::{Cause, bulk_replay::Rate};

use super::{
    Failure, Session, dlq, payload, replays,
    text::{escape, fields, section, short_digest, table},
};

/// Which dead letters to replay together, and how to go about it.
#[derive(Debug, Args)]
pub struct ManyArguments {
    /// Replay the open dead letters of this kind
    #[arg(long)]
    pub kind: Option<String>,
    /// Only those of this error class
    #[arg(long, requires = "kind")]
    class: Option<String>,
    /// Only those of this cause
    #[arg(long, requires = "kind", value_parser = dlq::cause)]
    cause: Option<Cause>,
    /// Only those that died on this handler version
    #[arg(long, requires = "kind", value_name = "VERSION")]
    died_on: Option<String>,
    /// Only those that died since then: a time such as 2026-03-01T09:30:00Z, or a span before now such as 2h
    #[arg(long, requires = "kind", value_name = "TIME|SPAN", value_parser = moment)]
    since: Option<Timestamp>,
    /// Only those that died before then: a time, or a span before now
    #[arg(long, requires = "kind", value_name = "TIME|SPAN", value_parser = moment)]
    until: Option<Timestamp>,
    /// Show what would be replayed and what would be refused, and change nothing
    #[arg(long, requires = "kind")]
    dry_run: bool,
    /// Try one first; the others go only when its job ends well
    #[arg(long, requires = "kind")]
    probe: bool,
    /// How fast they go, such as 20/s, 600/m or 100/h [default: as fast as can be]
    #[arg(long, requires = "kind", value_parser = rate)]
    rate: Option<Rate>,
    /// Start without asking
    #[arg(long, short = 'y', requires = "kind")]
    yes: bool,
}

/// What else is said with a replay.
#[derive(Debug)]
pub struct Said {
    /// Why.
    pub reason: String,
    /// The version to run on.
    pub version: Option<String>,
    /// Why on a version that the jobs have died on.
    pub override_reason: Option<String>,
}

fn rate(text: &str) -> Result<Rate, String> {
    text.parse().map_err(|error: leasehold_domain::bulk_replay::RateError| error.to_string())
}

/// A time as it stands, or a span before now.
fn moment(text: &str) -> Result<Timestamp, String> {
    let expected =
        || "a time is written like 2026-03-01T09:30:00Z, a span before now like 90s, 5m, 1h30m or 2d".to_owned();
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let span_ms = payload::duration_ms(text).map_err(|_| expected())?;
    let now_ms = jiff::Timestamp::now().as_millisecond();
    let at_ms = now_ms.checked_sub(i64::try_from(span_ms).unwrap_or(i64::MAX)).ok_or_else(expected)?;
    Ok(Timestamp::from_ms(at_ms))
}

/// Previews, asks where it has to, and starts.
pub async fn run(kind: String, many: ManyArguments, said: Said, session: &Session) -> Result<(), Failure> {
    let asks = !many.yes && !many.dry_run;
    if asks && !can_ask(session) {
        return Err(Failure::Usage {
            code: "confirmation_needed",
            message: "nobody can be asked here whether to go ahead: look at it with --dry-run, then say --yes"
                .to_owned(),
        });
    }
    let ManyArguments { class, cause, died_on, since, until, dry_run, probe, rate, .. } = many;
    let selection = ReplaySelection { kind, class, cause, died_on, since, until };
    let Said { reason, version, override_reason } = said;
    let asked = BulkReplayPreviewRequest { selection, version, override_reason };
    let preview = session.client.preview_bulk_replay(&asked).await?;
    if dry_run {
        return session.output.show(&preview, |preview| shown(&asked, preview));
    }
    let Some(token) = preview.token.clone() else { return Err(nothing_to_start(&asked, &preview)) };
    if asks {
        session.output.text(&shown(&asked, &preview))?;
        confirm(&preview)?;
    }
    let BulkReplayPreviewRequest { selection, version, override_reason } = asked;
    let rate = rate.map(|rate| rate.to_string());
    let request = BulkReplayRequest { selection, version, override_reason, token: Some(token), reason, rate, probe };
    let started = session.client.start_bulk_replay(&request).await?;
    session.output.show(&started, has_started)
}

/// Whether there is a person at the other end who can see the question and answer it.
fn can_ask(session: &Session) -> bool {
    !session.output.is_json() && io::stdin().is_terminal() && io::stderr().is_terminal()
}

fn confirm(preview: &BulkReplayPreview) -> Result<(), Failure> {
    let version = preview.version.as_deref().map(escape).unwrap_or_default();
    let mut err = io::stderr().lock();
    write!(err, "\nReplay {} onto {version}? [y/N] ", number(preview.replayable, "dead letter"))?;
    err.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::Failed { code: "not_confirmed", message: "nothing was replayed".to_owned() }),
    }
}

/// Why a preview can't be started from: nothing matches, or nothing of it would go through.
fn nothing_to_start(asked: &BulkReplayPreviewRequest, preview: &BulkReplayPreview) -> Failure {
    let kind = &asked.selection.kind;
    let refusals: Vec<_> = preview.refused.iter().map(refusal_line).collect();
    let message = if refusals.is_empty() {
        format!("no open dead letter of kind {kind} matches; see `leasehold dlq ls --kind {kind}`")
    } else {
        format!("none of {} would go through: {}", number(preview.matching, "dead letter"), refusals.join("; "))
    };
    Failure::Failed { code: "nothing_to_replay", message }
}

fn refusal_line(refused: &RefusedReplays) -> String {
    let RefusedReplays { code, count, detail, .. } = refused;
    format!("{count} × {code}: {detail}")
}

fn has_started(view: &BulkReplayView) -> String {
    let counts = &view.counts;
    let mut lines = vec![format!(
        "bulk replay {} has started: {} onto {} ({})",
        view.id,
        number(counts.members, "dead letter"),
        escape(&view.version),
        escape(&short_digest(&view.digest))
    )];
    lines.extend(replays::left_out(counts));
    lines.push(format!("see how it goes: leasehold replays wait {}", view.id));
    lines.join("\n")
}

/// A number of things.
pub fn number(count: u64, thing: &str) -> String {
    if count == 1 { format!("1 {thing}") } else { format!("{count} {thing}s") }
}

fn shown(asked: &BulkReplayPreviewRequest, preview: &BulkReplayPreview) -> String {
    let mut parts = vec![fields(facts(asked, preview))];
    for (title, counts) in [
        ("By cause", &preview.by_cause),
        ("By error class", &preview.by_class),
        ("By version they died on", &preview.by_version),
    ] {
        if !counts.is_empty() {
            parts.push(section(title, &counted(counts)));
        }
    }
    if !preview.refused.is_empty() {
        parts.push(section("Would be refused", &refused(&preview.refused)));
    }
    parts.join("\n\n")
}

fn facts(asked: &BulkReplayPreviewRequest, preview: &BulkReplayPreview) -> Vec<(&'static str, String)> {
    let digest = preview.digest.as_deref().map(short_digest).unwrap_or_default();
    let steps = |count: u64, what: &str| {
        if count == 0 { String::new() } else { format!("{count} of {}: {what}", preview.matching) }
    };
    vec![
        ("Kind", asked.selection.kind.clone()),
        ("Match", number(preview.matching, "open dead letter")),
        ("Would go through", preview.replayable.to_string()),
        ("Onto", preview.version.as_ref().map(|version| format!("{version} ({digest})")).unwrap_or_default()),
        ("With applied steps", steps(preview.with_applied_steps, "what was applied is not applied again")),
        ("With steps in doubt", steps(preview.with_steps_in_doubt, "nobody knows whether those were applied")),
    ]
}

fn counted(counts: &BTreeMap<String, u64>) -> String {
    table(["", "DEAD LETTERS"], counts.iter().map(|(name, count)| [name.clone(), count.to_string()]))
}

/// What is refused, by reason, with what would make it go through.
pub fn refused(refused: &[RefusedReplays]) -> String {
    let row = |refused: &RefusedReplays| {
        let examples: Vec<_> = refused.examples.iter().map(ToString::to_string).collect();
        [refused.code.clone(), refused.count.to_string(), examples.join(" "), refused.detail.clone()]
    };
    table(["CODE", "HOW MANY", "SUCH AS", "WHY, AND WHAT TO DO"], refused.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_a_moment_is_a_time_or_a_span_before_now() {
        assert_eq!(moment("2026-03-01T09:30:00Z").unwrap().to_string(), "2026-03-01T09:30:00.000Z");
        let now_ms = jiff::Timestamp::now().as_millisecond();
        let at_ms = moment("2h").unwrap().as_ms();
        assert!((now_ms - 7_200_000 - at_ms).abs() < 60_000, "{at_ms}");
        for wrong in ["", "yesterday", "-2h", "2026-03-01"] {
            assert!(moment(wrong).unwrap_err().contains("2026-03-01T09:30:00Z"), "{wrong}");
        }
    }
}
