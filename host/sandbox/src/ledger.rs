//! What one attempt has begun, kept and sent so far. It is pure bookkeeping: it never calls the host, and it decides
//! under one lock what a request, a drop and an end of the guest may race for.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_domain::{Effect, StepName};

use crate::CompleteError;

/// What became of an attempt's steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepCounts {
    /// Begun for the first time.
    pub fresh: u32,
    /// Begun again while in doubt.
    pub in_doubt: u32,
    /// Answered with the result that an earlier run stored.
    pub answered_from_store: u32,
    /// Completed.
    pub applied: u32,
    /// Taken back, by the guest or by the host.
    pub taken_back: u32,
    /// Completed too late: a later attempt had taken the step over.
    pub stale: u32,
    /// Left begun, hence in doubt.
    pub left_in_doubt: u32,
}

/// The step that is open.
#[derive(Debug)]
struct OpenStep {
    id: u64,
    name: StepName,
    idempotency_key: String,
    was_in_doubt: bool,
    unsafe_sent: bool,
    completing: bool,
    effects: Vec<Effect>,
}

/// Why a request may not leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendRefusal {
    /// The attempt has ended.
    Ended,
    /// An unsafe method needs an open step.
    OutsideStep,
    /// The step that the request was made under is no longer open.
    StepClosed,
    /// The step has sent an unsafe request, and this one has no key of its own.
    SecondInStep,
}

/// An unsafe request's place in the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnsafeRequest {
    /// The step that it was made under, if one was open.
    pub(crate) step: Option<u64>,
    /// Whether the guest set an `Idempotency-Key` itself.
    pub(crate) has_own_key: bool,
}

/// What becomes of a step that its guest takes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TakenBack {
    /// It is not open.
    NotOpen,
    /// It was in doubt when it was begun and stays so.
    StillInDoubt,
    /// The host takes it back.
    ByHost(StepName),
}

/// The last that this attempt did to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Written {
    /// It stored this.
    Set(Vec<u8>),
    /// It removed it.
    Removed,
}

type ValueKey = (String, String);

/// The books of one attempt.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    closed: bool,
    last_id: u64,
    begun: BTreeSet<StepName>,
    open: Option<OpenStep>,
    /// Effects made outside any step.
    effects: Vec<Effect>,
    /// The last write of each value, except those of the open step.
    written: BTreeMap<ValueKey, Written>,
    pub(crate) counts: StepCounts,
    pub(crate) host_calls: usize,
    pub(crate) kept_bytes: usize,
    pub(crate) requests_in_flight: usize,
    /// The step that another attempt's guest was running.
    pub(crate) in_progress: Option<StepName>,
    /// The unsafe request that was refused for want of an open step.
    pub(crate) refused_outside_step: Option<String>,
}

impl Ledger {
    /// Reserves a step name; false when a step is open or the name has been begun.
    pub(crate) fn reserve(&mut self, name: &StepName) -> bool {
        self.open.is_none() && self.begun.insert(name.clone())
    }

    /// The begin came to nothing, so that the name may be tried again.
    pub(crate) fn release(&mut self, name: &StepName) {
        self.begun.remove(name);
    }

    /// The host has begun the step.
    pub(crate) fn opened(&mut self, name: StepName, idempotency_key: String, was_in_doubt: bool) -> u64 {
        self.last_id += 1;
        if was_in_doubt {
            self.counts.in_doubt += 1;
        } else {
            self.counts.fresh += 1;
        }
        self.open = Some(OpenStep {
            id: self.last_id,
            name,
            idempotency_key,
            was_in_doubt,
            unsafe_sent: false,
            completing: false,
            effects: Vec::new(),
        });
        self.last_id
    }

    /// The step's name and effects, for the host to store; nothing when it is not open. Requests of the step leave no
    /// more from here on.
    pub(crate) fn start_completing(&mut self, id: u64) -> Option<(StepName, Vec<Effect>)> {
        let step = self.open.as_mut().filter(|step| step.id == id && !step.completing)?;
        step.completing = true;
        Some((step.name.clone(), step.effects.clone()))
    }

    /// What the host said to the completion.
    pub(crate) fn completed(&mut self, id: u64, done: Result<(), CompleteError>) {
        let Some(mut step) = self.open.take_if(|step| step.id == id) else { return };
        match done {
            Ok(()) => {
                self.counts.applied += 1;
                for effect in step.effects {
                    note_write(&mut self.written, &effect);
                }
            }
            Err(CompleteError::TooLarge) => {
                step.completing = false;
                self.open = Some(step);
            }
            Err(CompleteError::Stale) => self.counts.stale += 1,
            Err(CompleteError::Unavailable) => self.counts.left_in_doubt += 1,
        }
    }

    /// The guest says that the step's effect was not applied. The step is closed and its effects are dropped.
    pub(crate) fn take_back(&mut self, id: u64) -> TakenBack {
        let Some(step) = self.open.take_if(|step| step.id == id && !step.completing) else {
            return TakenBack::NotOpen;
        };
        // What an earlier attempt did under the same step stays unknown, whatever this run says of itself.
        if step.was_in_doubt {
            self.counts.left_in_doubt += 1;
            return TakenBack::StillInDoubt;
        }
        TakenBack::ByHost(step.name)
    }

    /// The guest let go of the step. The name comes back when the host has to take the step back.
    pub(crate) fn let_go(&mut self, id: u64) -> Option<StepName> {
        let step = self.open.take_if(|step| step.id == id && !step.completing)?;
        if step.was_in_doubt || step.unsafe_sent {
            self.counts.left_in_doubt += 1;
            return None;
        }
        Some(step.name)
    }

    /// The attempt has ended: no request leaves and nothing is kept from here on.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Lets go of whatever step is still open.
    pub(crate) fn let_go_of_open(&mut self) -> Option<StepName> {
        let id = self.open.as_ref()?.id;
        self.let_go(id)
    }

    /// Keeps an effect with the open step, else with the attempt.
    pub(crate) fn keep(&mut self, effect: Effect) {
        if let Some(step) = self.open.as_mut() {
            step.effects.push(effect);
        } else {
            note_write(&mut self.written, &effect);
            self.effects.push(effect);
        }
    }

    /// The effects that were made outside any step.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// This attempt's own last write of a value, if it made one.
    pub(crate) fn own_write(&self, store: &str, key: &str) -> Option<Written> {
        let of_step = self.open.iter().flat_map(|step| step.effects.iter().rev()).find_map(|effect| match effect {
            Effect::Set { store: s, key: k, value } if s == store && k == key => Some(Written::Set(value.clone())),
            Effect::Delete { store: s, key: k } if s == store && k == key => Some(Written::Removed),
            _ => None,
        });
        of_step.or_else(|| self.written.get(&(store.to_owned(), key.to_owned())).cloned())
    }

    /// The keys of a store that this attempt has set (true) or removed.
    pub(crate) fn own_keys(&self, store: &str) -> BTreeMap<String, bool> {
        let mut written = self.written.clone();
        for effect in self.open.iter().flat_map(|step| &step.effects) {
            note_write(&mut written, effect);
        }
        written
            .into_iter()
            .filter(|((s, _), _)| s == store)
            .map(|((_, key), value)| (key, value != Written::Removed))
            .collect()
    }

    /// Where an unsafe request stands when the guest makes it, and the key that goes with it.
    pub(crate) fn place_unsafe(
        &self,
        has_own_key: bool,
        outside_step_granted: bool,
    ) -> Result<(UnsafeRequest, Option<String>), SendRefusal> {
        if self.closed {
            return Err(SendRefusal::Ended);
        }
        match &self.open {
            Some(step) if step.completing => Err(SendRefusal::StepClosed),
            Some(step) if step.unsafe_sent && !has_own_key => Err(SendRefusal::SecondInStep),
            Some(step) => {
                let key = (!has_own_key).then(|| step.idempotency_key.clone());
                Ok((UnsafeRequest { step: Some(step.id), has_own_key }, key))
            }
            None if outside_step_granted => Ok((UnsafeRequest { step: None, has_own_key }, None)),
            None => Err(SendRefusal::OutsideStep),
        }
    }

    /// The last look before bytes leave the host; from here on the step counts as sent.
    pub(crate) fn send(&mut self, request: Option<&UnsafeRequest>) -> Result<(), SendRefusal> {
        if self.closed {
            return Err(SendRefusal::Ended);
        }
        let Some(UnsafeRequest { step: Some(id), has_own_key }) = request else { return Ok(()) };
        let step = self.open.as_mut().filter(|step| step.id == *id && !step.completing);
        let step = step.ok_or(SendRefusal::StepClosed)?;
        if step.unsafe_sent && !has_own_key {
            return Err(SendRefusal::SecondInStep);
        }
        step.unsafe_sent = true;
        Ok(())
    }
}

fn note_write(written: &mut BTreeMap<ValueKey, Written>, effect: &Effect) {
    match effect {
        Effect::Set { store, key, value } => written.insert((store.clone(), key.clone()), Written::Set(value.clone())),
        Effect::Delete { store, key } => written.insert((store.clone(), key.clone()), Written::Removed),
        Effect::Enqueue(_) | Effect::Annotate(_) => None,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> StepName {
        StepName::new(text).unwrap()
    }

    fn open(ledger: &mut Ledger, text: &str, in_doubt: bool) -> u64 {
        assert!(ledger.reserve(&name(text)));
        ledger.opened(name(text), "key".into(), in_doubt)
    }

    fn set(key: &str, value: &str) -> Effect {
        Effect::Set { store: "s".into(), key: key.into(), value: value.into() }
    }

    #[test]
    fn i1_one_step_is_open_at_a_time_and_a_name_is_begun_once() {
        let mut ledger = Ledger::default();
        let id = open(&mut ledger, "a", false);
        assert!(!ledger.reserve(&name("b")));
        assert_eq!(ledger.let_go(id), Some(name("a")));
        assert!(!ledger.reserve(&name("a")));
        assert!(ledger.reserve(&name("b")));
        ledger.release(&name("b"));
        assert!(ledger.reserve(&name("b")));
    }

    #[test]
    fn i3_a_step_is_taken_back_only_when_nothing_unsafe_left_under_it() {
        let mut ledger = Ledger::default();
        let id = open(&mut ledger, "a", false);
        let (request, key) = ledger.place_unsafe(false, false).unwrap();
        assert_eq!(key.as_deref(), Some("key"));
        ledger.send(Some(&request)).unwrap();
        assert_eq!(ledger.let_go(id), None);
        assert_eq!(ledger.counts.left_in_doubt, 1);
    }

    #[test]
    fn i3_a_step_that_was_in_doubt_stays_so_whatever_this_run_says() {
        let mut ledger = Ledger::default();
        let id = open(&mut ledger, "a", true);
        assert_eq!(ledger.let_go(id), None);
        let id = open(&mut ledger, "b", true);
        assert_eq!(ledger.take_back(id), TakenBack::StillInDoubt);
        assert_eq!(ledger.counts.left_in_doubt, 2);
    }

    #[test]
    fn i3_a_request_made_under_a_step_does_not_leave_after_it() {
        let mut ledger = Ledger::default();
        let id = open(&mut ledger, "a", false);
        let (request, _) = ledger.place_unsafe(false, false).unwrap();
        ledger.let_go(id);
        assert_eq!(ledger.send(Some(&request)), Err(SendRefusal::StepClosed));
        let id = open(&mut ledger, "b", false);
        let (request, _) = ledger.place_unsafe(false, false).unwrap();
        ledger.start_completing(id).unwrap();
        assert_eq!(ledger.send(Some(&request)), Err(SendRefusal::StepClosed));
        ledger.close();
        assert_eq!(ledger.send(None), Err(SendRefusal::Ended));
    }

    #[test]
    fn i3_a_second_unsafe_request_in_one_step_needs_a_key_of_its_own() {
        let mut ledger = Ledger::default();
        open(&mut ledger, "a", false);
        let (first, _) = ledger.place_unsafe(false, false).unwrap();
        let (racing, _) = ledger.place_unsafe(false, false).unwrap();
        ledger.send(Some(&first)).unwrap();
        assert_eq!(ledger.send(Some(&racing)), Err(SendRefusal::SecondInStep));
        assert_eq!(ledger.place_unsafe(false, false), Err(SendRefusal::SecondInStep));
        let (keyed, key) = ledger.place_unsafe(true, false).unwrap();
        assert_eq!((ledger.send(Some(&keyed)), key), (Ok(()), None));
    }

    #[test]
    fn h6_an_unsafe_request_outside_a_step_needs_the_grant() {
        let ledger = Ledger::default();
        assert_eq!(ledger.place_unsafe(false, false), Err(SendRefusal::OutsideStep));
        assert!(ledger.place_unsafe(false, true).is_ok());
    }

    #[test]
    fn i4_effects_belong_to_the_open_step_and_fall_with_it() {
        let mut ledger = Ledger::default();
        ledger.keep(set("k", "outside"));
        let id = open(&mut ledger, "a", false);
        ledger.keep(set("k", "inside"));
        assert_eq!(ledger.own_write("s", "k"), Some(Written::Set(b"inside".to_vec())));
        assert_eq!(ledger.take_back(id), TakenBack::ByHost(name("a")));
        assert_eq!(ledger.take_back(id), TakenBack::NotOpen);
        assert_eq!(ledger.own_write("s", "k"), Some(Written::Set(b"outside".to_vec())));
        let id = open(&mut ledger, "b", false);
        ledger.keep(Effect::Delete { store: "s".into(), key: "k".into() });
        assert_eq!(ledger.start_completing(id).unwrap().1.len(), 1);
        ledger.completed(id, Ok(()));
        assert_eq!(ledger.own_write("s", "k"), Some(Written::Removed));
        assert_eq!(ledger.own_keys("s"), BTreeMap::from([("k".to_owned(), false)]));
        assert_eq!(ledger.take_effects(), vec![set("k", "outside")]);
    }

    #[test]
    fn i1_a_result_that_is_too_large_leaves_the_step_open() {
        let mut ledger = Ledger::default();
        let id = open(&mut ledger, "a", false);
        ledger.start_completing(id).unwrap();
        ledger.completed(id, Err(CompleteError::TooLarge));
        assert!(ledger.start_completing(id).is_some());
    }
}
