//! Masks everything that an attempt leaves for operators, before any of it is written. What can't be masked, or not in
//! time, is masked whole; nothing waits for it, and nothing of it is shown.

use std::{sync::Arc, time::Duration};

use leasehold_domain::{
    Effect, KindPolicy, Note,
    redaction::{Masker, Miss, REDACTED, Subject, TextMasker},
};
use leasehold_store::Contents;

use crate::{config::Config, daemon::InForce, metrics, panics};

/// How long masking may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// What stands for a payload that could not be masked.
const WHOLE_VIEW: &str = "\"[redacted: it could not be opened or masked]\"";

/// The texts of an attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Texts {
    pub(crate) message: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) log: Option<String>,
    pub(crate) trap: Option<String>,
}

impl Texts {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn map(self, mask: impl Fn(String) -> String) -> Self {
        Self {
            message: self.message.map(&mask),
            reason: self.reason.map(&mask),
            log: self.log.map(&mask),
            trap: self.trap.map(&mask),
        }
    }
}

/// What operators may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Redacted {
    pub(crate) texts: Texts,
    /// The payload, for a dead letter.
    pub(crate) view: String,
    /// The key, for a dead letter.
    pub(crate) key: String,
    /// Where detectors found something that the policy does not list.
    pub(crate) misses: Vec<Miss>,
}

/// Masks an attempt's texts, and the payload where a dead letter will show it.
pub(crate) async fn redact(
    in_force: &Arc<InForce>,
    policy: &KindPolicy,
    contents: Option<&Arc<Contents>>,
    texts: Texts,
    wants_view: bool,
) -> Redacted {
    let Some(contents) = contents.filter(|_| wants_view || !texts.is_empty()) else { return whole(texts) };
    let (in_force, contents, clear) = (Arc::clone(in_force), Arc::clone(contents), texts.clone());
    let policy_of_work = policy.clone();
    let work =
        tokio::task::spawn_blocking(move || panics::caught(|| mask(&in_force, &policy_of_work, &contents, clear)));
    if let Ok(Ok(Some(redacted))) = tokio::time::timeout(PATIENCE, work).await {
        report_misses(policy, &redacted.misses);
        return redacted;
    }
    tracing::error!("a job's texts could not be masked, or not in time; they are masked whole");
    whole(texts)
}

/// Masks words that somebody typed, such as an operator's reason: by their form, since they belong to no policy.
pub(crate) fn words(config: &Config, text: String) -> String {
    if config.detects() { TextMasker::by_form().mask(&text).into_owned() } else { text }
}

/// Counts what the policy missed and says where it stands, never what it is.
fn report_misses(policy: &KindPolicy, misses: &[Miss]) {
    for miss in misses {
        metrics::redaction_miss(policy.kind.as_str(), miss.class.as_str());
    }
    if !misses.is_empty() {
        let paths: Vec<_> = misses.iter().map(|miss| format!("{} ({})", miss.path, miss.class)).collect();
        tracing::warn!(
            kind = %policy.kind, paths = paths.join(", "),
            "detectors masked fields that the redaction policy does not list"
        );
    }
}

fn whole(texts: Texts) -> Redacted {
    Redacted {
        texts: texts.map(|_| REDACTED.to_owned()),
        view: WHOLE_VIEW.to_owned(),
        key: REDACTED.to_owned(),
        misses: Vec::new(),
    }
}

/// Masks with everything that is known of a job, of each of its payloads if it has several; nothing comes back when that fails or takes too long.
pub(crate) async fn with_maskers<T: Send + 'static>(
    in_force: &Arc<InForce>,
    policy: &KindPolicy,
    contents: Vec<Arc<Contents>>,
    mask: impl FnOnce(&[Masker]) -> T + Send + 'static,
) -> Option<T> {
    let (in_force, policy) = (Arc::clone(in_force), policy.clone());
    let work = move || {
        panics::caught(|| {
            let maskers: Vec<_> = contents.iter().map(|contents| masker(&in_force, &policy, contents)).collect();
            mask(&maskers)
        })
    };
    tokio::time::timeout(PATIENCE, tokio::task::spawn_blocking(work)).await.ok()?.ok()?
}

/// Masks the texts of notes among effects, before any of it is kept: on another job's record it is shown in the clear.
pub(crate) async fn redact_notes(
    in_force: &Arc<InForce>,
    policy: &KindPolicy,
    contents: Option<&Arc<Contents>>,
    mut effects: Vec<Effect>,
) -> Vec<Effect> {
    let texts: Vec<_> = notes(&mut effects).map(|note| note.text.clone()).collect();
    if texts.is_empty() {
        return effects;
    }
    let masked = match contents {
        Some(contents) => {
            let mask = move |maskers: &[Masker]| -> Vec<String> {
                let mask = |text: &String| maskers.iter().fold(text.clone(), |text, masker| masker.text(&text));
                texts.iter().map(mask).collect()
            };
            with_maskers(in_force, policy, vec![Arc::clone(contents)], mask).await
        }
        None => None,
    };
    let mut masked = masked.unwrap_or_default().into_iter();
    for note in notes(&mut effects) {
        note.text = masked.next().unwrap_or_else(|| REDACTED.to_owned());
    }
    effects
}

fn notes(effects: &mut [Effect]) -> impl Iterator<Item = &mut Note> {
    effects.iter_mut().filter_map(|effect| match effect {
        Effect::Annotate(note) => Some(note),
        _ => None,
    })
}

fn mask(in_force: &InForce, policy: &KindPolicy, contents: &Contents, texts: Texts) -> Redacted {
    let masker = masker(in_force, policy, contents);
    Redacted {
        texts: texts.map(|text| masker.text(&text)),
        view: masker.payload_view().to_owned(),
        key: masker.key().to_owned(),
        misses: masker.misses().to_vec(),
    }
}

fn masker(in_force: &InForce, policy: &KindPolicy, contents: &Contents) -> Masker {
    fail::fail_point!("redact.mask");
    let subject = Subject {
        payload: &contents.payload,
        format: policy.payload,
        key: Some(&contents.key),
        metadata: &contents.metadata,
    };
    let grants = in_force.config.handlers.get(&policy.handler).map(|handler| &handler.grants);
    let secrets = grants
        .into_iter()
        .flat_map(|grants| grants.secrets.iter().filter_map(|name| grants.settings.get(name)).map(String::as_bytes));
    let rules = in_force.config.redaction_rules(&policy.kind);
    Masker::new(rules, subject, secrets, in_force.fingerprints.as_ref())
}
