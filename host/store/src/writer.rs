//! The one thread that writes. It runs what waits as one transaction and answers all of it after the commit. A call that
//! fails fails alone: the batch then runs again with a savepoint for each. It never answers a call with success before
//! that call is durable.

use std::{
    cell::RefCell,
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use crate::{
    StoreError,
    health::Health,
    open::WriterConnection,
    transaction::{Moved, Transaction},
};

/// How far the persisted clock may lag behind the latest time seen.
const CLOCK_LAG_MS: i64 = 1_000;

/// What goes first when several calls wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Heartbeats, settlements and steps, on which a lease depends, and most claims.
    Lease,
    /// Everything else.
    Usual,
}

/// The handle by which calls reach the writing thread.
pub(crate) struct Writer {
    queue: Arc<Queue>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    lease: VecDeque<Box<dyn Call>>,
    usual: VecDeque<Box<dyn Call>>,
    closed: bool,
    /// Whether the thread sleeps and has to be woken, which is a call of the kernel.
    asleep: bool,
}

/// One call to be run inside a transaction. It may be run again when the transaction is lost.
trait Call: Send {
    fn run(&mut self, transaction: &Transaction<'_>, guard: Guard) -> Ran;
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

/// What a call's failure undoes.
#[derive(Debug, Clone, Copy)]
enum Guard {
    /// The whole transaction. Failures are rare, and savepoints cost each call a copy of every page that it touches.
    Transaction,
    /// That call alone.
    Savepoint,
}

#[derive(Debug)]
enum Ran {
    /// The transaction stands.
    InTransaction,
    /// The call failed. With no savepoint to undo it alone, the transaction can't be committed.
    Failed,
    /// The error took the whole transaction with it, or forbids keeping it.
    TransactionLost(StoreError),
}

/// How the calls of a batch went.
enum All {
    Done,
    OneFailed,
}

struct TypedCall<T, F> {
    operation: F,
    result: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T: Send, F: FnMut(&Transaction<'_>) -> Result<T, StoreError> + Send> Call for TypedCall<T, F> {
    fn run(&mut self, transaction: &Transaction<'_>, guard: Guard) -> Ran {
        self.result = Some(match guard {
            Guard::Transaction => (self.operation)(transaction),
            Guard::Savepoint => in_savepoint(transaction, &mut self.operation),
        });
        match &self.result {
            Some(Err(error)) if error.is_damage() || transaction.is_autocommit() => Ran::TransactionLost(error.clone()),
            _ if transaction.is_autocommit() => {
                Ran::TransactionLost(StoreError::Unexpected("the transaction was rolled back by SQLite".into()))
            }
            Some(Err(_)) => Ran::Failed,
            _ => Ran::InTransaction,
        }
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let answer = match (committed, self.result) {
            // What became of the transaction is everybody's answer: damage, in words that say what to do.
            (Err(error), _) | (Ok(()), Some(Err(error))) => Err(error),
            (Ok(()), Some(Ok(value))) => Ok(value),
            (Ok(()), None) => Err(StoreError::Closed),
        };
        // A caller that is gone does not need its answer.
        let _ = self.reply.send(answer);
    }
}

/// Runs one call so that its failure undoes that call alone. `SQLITE_FULL`, `IOERR` and `NOMEM` can roll the whole
/// transaction back under the savepoint; the caller sees that in the connection's autocommit state.
fn in_savepoint<T>(
    transaction: &Transaction<'_>,
    operation: &mut impl FnMut(&Transaction<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    transaction.prepare_cached("SAVEPOINT call")?.execute([])?;
    let result = operation(transaction).and_then(|value| transaction.write_counts().map(|()| value));
    if result.is_err() {
        transaction.forget_counts();
    }
    if transaction.is_autocommit() {
        return result;
    }
    if let Err(error) = end_savepoint(transaction, result.is_err()) {
        // Half of the call may stand, so nothing of the transaction is kept.
        let _ = transaction.execute_batch("ROLLBACK");
        return Err(error);
    }
    result
}

fn end_savepoint(transaction: &Transaction<'_>, has_failed: bool) -> Result<(), StoreError> {
    if has_failed {
        transaction.prepare_cached("ROLLBACK TO call")?.execute([])?;
    }
    transaction.prepare_cached("RELEASE call")?.execute([])?;
    Ok(())
}

impl Writer {
    /// Starts the thread on an open connection.
    pub(crate) fn start(
        connection: WriterConnection,
        latest_ms: Arc<AtomicI64>,
        health: Arc<Health>,
        batch_time: Duration,
    ) -> std::io::Result<Self> {
        let queue = Arc::<Queue>::default();
        let mut worker = Worker {
            queue: Arc::clone(&queue),
            connection,
            latest_ms,
            health,
            moved: RefCell::default(),
            persisted_ms: 0,
            batch_time,
        };
        let thread = std::thread::Builder::new().name("leasehold-writer".into()).spawn(move || worker.work())?;
        Ok(Self { queue, thread: Mutex::new(Some(thread)) })
    }

    /// Runs an operation in a transaction and waits until it is durable. The operation may run more than once; only
    /// its last run counts.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        urgency: Urgency,
        operation: impl FnMut(&Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.push(urgency, Box::new(TypedCall { operation, result: None, reply }));
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    fn push(&self, urgency: Urgency, call: Box<dyn Call>) {
        let mut waiting = self.queue.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.closed {
            drop(waiting);
            return call.answer(Err(StoreError::Closed));
        }
        match urgency {
            Urgency::Lease => waiting.lease.push_back(call),
            Urgency::Usual => waiting.usual.push_back(call),
        }
        let was_asleep = std::mem::take(&mut waiting.asleep);
        drop(waiting);
        if was_asleep {
            self.queue.changed.notify_one();
        }
    }

    /// Takes no further calls, runs those that wait and closes the connection.
    pub(crate) fn close(&self) {
        self.queue.waiting.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.queue.changed.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

struct Worker {
    queue: Arc<Queue>,
    connection: WriterConnection,
    latest_ms: Arc<AtomicI64>,
    health: Arc<Health>,
    /// What the calls of the open transaction have moved so far.
    moved: RefCell<Moved>,
    persisted_ms: i64,
    batch_time: Duration,
}

impl Worker {
    fn work(&mut self) {
        while self.wait() {
            self.run_batch();
        }
        self.connection.close(self.health.damage().is_some());
    }

    /// Waits for a call; false when there will be none.
    fn wait(&self) -> bool {
        let mut waiting = self.queue.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while waiting.is_empty() && !waiting.closed {
            waiting.asleep = true;
            waiting = self.queue.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        !waiting.is_empty()
    }

    /// The next call. The last of a transaction whose time is up is one that no lease depends on, so that those on which
    /// one does can't keep the others back for ever.
    fn next(&self, is_last: bool) -> Option<Box<dyn Call>> {
        let mut waiting = self.queue.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if is_last { waiting.usual.pop_front() } else { waiting.pop() }
    }

    fn run_batch(&mut self) {
        if let Some(refusal) = self.health.refusal() {
            let waiting = self.count_waiting();
            return self.refuse(waiting, &refusal);
        }
        let waiting = self.count_waiting();
        if let Err(error) = self.begin() {
            // Whoever waited all the while is answered; whoever came meanwhile has another try.
            tracing::warn!(%error, calls = waiting.0 + waiting.1, "a transaction could not begin; what waited for it is refused");
            return self.refuse(waiting, &error);
        }
        let mut calls = Vec::new();
        match self.run_calls(&mut calls) {
            Ok(All::Done) => calls.into_iter().for_each(|call| call.answer(Ok(()))),
            Ok(All::OneFailed) if calls.len() > 1 => self.run_again(calls),
            // One that failed with nobody beside it has failed.
            Ok(All::OneFailed) => calls.into_iter().for_each(|call| call.answer(Ok(()))),
            Err(error) => self.recover(&error, calls),
        }
    }

    fn count_waiting(&self) -> (usize, usize) {
        let waiting = self.queue.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        (waiting.lease.len(), waiting.usual.len())
    }

    /// Answers the calls that waited first, so many of each urgency, without running them.
    fn refuse(&self, (lease, usual): (usize, usize), error: &StoreError) {
        let mut waiting = self.queue.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut refused: Vec<_> = waiting.lease.drain(..lease).collect();
        refused.extend(waiting.usual.drain(..usual));
        drop(waiting);
        for call in refused {
            call.answer(Err(error.clone()));
        }
    }

    /// Takes calls in until none waits or the time is up, and commits. When one has failed, nothing of the batch has
    /// happened; on an error the transaction as such has failed.
    fn run_calls(&mut self, calls: &mut Vec<Box<dyn Call>>) -> Result<All, StoreError> {
        let started = Instant::now();
        let mut is_last = false;
        while let Some(mut call) = self.next(is_last) {
            let ran = call.run(&self.transaction()?, Guard::Transaction);
            calls.push(call);
            if matches!(ran, Ran::Failed) {
                self.roll_back();
                return Ok(All::OneFailed);
            }
            self.stands(ran)?;
            if is_last {
                break;
            }
            is_last = started.elapsed() >= self.batch_time;
        }
        self.commit()?;
        Ok(All::Done)
    }

    /// Some call of the batch failed. With a savepoint for each, the others are done all the same.
    fn run_again(&mut self, mut calls: Vec<Box<dyn Call>>) {
        match self.with_savepoints(&mut calls) {
            Ok(()) => calls.into_iter().for_each(|call| call.answer(Ok(()))),
            Err(error) => self.recover(&error, calls),
        }
    }

    fn with_savepoints(&mut self, calls: &mut [Box<dyn Call>]) -> Result<(), StoreError> {
        self.begin()?;
        for call in calls {
            let ran = call.run(&self.transaction()?, Guard::Savepoint);
            self.stands(ran)?;
        }
        self.commit()
    }

    /// The transaction as such has failed, and nothing of it has happened.
    fn recover(&mut self, error: &StoreError, calls: Vec<Box<dyn Call>>) {
        if error.is_damage() {
            return calls.into_iter().for_each(|call| call.answer(Err(error.clone())));
        }
        tracing::warn!(%error, calls = calls.len(), "a transaction failed; its calls run again singly");
        self.reopen_after(error);
        for call in calls {
            self.run_singly(call);
        }
    }

    fn run_singly(&mut self, mut call: Box<dyn Call>) {
        let committed = self.begin().and_then(|()| match call.run(&self.transaction()?, Guard::Transaction) {
            Ran::Failed => {
                self.roll_back();
                Ok(())
            }
            ran => {
                self.stands(ran)?;
                self.commit()
            }
        });
        if let Err(error) = &committed {
            self.reopen_after(error);
        }
        call.answer(committed);
    }

    fn roll_back(&mut self) {
        if let Ok(connection) = self.connection.get()
            && !connection.is_autocommit()
        {
            let _ = connection.execute_batch("ROLLBACK");
        }
        self.persisted_ms = 0;
    }

    fn reopen_after(&mut self, error: &StoreError) {
        if error.is_io() {
            self.connection.reopen();
        }
    }

    /// Whether the transaction goes on after a call. Nothing of one that met damage is kept.
    fn stands(&self, ran: Ran) -> Result<(), StoreError> {
        match ran {
            Ran::InTransaction | Ran::Failed => Ok(()),
            Ran::TransactionLost(error) => Err(self.failed(error)),
        }
    }

    fn transaction(&self) -> Result<Transaction<'_>, StoreError> {
        Ok(Transaction::new(self.connection.get()?, &self.moved))
    }

    fn begin(&mut self) -> Result<(), StoreError> {
        self.moved.take();
        self.connection.check_in_place().map_err(|error| self.failed(error))?;
        self.connection.ensure_open();
        let mut begun = self.connection.begin();
        if matches!(&begun, Err(error) if error.is_io()) {
            self.connection.reopen();
            begun = self.connection.begin();
        }
        begun.map_err(|error| self.failed(error))
    }

    /// Notes that a transaction failed. Damage ends all writing, and the transaction with it.
    fn failed(&self, error: StoreError) -> StoreError {
        let error = self.health.noted(error);
        self.health.note_transaction(&Err(error.clone()));
        if error.is_damage()
            && let Ok(connection) = self.connection.get()
        {
            let _ = connection.execute_batch("ROLLBACK");
        }
        error
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        let counted = self.transaction().and_then(|transaction| transaction.write_counts());
        let committed = counted.and_then(|()| self.persist_clock()).and_then(|()| {
            fail::fail_point!("writer.before_commit");
            self.connection.get()?.prepare_cached("COMMIT")?.execute([])?;
            Ok(())
        });
        fail::fail_point!("writer.after_commit");
        if committed.is_err() {
            self.roll_back();
        }
        let committed = committed.map_err(|error| self.failed(error));
        self.health.note_transaction(&committed);
        committed
    }

    /// Keeps the queue's time, so that a restart after a backward step of the wall clock goes on from it.
    fn persist_clock(&mut self) -> Result<(), StoreError> {
        let latest_ms = self.latest_ms.load(Ordering::Relaxed);
        if latest_ms - self.persisted_ms >= CLOCK_LAG_MS {
            self.connection
                .get()?
                .prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES ('queue_clock_ms', ?1)")?
                .execute([latest_ms])?;
            self.persisted_ms = latest_ms;
        }
        Ok(())
    }
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.lease.is_empty() && self.usual.is_empty()
    }

    fn pop(&mut self) -> Option<Box<dyn Call>> {
        self.lease.pop_front().or_else(|| self.usual.pop_front())
    }
}

#[cfg(test)]
mod tests;
