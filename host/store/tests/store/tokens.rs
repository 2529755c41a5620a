//! O5 on the store: tokens by name, number and digest, and when they were used last.

use leasehold_domain::{Digest, token::TokenName};
use leasehold_store::{AddedToken, NewToken, RevokedToken, TokenReference, TokenRow};

use crate::queue::Queue;

const HOUR_MS: i64 = 3_600_000;

fn name(name: &str) -> TokenName {
    TokenName::new(name).unwrap()
}

async fn add(queue: &Queue, token: &str, digest: &[u8]) -> TokenRow {
    let token = NewToken { name: name(token), role: "operate", digest: Digest::of(digest), expires_at_ms: Some(99) };
    match queue.store.add_token(token, "ann", 5).await.unwrap() {
        AddedToken::Added(row) => row,
        AddedToken::NameTaken(row) => panic!("{row:?}"),
    }
}

#[tokio::test]
async fn o5_a_token_is_found_by_its_digest_alone_and_listed_with_the_others() {
    let queue = Queue::new().await;
    let (first, second) = (add(&queue, "ci", b"1").await, add(&queue, "backup", b"2").await);
    let expected = TokenRow {
        id: first.id,
        name: "ci".into(),
        role: "operate".into(),
        created_at_ms: 5,
        created_by: "ann".into(),
        expires_at_ms: Some(99),
        revoked_at_ms: None,
        revoked_by: None,
        last_used_at_ms: None,
    };
    assert_eq!(first, expected);
    assert_eq!(queue.store.token(Digest::of(b"1")).await.unwrap(), Some(first.clone()));
    assert_eq!(queue.store.token(Digest::of(b"3")).await.unwrap(), None);
    assert_eq!(queue.store.tokens().await.unwrap(), [second, first]);
}

#[tokio::test]
async fn o5_a_revoked_tokens_name_can_be_given_again_and_a_live_ones_can_not() {
    let queue = Queue::new().await;
    let first = add(&queue, "ci", b"1").await;
    let again = NewToken { name: name("ci"), role: "view", digest: Digest::of(b"2"), expires_at_ms: None };
    assert_eq!(queue.store.add_token(again, "ann", 6).await.unwrap(), AddedToken::NameTaken(first.clone()));
    let by_name = || TokenReference::Name(name("ci"));
    let revoked = TokenRow { revoked_at_ms: Some(7), revoked_by: Some("bob".into()), ..first.clone() };
    assert_eq!(queue.store.revoke_token(by_name(), "bob", 7).await.unwrap(), RevokedToken::Now(revoked.clone()));
    assert_eq!(queue.store.revoke_token(by_name(), "bob", 8).await.unwrap(), RevokedToken::Before(revoked.clone()));
    let second = add(&queue, "ci", b"2").await;
    let old = TokenReference::Id(first.id);
    assert_eq!(queue.store.revoke_token(old, "bob", 9).await.unwrap(), RevokedToken::Before(revoked));
    let RevokedToken::Now(row) = queue.store.revoke_token(by_name(), "bob", 9).await.unwrap() else { panic!() };
    assert_eq!(row.id, second.id, "of one name, the live one is meant");
    assert_eq!(queue.store.revoke_token(TokenReference::Id(4711), "bob", 9).await.unwrap(), RevokedToken::NotFound);
}

#[tokio::test]
async fn o5_a_tokens_last_use_is_known_to_the_hour() {
    let queue = Queue::new().await;
    add(&queue, "ci", b"1").await;
    for (used_at_ms, known_ms) in
        [(HOUR_MS + 5, HOUR_MS), (2 * HOUR_MS - 1, HOUR_MS), (2 * HOUR_MS, 2 * HOUR_MS), (HOUR_MS, 2 * HOUR_MS)]
    {
        let token = queue.store.token(Digest::of(b"1")).await.unwrap().expect("the token");
        queue.store.note_token_use(&token, used_at_ms).await.unwrap();
        let token = queue.store.token(Digest::of(b"1")).await.unwrap().expect("the token");
        assert_eq!(token.last_used_at_ms, Some(known_ms), "used at {used_at_ms}");
    }
}
