//! Whether a dead letter may be replayed, and onto which version. It never looks anything up.

use crate::{
    Cause, Digest, HandlerState, HandlerVersion, IncidentId, VersionId,
    incident::{Fix, furthest_unmet},
};

/// A stored version as a replay sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its row.
    pub id: VersionId,
    /// Its name and version.
    pub version: HandlerVersion,
    /// Its digest.
    pub digest: Digest,
    /// Where it stands.
    pub state: HandlerState,
    /// Whether its stored component is there and has its digest.
    pub intact: bool,
    /// Whether it is the handler's current version.
    pub current: bool,
}

/// What is known when a replay is asked for.
#[derive(Debug, Clone)]
pub struct ReplayFacts<'a> {
    /// Why the job died.
    pub cause: Cause,
    /// The digests on which this job has died before, this dead letter included.
    pub died_on: &'a [Digest],
    /// All stored versions of the handler.
    pub versions: &'a [Candidate],
    /// The version that the operator named.
    pub asked: Option<&'a HandlerVersion>,
    /// Whether the payload is corrected with the replay.
    pub payload_corrected: bool,
    /// Why the operator overrides the wait for a fix.
    pub override_reason: Option<&'a str>,
    /// Steps in doubt that no operator has resolved, unless the kind begins them again.
    pub unresolved_steps: &'a [String],
    /// What incidents say of the version that mends this dead letter.
    pub fixes: &'a [Fix],
}

/// Why a replay is refused. Each says what would make it go through.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayRefusal {
    /// The version is not live.
    #[error("{wanted} is not live ({state}); live: {live}. Activate it, or name a version that is live.")]
    VersionNotLive {
        /// What was asked for.
        wanted: String,
        /// Where it stands.
        state: String,
        /// The versions that are live.
        live: String,
    },
    /// The version is the one that the job died on.
    #[error(
        "{version} is the component ({digest}) on which this job has died before; activate a fixed version, correct the payload (--payload), or go ahead with --override-reason"
    )]
    DefectNotFixed {
        /// The version that the replay would have run on.
        version: String,
        /// Its digest, shortened.
        digest: String,
    },
    /// An incident says that a later version mends what the job died of.
    #[error(
        "incident {incident} says that this is fixed in {fixed_in}, and the replay would run on {version}; activate {fixed_in} or a later one, correct the incident (leasehold incidents edit {incident}), or go ahead with --override-reason"
    )]
    NotFixedIn {
        /// The incident.
        incident: IncidentId,
        /// The first version that is fixed.
        fixed_in: String,
        /// The version that the replay would have run on.
        version: String,
    },
    /// A step in doubt has to be resolved by an operator first.
    #[error(
        "steps in doubt: {steps}; find out whether each was applied, and say so with the replay (--step NAME=applied or NAME=not-applied)"
    )]
    StepUnresolved {
        /// Their names.
        steps: String,
    },
}

impl ReplayRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::VersionNotLive { .. } => "version_not_live",
            Self::DefectNotFixed { .. } => "defect_not_fixed",
            Self::NotFixedIn { .. } => "not_fixed_in",
            Self::StepUnresolved { .. } => "step_unresolved",
        }
    }
}

/// Picks the version that a replay is bound to, or refuses.
pub fn choose_target<'a>(facts: &ReplayFacts<'a>) -> Result<&'a Candidate, ReplayRefusal> {
    let target = live_target(facts.versions, facts.asked)?;
    if !facts.unresolved_steps.is_empty() {
        return Err(ReplayRefusal::StepUnresolved { steps: facts.unresolved_steps.join(", ") });
    }
    let overridden = facts.override_reason.is_some_and(|reason| !reason.trim().is_empty());
    // A corrected payload mends its own job; it does not mend what the incident found in the handler.
    if let Some(fix) = furthest_unmet(facts.fixes, &target.version).filter(|_| !overridden) {
        return Err(ReplayRefusal::NotFixedIn {
            incident: fix.incident,
            fixed_in: fix.fixed_in.to_string(),
            version: target.version.to_string(),
        });
    }
    let excused = facts.payload_corrected || overridden;
    // Nothing ran for a refused replay, so the deaths before it still count.
    let blames = facts.cause.blames_handler() || facts.cause == Cause::ReplayRefused;
    if blames && facts.died_on.contains(&target.digest) && !excused {
        return Err(ReplayRefusal::DefectNotFixed {
            version: target.version.to_string(),
            digest: target.digest.short(),
        });
    }
    Ok(target)
}

/// The version that was named, else the current one, if it is intact and live.
pub fn live_target<'a>(
    versions: &'a [Candidate],
    asked: Option<&HandlerVersion>,
) -> Result<&'a Candidate, ReplayRefusal> {
    let found = versions.iter().find(|candidate| match asked {
        Some(asked) => candidate.version == *asked,
        None => candidate.current,
    });
    found.filter(|candidate| is_live(candidate)).ok_or_else(|| not_live(versions, asked, found))
}

fn is_live(candidate: &Candidate) -> bool {
    candidate.state == HandlerState::Live && candidate.intact
}

fn not_live(versions: &[Candidate], asked: Option<&HandlerVersion>, found: Option<&Candidate>) -> ReplayRefusal {
    let live: Vec<_> = versions.iter().filter(|c| is_live(c)).map(|c| c.version.to_string()).collect();
    ReplayRefusal::VersionNotLive {
        wanted: asked.map_or_else(|| "the handler's current version".to_owned(), ToString::to_string),
        state: match found {
            None => "not stored".to_owned(),
            Some(candidate) if !candidate.intact => "its stored component is missing or damaged".to_owned(),
            Some(candidate) => candidate.state.as_str().to_owned(),
        },
        live: if live.is_empty() { "none".to_owned() } else { live.join(", ") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(version: &str, state: HandlerState, current: bool) -> Candidate {
        Candidate {
            id: VersionId(1),
            version: version.parse().unwrap(),
            digest: Digest::of(version.as_bytes()),
            state,
            intact: true,
            current,
        }
    }

    fn facts<'a>(versions: &'a [Candidate], died_on: &'a [Digest]) -> ReplayFacts<'a> {
        ReplayFacts {
            cause: Cause::Poison,
            died_on,
            versions,
            asked: None,
            payload_corrected: false,
            override_reason: None,
            unresolved_steps: &[],
            fixes: &[],
        }
    }

    #[test]
    fn r1_a_replay_takes_the_current_version_or_the_named_live_one() {
        let versions =
            [candidate("h@1.0.0", HandlerState::Live, false), candidate("h@1.1.0", HandlerState::Live, true)];
        let named = "h@1.0.0".parse().unwrap();
        assert_eq!(choose_target(&facts(&versions, &[])).unwrap().version.to_string(), "h@1.1.0");
        let chosen = choose_target(&ReplayFacts { asked: Some(&named), ..facts(&versions, &[]) }).unwrap();
        assert_eq!(chosen.version, named);
    }

    #[test]
    fn r1_a_version_that_is_not_intact_and_live_is_refused_with_what_is_live() {
        let mut versions =
            vec![candidate("h@1.0.0", HandlerState::Retired, false), candidate("h@1.1.0", HandlerState::Live, true)];
        for named in ["h@1.0.0", "h@9.9.9"] {
            let named = named.parse().unwrap();
            let refusal = choose_target(&ReplayFacts { asked: Some(&named), ..facts(&versions, &[]) }).unwrap_err();
            assert_eq!(refusal.code(), "version_not_live");
            assert!(refusal.to_string().contains("live: h@1.1.0"), "{refusal}");
        }
        versions[1].intact = false;
        assert_eq!(choose_target(&facts(&versions, &[])).unwrap_err().code(), "version_not_live");
    }

    #[test]
    fn r1_a_refusal_says_where_the_version_stands_that_was_asked_for() {
        let damaged = Candidate { intact: false, ..candidate("h@1.2.0", HandlerState::Live, false) };
        let versions = [candidate("h@1.0.0", HandlerState::Retired, true), damaged];
        for (named, told) in [
            (None, "the handler's current version is not live (retired); live: none."),
            (Some("h@1.0.0"), "h@1.0.0 is not live (retired); live: none."),
            (Some("h@1.2.0"), "h@1.2.0 is not live (its stored component is missing or damaged); live: none."),
            (Some("h@9.9.9"), "h@9.9.9 is not live (not stored); live: none."),
        ] {
            let asked = named.map(|named| named.parse().unwrap());
            let refusal = live_target(&versions, asked.as_ref()).unwrap_err().to_string();
            assert!(refusal.starts_with(told), "{refusal}");
        }
    }

    #[test]
    fn r2_a_version_that_the_job_died_on_is_refused_unless_excused() {
        let versions = [candidate("h@1.0.0", HandlerState::Live, true)];
        let died_on = [versions[0].digest];
        let base = facts(&versions, &died_on);
        assert_eq!(choose_target(&base).unwrap_err().code(), "defect_not_fixed");
        assert!(choose_target(&ReplayFacts { payload_corrected: true, ..base.clone() }).is_ok());
        assert!(choose_target(&ReplayFacts { override_reason: Some("provider was down"), ..base.clone() }).is_ok());
        assert!(choose_target(&ReplayFacts { override_reason: Some(" "), ..base.clone() }).is_err());
        assert!(choose_target(&ReplayFacts { cause: Cause::Exhausted, ..base }).is_ok());
    }

    #[test]
    fn r8_a_step_in_doubt_is_resolved_first() {
        let versions = [candidate("h@1.0.0", HandlerState::Live, true)];
        let unresolved = ["charge".to_owned()];
        let refusal =
            choose_target(&ReplayFacts { unresolved_steps: &unresolved, ..facts(&versions, &[]) }).unwrap_err();
        assert_eq!(refusal.code(), "step_unresolved");
    }

    #[test]
    fn o2_an_incident_that_names_its_fix_refuses_what_is_older_unless_overridden() {
        let versions =
            [candidate("h@1.0.0", HandlerState::Live, false), candidate("h@1.2.0", HandlerState::Live, true)];
        let fixes = [Fix { incident: IncidentId(7), fixed_in: "h@1.1.0".parse().unwrap() }];
        let old = "h@1.0.0".parse().unwrap();
        let base = ReplayFacts { cause: Cause::Rejected, fixes: &fixes, ..facts(&versions, &[]) };
        assert_eq!(choose_target(&base).unwrap().version.to_string(), "h@1.2.0");
        let onto_old = ReplayFacts { asked: Some(&old), ..base };
        let refusal = choose_target(&onto_old).unwrap_err();
        assert_eq!(refusal.code(), "not_fixed_in");
        assert!(refusal.to_string().starts_with("incident 7 says that this is fixed in h@1.1.0"), "{refusal}");
        assert!(choose_target(&ReplayFacts { payload_corrected: true, ..onto_old.clone() }).is_err());
        assert!(choose_target(&ReplayFacts { override_reason: Some("it works there"), ..onto_old }).is_ok());
    }
}
