//! O2 on the store: what is counted in the transaction of a dead letter, and what an incident changes about it.

use leasehold_domain::{DeadLetterId, ErrorClass, HandlerVersion, IncidentId, Kind, replay::ReplayRefusal};
use leasehold_store::{
    AuditFilter, Changed, DeadLetterGroup, Discarded, IncidentChange, IncidentRecord, OpenIncident, Opened, Page,
    PageEnd, ReplayAnswer, ReplayRequest, Retention, Store,
};
use rusqlite::Connection;
use serde_json::json;

use crate::queue::{Queue, die, options, replay, settlement};

/// Lets a job of kind `k` die of a class.
async fn dies_of(queue: &Queue, class: &str, now_ms: i64) {
    queue.enqueue_one(now_ms).await;
    let claimed = queue.lease(now_ms).await;
    let mut settled = settlement(&claimed, die(), now_ms);
    settled.attempt.error_class = Some(class.to_owned());
    queue.settle(settled).await;
}

async fn open(queue: &Queue, class: Option<&str>, now_ms: i64) -> Opened {
    let incident = OpenIncident {
        kind: Kind::new("k").unwrap(),
        error_class: class.map(ErrorClass::new),
        note: "seen".into(),
        fixed_in: None,
        actor: "jo".into(),
        now_ms,
    };
    queue.store.open_incident(incident).await.unwrap()
}

async fn close(queue: &Queue, id: IncidentId, now_ms: i64) -> Changed {
    let change = IncidentChange::Close { note: "mended".into(), fixed_in: None };
    queue.store.change_incident(id, change, "jo", now_ms).await.unwrap()
}

/// The arrivals that the pages tell of, the first page first.
async fn paged(queue: &Queue) -> Vec<(String, u64)> {
    let pages = queue.store.pages(None, 100).await.unwrap().items;
    pages.into_iter().rev().map(|page| (page.error_class, page.arrivals)).collect()
}

fn pairs(pairs: &[(&str, u64)]) -> Vec<(String, u64)> {
    pairs.iter().map(|(class, arrivals)| ((*class).to_owned(), *arrivals)).collect()
}

#[tokio::test]
async fn o2_each_class_of_a_kind_is_counted_by_itself_and_pages_at_its_doublings() {
    let queue = Queue::new().await;
    for now_ms in 1..=5 {
        dies_of(&queue, "a", now_ms).await;
    }
    dies_of(&queue, "b", 6).await;
    assert_eq!(paged(&queue).await, pairs(&[("a", 1), ("a", 2), ("a", 4), ("b", 1)]));
    let last = &queue.store.pages(None, 1).await.unwrap().items[0];
    assert_eq!((last.version.as_deref(), last.first_at_ms, last.made_at_ms), (Some("h@1.0.0"), 6, 6));
}

#[tokio::test]
async fn o2_what_an_open_incident_covers_is_counted_on_it_and_counting_starts_anew_at_its_end() {
    let queue = Queue::new().await;
    for now_ms in 1..=3 {
        dies_of(&queue, "a", now_ms).await;
    }
    let Opened::Now(first) = open(&queue, Some("a"), 10).await else { panic!("it was not opened") };
    assert_eq!(open(&queue, Some("a"), 11).await, Opened::Already(first));
    let Opened::Now(whole) = open(&queue, None, 12).await else { panic!("the kind's is another one") };
    dies_of(&queue, "a", 13).await;
    dies_of(&queue, "b", 14).await;
    assert_eq!(paged(&queue).await, pairs(&[("a", 1), ("a", 2)]));
    for (id, class) in [(first, "a"), (whole, "b")] {
        let incident = queue.store.incident(id).await.unwrap().unwrap();
        assert_eq!(incident.record.arrivals, 1, "{class}");
        let group = incident.groups.iter().find(|group| group.error_class == class).unwrap();
        assert_eq!((group.arrivals, group.version.as_deref()), (1, Some("h@1.0.0")));
    }
    assert_eq!(queue.store.incident(first).await.unwrap().unwrap().pages.len(), 2);
    assert_eq!(close(&queue, first, 20).await, Changed::Now);
    assert_eq!(close(&queue, first, 21).await, Changed::AlreadyClosed);
    assert_eq!(close(&queue, IncidentId(99), 21).await, Changed::NotFound);
    dies_of(&queue, "a", 22).await;
    assert_eq!(paged(&queue).await.len(), 2, "the kind's incident still covers it");
    close(&queue, whole, 23).await;
    dies_of(&queue, "a", 24).await;
    assert_eq!(paged(&queue).await, pairs(&[("a", 1), ("a", 2), ("a", 1)]));
    let last = queue.store.pages(None, 1).await.unwrap().items.remove(0);
    assert_eq!((last.previous_incident, last.incident), (Some(whole), None));
    let audited = queue.store.audit(AuditFilter::default(), 10).await.unwrap().items;
    let actions: Vec<_> = audited.iter().rev().map(|entry| entry.action.as_str()).skip(2).collect();
    assert_eq!(actions, ["incident.open", "incident.open", "incident.close", "incident.close"]);
}

#[tokio::test]
async fn o2_a_discard_lowers_what_is_open_and_not_what_has_arrived() {
    let queue = Queue::new().await;
    for now_ms in 1..=3 {
        dies_of(&queue, "a", now_ms).await;
        let discarded = queue.store.discard(DeadLetterId(now_ms), "jo", "given up", now_ms).await.unwrap();
        assert_eq!(discarded, Discarded::Now);
        assert_eq!(queue.store.dead_letter_groups().await.unwrap(), []);
        assert_eq!(queue.store.uncovered_arrivals().await.unwrap(), [], "nothing is open");
    }
    dies_of(&queue, "a", 4).await;
    assert_eq!(paged(&queue).await, pairs(&[("a", 1), ("a", 2), ("a", 4)]));
    let uncovered = queue.store.uncovered_arrivals().await.unwrap();
    assert_eq!((uncovered[0].arrivals, uncovered[0].letters, uncovered[0].first_at_ms), (4, 1, 1));
    dies_of(&queue, "a", 5).await;
    let group = DeadLetterGroup {
        kind: "k".into(),
        error_class: "a".into(),
        version: Some("h@1.0.0".into()),
        letters: 2,
        first_at_ms: 4,
        last_at_ms: 5,
        latest: 5,
        incident: None,
    };
    assert_eq!(queue.store.dead_letter_groups().await.unwrap(), [group]);
}

#[tokio::test]
async fn o2_an_incident_says_for_what_it_is_and_what_came_of_it() {
    let queue = Queue::new().await;
    dies_of(&queue, "a", 1).await;
    dies_of(&queue, "b", 2).await;
    open(&queue, Some("a"), 3).await;
    open(&queue, None, 4).await;
    dies_of(&queue, "a", 5).await;
    close(&queue, IncidentId(1), 6).await;
    let of_kind = IncidentRecord {
        id: IncidentId(2),
        kind: "k".into(),
        error_class: None,
        is_open: true,
        note: "seen".into(),
        fixed_in: None,
        opened_at_ms: 4,
        opened_by: "jo".into(),
        closed_at_ms: None,
        closed_by: None,
        closing_note: None,
        arrivals: 0,
        letters: 3,
    };
    let of_class = IncidentRecord {
        id: IncidentId(1),
        error_class: Some("a".into()),
        is_open: false,
        opened_at_ms: 3,
        closed_at_ms: Some(6),
        closed_by: Some("jo".into()),
        closing_note: Some("mended".into()),
        arrivals: 1,
        letters: 2,
        ..of_kind.clone()
    };
    let all = queue.store.incidents(None, None, 10).await.unwrap();
    assert_eq!(all, Page { items: vec![of_kind, of_class], next: None });
}

#[tokio::test]
async fn r2_a_version_before_the_one_that_an_incident_says_is_fixed_is_refused() {
    let queue = Queue::new().await;
    dies_of(&queue, "a", 1).await;
    dies_of(&queue, "b", 2).await;
    open(&queue, Some("a"), 3).await;
    let fixed_in = HandlerVersion::new("h", "2.0.0").unwrap();
    let change = IncidentChange::FixedIn(Some(fixed_in));
    assert_eq!(queue.store.change_incident(IncidentId(1), change, "jo", 4).await.unwrap(), Changed::Now);
    let with_payload = |letter| ReplayRequest { payload: Some(b"mended".to_vec()), ..replay(DeadLetterId(letter), 5) };
    let refusal =
        ReplayRefusal::NotFixedIn { incident: IncidentId(1), fixed_in: "h@2.0.0".into(), version: "h@1.0.0".into() };
    assert_eq!(queue.store.replay(with_payload(1)).await.unwrap(), ReplayAnswer::Refused(refusal));
    let overridden = ReplayRequest { override_reason: Some("it is urgent".into()), ..with_payload(1) };
    for (replayed, incidents) in [(with_payload(2), json!([])), (overridden, json!([1]))] {
        let answer = queue.store.replay(replayed).await.unwrap();
        assert!(matches!(answer, ReplayAnswer::Replayed { .. }), "{answer:?}");
        let audited = queue.store.audit(AuditFilter::default(), 1).await.unwrap().items.remove(0);
        let detail: serde_json::Value = serde_json::from_str(&audited.detail).unwrap();
        assert_eq!(detail["incidents_overridden"], incidents);
    }
}

#[tokio::test]
async fn o2_a_page_is_due_until_it_is_sent() {
    let queue = Queue::new().await;
    dies_of(&queue, "a", 1).await;
    let page = queue.store.unsent_pages(10).await.unwrap().remove(0);
    let failed = PageEnd::Failed { error: "refused".into(), due_at_ms: 500 };
    queue.store.end_page(page.id, failed, 2).await.unwrap();
    let queue = queue.reopen();
    let again = queue.store.unsent_pages(10).await.unwrap().remove(0);
    assert_eq!((again.failures, again.due_at_ms, again.last_error.as_deref()), (1, 500, Some("refused")));
    assert_eq!(again.token, page.token, "a receiver knows it again");
    queue.store.end_page(page.id, PageEnd::Sent { by: "webhook" }, 600).await.unwrap();
    assert_eq!(queue.store.unsent_pages(10).await.unwrap(), []);
}

#[tokio::test]
async fn o2_a_page_that_was_sent_is_forgotten_by_its_age_and_one_that_was_not_is_kept() {
    let queue = Queue::new().await;
    for now_ms in 1..=2 {
        dies_of(&queue, "a", now_ms).await;
    }
    dies_of(&queue, "b", 3).await;
    let pages = queue.store.unsent_pages(10).await.unwrap();
    for (page, now_ms) in pages.iter().zip([10, 20]) {
        queue.store.end_page(page.id, PageEnd::Sent { by: "webhook" }, now_ms).await.unwrap();
    }
    let retention = Retention { forget_ended_before_ms: 0, trim_ended_before_ms: 20, ended_jobs_max: u64::MAX };
    assert!(!queue.store.retain(retention).await.unwrap(), "one page is no full batch");
    assert_eq!(paged(&queue).await, pairs(&[("a", 2), ("b", 1)]));
    assert_eq!(queue.store.unsent_pages(10).await.unwrap(), pages[2..]);
}

#[tokio::test]
async fn o2_dead_letters_from_before_incidents_are_counted_as_open() {
    let directory = tempfile::tempdir().unwrap();
    let database = Connection::open(options(directory.path()).database()).unwrap();
    database.execute_batch(include_str!("../../migrations/0001_queue.sql")).unwrap();
    let letter = "INSERT INTO dead_letters (job_id, kind, died_at, cause, error_class, message, version, attempt, view,
                                            masked_key, state)
                  VALUES (?1, 'k', ?1, 'poison', 'a', '', 'h@1.0.0', 1, '{}', 'k', ?2)";
    for (job, state) in [(1, "open"), (2, "open"), (3, "replayed")] {
        database.execute(letter, (job, state)).unwrap();
    }
    database.pragma_update(None, "user_version", 1).unwrap();
    drop(database);
    let store = Store::open(&options(directory.path())).unwrap();
    let groups = store.dead_letter_groups().await.unwrap();
    assert_eq!((groups.len(), groups[0].letters, groups[0].latest), (1, 2, 2));
}
