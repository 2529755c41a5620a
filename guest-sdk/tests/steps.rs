//! Steps as a handler sees them, against the mock host: what runs, what is stored, what is taken back and what stays in
//! doubt.

use std::cell::Cell;

use leasehold_guest::{
    BeginError, CompleteError, Failure, Job, Raw, StepError, Success, http, keyvalue,
    mock::{Answer, MockHost, MockJob},
    once,
    outbox::{self, NewJob},
};

const URL: &str = "https://pay.example/charges";

/// Charges in a step, and gives what downstream answered.
fn charge(_job: Job<Raw>) -> Result<Success, Failure> {
    let status = once("charge", "order 1", |_key| {
        let answer = http::Request::post(URL).send()?;
        match answer.status {
            200 => Ok(answer.status),
            429 => Err(StepError::not_applied(Failure::rate_limited("downstream.rate_limited", "", None))),
            _ => Err(StepError::unknown(Failure::retry("downstream.unavailable", ""))),
        }
    })?;
    Success::done_json(&status)
}

fn job() -> MockJob {
    MockJob::raw("")
}

fn class(outcome: Result<Success, Failure>) -> String {
    outcome.expect_err("the attempt must fail").problem().class.clone()
}

#[test]
fn i1_an_applied_step_gives_its_result_and_does_not_run_again() {
    let host = MockHost::new().answer(Answer::status(200));
    assert_eq!(host.run(charge, job()), Ok(Success::done_with("200")));
    assert_eq!(host.run(charge, job().attempt(2)), Ok(Success::done_with("200")));
    assert_eq!(host.requests().len(), 1);
}

#[test]
fn i1_a_result_of_another_form_is_poison() {
    let host = MockHost::new().applied_step("charge", &"not a number");
    assert_eq!(class(host.run(charge, job())), "step.result_unreadable");
    assert!(host.requests().is_empty());
}

#[test]
fn i3_not_applied_takes_a_fresh_step_back() {
    let host = MockHost::new().answer(Answer::status(429));
    assert!(matches!(host.run(charge, job()), Err(Failure::RateLimited(..))));
    assert!(!host.is_in_doubt("charge"));
}

#[test]
fn i3_unknown_leaves_the_step_in_doubt_and_the_next_run_is_told() {
    let host = MockHost::new().answer(Answer::status(500)).answer(Answer::status(200));
    assert_eq!(class(host.run(charge, job())), "downstream.unavailable");
    assert!(host.is_in_doubt("charge"));
    assert!(host.run(charge, job().attempt(2)).is_ok());
    let keys: Vec<_> =
        host.requests().iter().map(|request| request.header("idempotency-key").map(str::to_owned)).collect();
    assert_eq!(keys[0], keys[1]);
    assert!(keys[0].is_some());
}

#[test]
fn i3_not_applied_now_does_not_clear_an_earlier_doubt() {
    let host = MockHost::new().step_in_doubt("charge").answer(Answer::status(429));
    assert!(host.run(charge, job()).is_err());
    assert!(host.is_in_doubt("charge"));
}

#[test]
fn i3_the_effect_is_told_whether_it_is_in_doubt() {
    for (host, expected) in [(MockHost::new(), false), (MockHost::new().step_in_doubt("send"), true)] {
        let told = Cell::new(None);
        let outcome = host.run(
            |_job: Job<Raw>| {
                once("send", "", |key| {
                    told.set(Some(key.in_doubt));
                    Ok(())
                })?;
                Ok(Success::done())
            },
            job(),
        );
        assert_eq!((outcome, told.get()), (Ok(Success::done()), Some(expected)));
    }
}

#[test]
fn i1_a_step_begun_twice_or_inside_another_is_a_conflict() {
    let twice = |_job: Job<Raw>| {
        once("a", "", |_| Ok(()))?;
        once("a", "", |_| Ok(()))?;
        Ok(Success::done())
    };
    let nested = |_job: Job<Raw>| {
        once("a", "", |_| once("b", "", |_| Ok(())).map_err(StepError::not_applied))?;
        Ok(Success::done())
    };
    assert_eq!(class(MockHost::new().run(twice, job())), "step.conflict");
    assert_eq!(class(MockHost::new().run(nested, job())), "step.conflict");
}

#[test]
fn i1_another_fingerprint_is_a_conflict_only_in_doubt() {
    let for_order = |order: &'static str| {
        move |_job: Job<Raw>| {
            once("charge", order, |_| Ok(http::Request::post(URL).send()?.status))?;
            Ok(Success::done())
        }
    };
    let host = MockHost::new().answer(Answer::error(http::ErrorKind::Timeout));
    assert_eq!(class(host.run(for_order("1"), job())), "downstream.timeout");
    assert_eq!(class(host.run(for_order("2"), job())), "step.conflict");

    let host = MockHost::new().answer(Answer::status(200));
    assert!(host.run(for_order("1"), job()).is_ok());
    assert!(host.run(for_order("2"), job()).is_ok());
}

#[test]
fn i1_every_refusal_to_begin_has_its_class() {
    for (error, expected) in [
        (BeginError::InProgress, Failure::retry("step.in_progress", "")),
        (BeginError::LeaseLost, Failure::retry("step.lease_lost", "")),
        (BeginError::Conflict, Failure::poison("step.conflict", "")),
        (BeginError::InvalidName, Failure::poison("step.invalid_name", "")),
        (BeginError::Unavailable, Failure::retry("step.unavailable", "")),
    ] {
        let host = MockHost::new().begin_error(error);
        assert_same_kind(host.run(charge, job()), &expected);
        assert!(host.requests().is_empty(), "{error:?}");
    }
}

#[test]
fn i2_every_refusal_to_complete_has_its_class() {
    for (error, expected) in [
        (CompleteError::Stale, Failure::retry("step.stale", "")),
        (CompleteError::TooLarge, Failure::poison("step.result_too_large", "")),
        (CompleteError::Unavailable, Failure::retry("step.unavailable", "")),
    ] {
        let host = MockHost::new().answer(Answer::status(200)).complete_error(error);
        assert_same_kind(host.run(charge, job()), &expected);
        assert!(host.is_in_doubt("charge"), "{error:?}");
    }
}

fn assert_same_kind(outcome: Result<Success, Failure>, expected: &Failure) {
    let failure = outcome.expect_err("the attempt must fail");
    assert_eq!(std::mem::discriminant(&failure), std::mem::discriminant(expected), "{failure:?}");
    assert_eq!(failure.problem().class, expected.problem().class);
}

#[test]
fn h6_unsafe_requests_leave_only_in_a_step_and_one_by_one() {
    let outside = |_job: Job<Raw>| {
        http::Request::post(URL).send()?;
        Ok(Success::done())
    };
    assert_eq!(class(MockHost::new().run(outside, job())), "downstream.denied");

    let two = |keys: [&'static str; 2]| {
        move |_job: Job<Raw>| {
            once("two", "", |_| {
                for key in keys {
                    let request = http::Request::post(URL);
                    if key.is_empty() { request } else { request.header("Idempotency-Key", key) }.send()?;
                }
                Ok(())
            })?;
            Ok(Success::done())
        }
    };
    let host = || MockHost::new().answer(Answer::status(200)).answer(Answer::status(200));
    assert_eq!(class(host().run(two(["", ""]), job())), "downstream.denied");
    assert_eq!(host().run(two(["a", "b"]), job()), Ok(Success::done()));
}

#[test]
fn i4_jobs_and_values_become_real_with_the_success_alone() {
    let work = |ends_well: bool| {
        move |_job: Job<Raw>| {
            once("in-step", "", |_| {
                outbox::enqueue(NewJob::json("in-step", &1).expect("JSON")).expect("accepted");
                Ok(())
            })?;
            let store = keyvalue::open("s")?;
            outbox::enqueue(NewJob::json("outside", &1).expect("JSON")).expect("accepted");
            store.set("k", b"v")?;
            assert_eq!(store.get("k"), Ok(Some(b"v".to_vec())), "an attempt sees its own writes");
            if ends_well { Ok(Success::done()) } else { Err(Failure::retry("downstream.unavailable", "")) }
        }
    };
    let host = MockHost::new().store("s");
    assert!(host.run(work(false), job()).is_err());
    assert!(host.enqueued().is_empty());
    assert_eq!(host.value("s", "k"), None);

    assert!(host.run(work(true), job().attempt(2)).is_ok());
    let kinds: Vec<_> = host.enqueued().into_iter().map(|job| job.kind).collect();
    assert_eq!(kinds, ["in-step", "outside"]);
    assert_eq!(host.value("s", "k").as_deref(), Some(&b"v"[..]));
}

#[test]
#[should_panic(expected = "there is no host here")]
fn a_call_without_a_host_says_what_is_missing() {
    leasehold_guest::log::info("nobody hears this");
}
