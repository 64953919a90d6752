//! Runs the sessions of a gate, several at a time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::ctx::Task;
use crate::error::{Error, Kind, Result};
use crate::gate::session::{Answers, Halt, Session};

/// Runs all sessions, `parallel` at a time, and gives their answers in their order. The first
/// error stops the others, and so does the end of the time budget.
pub fn run_all(
    sessions: &[Session<'_>],
    parallel: usize,
    halt: &Halt,
    task: &dyn Task,
    run: &(dyn Fn(&Session<'_>) -> Result<Answers> + Sync),
) -> Result<Vec<Answers>> {
    let answers = run_some(sessions, parallel, halt, task, run)?;
    let done = answers.iter().flatten().count();
    if done < sessions.len() {
        let of = format!("after {done} of {} runs", sessions.len());
        halt.check().map_err(|error| error.context(of))?;
    }
    let answers: Option<Vec<_>> = answers.into_iter().collect();
    answers.ok_or_else(|| Error::internal("a session ended without answers and without an error"))
}

/// As [`run_all`], but what the time budget leaves no time for is `None`.
pub fn run_some(
    sessions: &[Session<'_>],
    parallel: usize,
    halt: &Halt,
    task: &dyn Task,
    run: &(dyn Fn(&Session<'_>) -> Result<Answers> + Sync),
) -> Result<Vec<Option<Answers>>> {
    let results: Vec<Mutex<Option<Answers>>> = sessions.iter().map(|_| Mutex::default()).collect();
    let one = |at: usize| -> Result<()> {
        if let (Some(session), Some(result)) = (sessions.get(at), results.get(at)) {
            *lock(result) = Some(run(session)?);
        }
        Ok(())
    };
    work_off(sessions.len(), parallel, halt, task, &one)?;
    Ok(results.iter().map(|result| lock(result).take()).collect())
}

/// Does `one` for 0, 1, … below `count`, `parallel` at a time. The first error stops the others,
/// and so does the end of the time budget.
pub fn each(
    count: usize,
    parallel: usize,
    halt: &Halt,
    task: &dyn Task,
    one: &(dyn Fn(usize) -> Result<()> + Sync),
) -> Result<()> {
    let done = work_off(count, parallel, halt, task, one)?;
    if done < count {
        let of = format!("after {done} of {count} runs");
        halt.check().map_err(|error| error.context(of))?;
        return Err(Error::internal(
            "runs ended early, and nothing stopped them",
        ));
    }
    Ok(())
}

/// As [`each`], but the end of the time budget is no error. Returns how many were done.
fn work_off(
    count: usize,
    parallel: usize,
    halt: &Halt,
    task: &dyn Task,
    one: &(dyn Fn(usize) -> Result<()> + Sync),
) -> Result<usize> {
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let failed: Mutex<Option<Error>> = Mutex::default();
    let work = || {
        while !halt.is_set() {
            let at = next.fetch_add(1, Ordering::SeqCst);
            if at >= count {
                return;
            }
            match one(at) {
                Ok(()) => {
                    done.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) => {
                    // The first one counts: the others are stopped by it.
                    lock(&failed).get_or_insert(error);
                    halt.stop();
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..parallel.max(1)).map(|_| scope.spawn(work)).collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            task.progress(done.load(Ordering::SeqCst) as u64, count as u64);
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    });
    if let Some(error) = lock(&failed).take()
        // One that the end of the budget stopped has no fault of its own.
        && !(matches!(error.kind(), Kind::Interrupted | Kind::Inconclusive) && halt.is_late())
    {
        return Err(error);
    }
    if !halt.is_late() {
        halt.check()?;
    }
    Ok(done.load(Ordering::SeqCst))
}

/// Poisoned locks hold good data: the panic that poisoned them ends the run anyway.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|lock| lock.into_inner())
}
