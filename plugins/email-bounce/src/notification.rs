//! A bounce notification in the forms in which providers send it. It never decides what is done about one.

use leasehold_guest::Failure;
use serde::{Deserialize, Deserializer, Serialize};

/// The payload.
#[derive(Clone, Deserialize, Serialize)]
pub(crate) struct Notification {
    #[serde(alias = "email", alias = "Email")]
    pub(crate) recipient: String,
    #[serde(rename = "type", alias = "Type", alias = "bounceType")]
    kind: String,
    /// The provider's id of the message, as it answered the send.
    #[serde(default, deserialize_with = "text", alias = "messageId", alias = "MessageID")]
    pub(crate) message_id: Option<String>,
    /// The notification's own id.
    #[serde(default, deserialize_with = "text", alias = "ID", alias = "feedbackId")]
    pub(crate) id: Option<String>,
    /// How many times the send was looked for.
    #[serde(default)]
    pub(crate) looked: u32,
}

/// What is known of the mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// There is no such recipient.
    Hard,
    /// The recipient could not take the mail this time.
    Soft,
    /// The recipient does not want such mail.
    Complaint,
}

/// Ids are strings with some providers and numbers with others.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Id {
        Text(String),
        Number(u64),
    }
    Ok(Option::<Id>::deserialize(deserializer)?.map(|id| match id {
        Id::Text(text) => text,
        Id::Number(number) => number.to_string(),
    }))
}

impl Notification {
    /// What the notification says, whatever the case and the marks between its words; poison when it says neither.
    pub(crate) fn kind(&self) -> Result<Kind, Failure> {
        let word: String = self.kind.chars().filter(|character| character.is_alphanumeric()).collect();
        match word.to_lowercase().as_str() {
            "hard" | "hardbounce" | "permanent" => Ok(Kind::Hard),
            "soft" | "softbounce" | "transient" => Ok(Kind::Soft),
            "complaint" | "spamcomplaint" | "spamreport" | "abuse" => Ok(Kind::Complaint),
            _ => Err(Failure::poison("payload.invalid", "the type is none of hard, soft and complaint")),
        }
    }

    /// The id of the message without the brackets in which mail itself writes it.
    pub(crate) fn message_id(&self) -> Option<&str> {
        let id = self.message_id.as_deref()?.trim();
        let bare = id.strip_prefix('<').and_then(|id| id.strip_suffix('>')).unwrap_or(id);
        (!bare.is_empty()).then_some(bare)
    }
}
