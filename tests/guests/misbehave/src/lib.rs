//! A handler that does on demand whatever a handler should not do, and what the host has to get right. Its payload names
//! the act: `{"do": "loop"}`. A payload of another form is unreadable, which is one of the acts. It never does more than
//! it was told.

mod act;
#[cfg(target_arch = "wasm32")]
mod exit;
mod limits;

use leasehold_guest::{Failure, Job, StepError, Success, clock, http, keyvalue, log, once, outbox, settings};
use serde_json::{Value, json};

use act::{Act, As, Inside, KeyvalueOp, Outgoing, StepAct, Then};

#[leasehold_guest::handler]
fn handle(job: Job<Act>) -> Result<Success, Failure> {
    match job.payload {
        Act::Loop => limits::spin(),
        Act::Memory { then } => finish(then, &json!({ "refused_at_mib": limits::fill_memory(then == Then::Panic) })),
        Act::Stack { wide } => finish(Then::Done, &json!({ "depth": limits::overflow_stack(wide) })),
        Act::Panic { message } => panic!("{message}"),
        Act::Exit => leave(),
        Act::Flood { lines, length } => {
            limits::flood(lines, length);
            Ok(Success::done())
        }
        Act::Output { bytes } => Ok(Success::done_with(vec![b'x'; bytes])),
        Act::Sleep { ms } => {
            clock::sleep_ms(ms);
            Ok(Success::done())
        }
        Act::Count => Success::done_json(&limits::count()),
        Act::Now => Success::done_json(&now()),
        Act::Echo { payload } => Success::done_json(&json!({
            "id": job.id, "kind": job.kind, "key": job.key, "lane": job.lane, "attempt": job.attempt,
            "attempts_used": job.attempts_used, "attempts_max": job.attempts_max,
            "enqueued_at_ms": job.enqueued_at_ms, "deadline_ms": job.deadline_ms, "content_type": job.content_type,
            "metadata": job.metadata, "payload": payload, "now_ms": clock::now_ms(),
            "replay": job.replay.map(|replay| json!({
                "number": replay.number, "actor": replay.actor, "at_ms": replay.at_ms
            })),
        })),
        Act::Fail { kind, class, message, after_ms } => Err(match kind {
            As::Retry => Failure::retry(class, message),
            As::RateLimited => Failure::rate_limited(class, message, after_ms),
            As::Rejected => Failure::rejected(class, message),
            As::Poison => Failure::poison(class, message),
        }),
        Act::Suppress { reason } => Ok(Success::suppressed(reason)),
        Act::Step(step) => run_step(&step),
        Act::Get { url, timeout_ms } => {
            finish(Then::Done, &answer(request(http::Method::Get, &url, "", timeout_ms).send()))
        }
        Act::Post { url, body, timeout_ms } => {
            finish(Then::Done, &answer(request(http::Method::Post, &url, &body, timeout_ms).send()))
        }
        Act::Kv { ops, then } => finish(then, &keyvalue_ops(&ops)),
        Act::Enqueue { jobs, then } => finish(then, &enqueue(jobs)),
        Act::Settings { name } => Success::done_json(&settings::get(&name)?),
        Act::Log { text } => {
            log::info(text);
            Ok(Success::done())
        }
    }
}

/// Ends the attempt as told.
fn finish(then: Then, output: &Value) -> Result<Success, Failure> {
    match then {
        Then::Done => Success::done_json(output),
        Then::Suppressed => Ok(Success::suppressed("as told")),
        Then::Retry => Err(Failure::retry("downstream.unavailable", "as told")),
        Then::Rejected => Err(Failure::rejected("downstream.refused", "as told")),
        Then::Poison => Err(Failure::poison("handler.told", "as told")),
        Then::Panic => panic!("as told"),
        Then::Loop => limits::spin(),
    }
}

/// Begins a step, does in it what it was told, and reports what the step gave.
fn run_step(step: &StepAct) -> Result<Success, Failure> {
    let mut has_run = false;
    let mut run = || {
        once(&step.name, &step.subject, |key| {
            has_run = true;
            let answers: Vec<Value> = match &step.url {
                Some(url) => {
                    (0..step.requests).map(|number| send_in_step(step, url, number)).collect::<Result<_, _>>()?
                }
                None => Vec::new(),
            };
            let kv = keyvalue_ops(&step.kv);
            let outbox = enqueue(step.enqueue.clone());
            match step.inside {
                Inside::Complete => {}
                Inside::Panic => panic!("inside the step, as told"),
                Inside::Loop => limits::spin(),
                Inside::Hang => clock::sleep_ms(u64::from(u32::MAX)),
                Inside::Sleep { ms } => clock::sleep_ms(ms),
                Inside::NotApplied => {
                    return Err(StepError::not_applied(Failure::retry("downstream.refused", "as told")));
                }
                Inside::Unknown => return Err(StepError::unknown(Failure::retry("downstream.timeout", "as told"))),
                Inside::Nested => return nested(),
            }
            Ok(json!({
                "idempotency_key": key.idempotency_key, "in_doubt": key.in_doubt, "answers": answers, "kv": kv, "outbox": outbox,
                "padding": "x".repeat(step.result_bytes),
            }))
        })
    };
    let mut result = run()?;
    if step.begin_twice {
        result = run()?;
    }
    finish(step.then, &json!({ "has_run": has_run, "result": result }))
}

/// One of the step's requests. Only the first one's failure ends the step; what the host says to the others is reported.
fn send_in_step(step: &StepAct, url: &str, number: u32) -> Result<Value, StepError> {
    let mut outgoing = request(http::Method::Post, url, &step.body, step.timeout_ms);
    if step.own_key {
        outgoing = outgoing.header("idempotency-key", format!("own-{number}"));
    }
    let sent = outgoing.send();
    if number == 0 { Ok(answer(Ok(sent?))) } else { Ok(answer(sent)) }
}

/// Begins a second step while the first one is open.
fn nested() -> Result<Value, StepError> {
    once("nested", "", |_| Ok(json!("began a step inside a step"))).map_err(StepError::unknown)
}

fn request(method: http::Method, url: &str, body: &str, timeout_ms: Option<u64>) -> http::Request {
    let request = http::Request::new(method, url).body(body.as_bytes());
    match timeout_ms {
        Some(timeout_ms) => request.timeout_ms(timeout_ms),
        None => request,
    }
}

fn answer(answer: Result<http::Response, http::Error>) -> Value {
    match answer {
        Ok(response) => json!({ "status": response.status, "body": String::from_utf8_lossy(&response.body) }),
        Err(error) => json!({ "error": format!("{:?}", error.kind), "message": error.message }),
    }
}

fn keyvalue_ops(ops: &[KeyvalueOp]) -> Value {
    let one = |op: &KeyvalueOp| -> Result<Value, keyvalue::Error> {
        match op {
            KeyvalueOp::Get { store, key } => {
                let value = keyvalue::open(store)?.get(key)?;
                Ok(json!(value.map(|value| String::from_utf8_lossy(&value).into_owned())))
            }
            KeyvalueOp::Set { store, key, value } => {
                keyvalue::open(store)?.set(key, value.as_bytes()).map(|()| json!("set"))
            }
            KeyvalueOp::Delete { store, key } => keyvalue::open(store)?.delete(key).map(|()| json!("deleted")),
            KeyvalueOp::Exists { store, key } => Ok(json!(keyvalue::open(store)?.exists(key)?)),
        }
    };
    ops.iter().map(|op| one(op).unwrap_or_else(|error| json!({ "error": format!("{error:?}") }))).collect()
}

fn enqueue(jobs: Vec<Outgoing>) -> Value {
    let one = |job: Outgoing| -> Value {
        let new_job = outbox::NewJob {
            kind: job.kind,
            key: job.key,
            lane: job.lane,
            content_type: "application/json".into(),
            payload: job.payload.to_string().into_bytes(),
            delay_ms: job.delay_ms,
            metadata: Vec::new(),
        };
        match outbox::enqueue(new_job) {
            Ok(()) => json!("enqueued"),
            Err(error) => json!({ "error": format!("{error:?}") }),
        }
    };
    jobs.into_iter().map(one).collect()
}

/// The wall clock: seconds and nanoseconds. The SDK tells no more than milliseconds.
#[cfg(target_arch = "wasm32")]
fn now() -> (u64, u32) {
    let now = leasehold_guest::bindings::wasi::clocks::wall_clock::now();
    (now.seconds, now.nanoseconds)
}

/// Natively the SDK's clock is the mock host's.
#[cfg(not(target_arch = "wasm32"))]
fn now() -> (u64, u32) {
    (clock::now_ms() / 1_000, 0)
}

/// Leaves the instance without an answer.
#[cfg(target_arch = "wasm32")]
fn leave() -> ! {
    exit::exit()
}

/// Natively there is no instance to leave.
#[cfg(not(target_arch = "wasm32"))]
fn leave() -> ! {
    std::process::exit(1)
}
