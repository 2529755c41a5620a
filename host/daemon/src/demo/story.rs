//! The story itself, from the first order to the replay. Each function is one chapter.

use std::path::{Path, PathBuf};

use leasehold_api::{
    ActivateQuery, Client, ClientError, DeadLetterView, EnqueueAnswer, EnqueueRequest, JobView, ReplayAnswer,
    ReplayRequest, WaitQuery,
};
use serde_json::value::RawValue;

use super::{
    DemoError,
    checks::Narrator,
    io,
    process::DaemonProcess,
    provider::{Provider, SLOW_ORDER},
};

const DEFECTIVE: &[u8] = include_bytes!("../../../../tests/guests/components/charge-card@1.0.0.wasm");
const FIXED: &[u8] = include_bytes!("../../../../tests/guests/components/charge-card@1.1.0.wasm");
const KIND: &str = "order.charge";
const CARD: &str = "4242424242424242";
const EMAIL: &str = "jo.doe@example.org";
/// An order of an older client, which names no currency.
const OLD_ORDER: &str = "A-1002";

/// Everything that a chapter needs.
struct Stage<'a> {
    client: &'a Client,
    daemon: &'a DaemonProcess,
    provider: &'a Provider,
    directory: &'a Path,
}

/// Tells the story.
pub(super) async fn tell(
    narrator: &mut Narrator,
    daemon: &DaemonProcess,
    provider: &Provider,
    directory: &Path,
) -> Result<(), DemoError> {
    let stage = Stage { client: daemon.client(), daemon, provider, directory };
    ship_the_handler(narrator, &stage).await?;
    charge_one_order(narrator, &stage).await?;
    send_it_again(narrator, &stage).await?;
    let letter = hit_the_defect(narrator, &stage).await?;
    look_at_the_dead_letter(narrator, &stage, &letter).await?;
    be_refused(narrator, &stage, letter.summary.id).await?;
    swap_the_handler(narrator, &stage).await?;
    replay(narrator, &stage, &letter).await
}

async fn ship_the_handler(narrator: &mut Narrator, stage: &Stage<'_>) -> Result<(), DemoError> {
    narrator.step("A handler is shipped as one file: charge-card 1.0.0");
    let pushed = stage.client.push_handler(None, DEFECTIVE.into()).await?;
    let live = stage.client.activate_handler(&pushed.version, ActivateQuery::default()).await?;
    narrator.show(&format!("{} is live, digest {}", pushed.version, &pushed.digest[..12]));
    narrator.check("it was checked, compiled, linked with what it was granted, and is current", live.current);
    Ok(())
}

async fn charge_one_order(narrator: &mut Narrator, stage: &Stage<'_>) -> Result<(), DemoError> {
    narrator.step("An order goes in. The provider takes 1.8 s, its lease holds for 1 s: the host heartbeats");
    let enqueued = enqueue(stage, SLOW_ORDER, Some("EUR")).await?;
    let job = wait(stage, enqueued.id).await?;
    narrator.show(&format!("job {} is {}", job.summary.id, job.summary.state.as_str()));
    narrator.check("the job is done, on its first attempt", is_done(&job) && job.attempts.len() == 1);
    narrator.check("the card was charged once", stage.provider.count("/charges", SLOW_ORDER) == 1);
    narrator.check("the receipt was sent once", stage.provider.count("/receipts", SLOW_ORDER) == 1);
    Ok(())
}

async fn send_it_again(narrator: &mut Narrator, stage: &Stage<'_>) -> Result<(), DemoError> {
    narrator.step("The shop sends the same order again, as shops do");
    let again = enqueue(stage, SLOW_ORDER, Some("EUR")).await?;
    narrator.check("it gets the first job back, and no second one is made", again.duplicate);
    narrator.check("the card was charged once", stage.provider.count("/charges", SLOW_ORDER) == 1);
    Ok(())
}

async fn hit_the_defect(narrator: &mut Narrator, stage: &Stage<'_>) -> Result<DeadLetterView, DemoError> {
    narrator.step("An order without a currency: 1.0.0 charges the card, then panics, on both attempts");
    let enqueued = enqueue(stage, OLD_ORDER, None).await?;
    let job = wait(stage, enqueued.id).await?;
    narrator.show(&format!("job {} is {}", job.summary.id, job.summary.state.as_str()));
    narrator.check("it was tried twice", job.attempts.len() == 2);
    narrator.check("the card was charged once all the same", stage.provider.count("/charges", OLD_ORDER) == 1);
    narrator.check("no receipt was sent", stage.provider.count("/receipts", OLD_ORDER) == 0);
    narrator.check("the job is a dead letter", job.dead_letters.len() == 1);
    let id = job.dead_letters.first().map_or(0, |letter| letter.id);
    Ok(stage.client.dead_letter(id).await?)
}

async fn look_at_the_dead_letter(
    narrator: &mut Narrator,
    stage: &Stage<'_>,
    letter: &DeadLetterView,
) -> Result<(), DemoError> {
    narrator.step("An operator looks at it, and sees what failed and nobody's data");
    let summary = &letter.summary;
    narrator.show(&format!("cause    {} ({})", summary.cause.as_str(), summary.error_class));
    narrator.show(&format!("message  {}", summary.message));
    narrator.show(&format!("payload  {}", letter.redacted_payload));
    let shown = serde_json::to_string(letter).unwrap_or_default();
    narrator.check("the order can be told", letter.redacted_payload.contains(OLD_ORDER));
    narrator.check("card and e-mail address are nowhere in it", !shown.contains(CARD) && !shown.contains(EMAIL));
    narrator.check("the original is kept, sealed", letter.original_kept);
    let clear = files_with_clear_text(stage.directory).await?;
    let list = clear.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    narrator.show(&list);
    narrator.check("no file of the database and no log holds them in the clear", clear.is_empty());
    Ok(())
}

async fn be_refused(narrator: &mut Narrator, stage: &Stage<'_>, letter: i64) -> Result<(), DemoError> {
    narrator.step("Replaying it now would run the same broken code again");
    let refused = ask_for_replay(stage, letter, None).await;
    tell_refusal(narrator, &refused);
    narrator.check("it is refused: defect_not_fixed", is_refused(&refused, "defect_not_fixed"));
    let pushed = stage.client.push_handler(None, FIXED.into()).await?;
    narrator.show(&format!("{} is pushed, and not live yet", pushed.version));
    let refused = ask_for_replay(stage, letter, Some(pushed.version)).await;
    tell_refusal(narrator, &refused);
    narrator.check("it is refused: version_not_live", is_refused(&refused, "version_not_live"));
    Ok(())
}

async fn swap_the_handler(narrator: &mut Narrator, stage: &Stage<'_>) -> Result<(), DemoError> {
    narrator.step("The fixed version goes live while the daemon runs");
    let before = stage.daemon.id();
    let live = stage.client.activate_handler("charge-card@1.1.0", ActivateQuery::default()).await?;
    narrator.show("charge-card@1.1.0 is live");
    narrator.check("it is current, and the daemon is the same process", live.current && stage.daemon.id() == before);
    Ok(())
}

async fn replay(narrator: &mut Narrator, stage: &Stage<'_>, letter: &DeadLetterView) -> Result<(), DemoError> {
    narrator.step("The dead letter is replayed onto it");
    let replay = ask_for_replay(stage, letter.summary.id, None).await?;
    narrator.show(&format!("job {} runs again, bound to {}", replay.job_id, replay.version));
    let job = wait(stage, replay.job_id).await?;
    narrator.check("the job is done, under its own id", is_done(&job) && job.summary.id == letter.summary.job_id);
    narrator.check("the receipt was sent", stage.provider.count("/receipts", OLD_ORDER) == 1);
    narrator.check("the card was still charged once", stage.provider.count("/charges", OLD_ORDER) == 1);
    narrator.check("every request carried its step's idempotency key", stage.provider.all_keyed());
    let recorded = job.replays.first();
    narrator.check(
        "who replayed it, onto what, and how it ended is on record",
        recorded.is_some_and(|replay| {
            replay.version == "charge-card@1.1.0"
                && replay.result.as_deref() == Some("done")
                && !replay.actor.is_empty()
        }),
    );
    Ok(())
}

async fn enqueue(stage: &Stage<'_>, order: &str, currency: Option<&str>) -> Result<EnqueueAnswer, DemoError> {
    let currency = currency.map_or_else(String::new, |currency| format!(r#","currency":"{currency}""#));
    let payload = format!(r#"{{"order":"{order}","amount_cents":1999,"card":"{CARD}","email":"{EMAIL}"{currency}}}"#);
    let request = EnqueueRequest {
        key: Some(format!("charge-{order}")),
        payload: RawValue::from_string(payload).ok(),
        ..EnqueueRequest::new(KIND)
    };
    Ok(stage.client.enqueue(&request).await?)
}

/// Waits for a job's end and looks at it.
async fn wait(stage: &Stage<'_>, job: i64) -> Result<JobView, DemoError> {
    while !stage.client.wait(job, &WaitQuery::default()).await?.ended {}
    Ok(stage.client.job(job).await?)
}

fn is_done(job: &JobView) -> bool {
    job.summary.state.as_str() == "done"
}

async fn ask_for_replay(stage: &Stage<'_>, letter: i64, version: Option<String>) -> Result<ReplayAnswer, ClientError> {
    let request = ReplayRequest { version, reason: "the currency is fixed".into(), ..ReplayRequest::default() };
    stage.client.replay(letter, &request).await
}

fn tell_refusal(narrator: &Narrator, answer: &Result<ReplayAnswer, ClientError>) {
    if let Err(error) = answer {
        narrator.show(&error.to_string());
    }
}

fn is_refused(answer: &Result<ReplayAnswer, ClientError>, code: &str) -> bool {
    answer.as_ref().is_err_and(|error| error.code() == code)
}

/// The files of the daemon in which a card or an address stands in the clear.
async fn files_with_clear_text(directory: &Path) -> Result<Vec<PathBuf>, DemoError> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(next) = directories.pop() {
        let mut entries = tokio::fs::read_dir(&next).await.map_err(io("the daemon's files"))?;
        while let Some(entry) = entries.next_entry().await.map_err(io("the daemon's files"))? {
            let kind = entry.file_type().await.map_err(io("the daemon's files"))?;
            if kind.is_dir() {
                directories.push(entry.path());
            } else if kind.is_file() {
                let bytes = tokio::fs::read(entry.path()).await.map_err(io("the daemon's files"))?;
                if holds(&bytes, CARD) || holds(&bytes, EMAIL) {
                    found.push(entry.path());
                }
            }
        }
    }
    Ok(found)
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}
