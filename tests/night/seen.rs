//! Everything that an operator can look at, and whether it shows somebody's data.

use crate::{
    orders::PERSONAL,
    support::{Daemon, Server},
};

/// Looks at all that operators are shown: lists, each dead letter, jobs, the audit log, metrics, the daemon's log, pages.
#[track_caller]
pub fn assert_nobody_is_shown(daemon: &Daemon, pager: &Server) {
    let lists = [
        &["dlq", "ls", "--limit", "1000"][..],
        &["dlq", "groups"],
        &["jobs", "ls", "--limit", "1000"],
        &["incidents", "ls"],
        &["alerts", "ls"],
        &["audit", "ls", "--limit", "1000"],
        &["kinds", "ls"],
    ];
    for arguments in lists {
        let answer = daemon.ask(arguments);
        assert_eq!(answer.status, 0, "{arguments:?}: {answer:?}");
        assert_free(&arguments.join(" "), &answer.stdout);
    }
    let letters = daemon.database().all::<i64>("SELECT max(id) FROM dead_letters GROUP BY kind, error_class, state");
    for letter in letters {
        assert_free(&format!("dlq show {letter}"), &daemon.ask(&["dlq", "show", &letter.to_string()]).stdout);
    }
    for page in pager.received() {
        assert_free("a page", &page.body);
    }
    assert_free("the metrics", &daemon.metrics());
    assert_free("the log", &daemon.log());
    for column in ["view", "message", "masked_key"] {
        for text in daemon.database().all::<String>(&format!("SELECT DISTINCT {column} FROM dead_letters")) {
            assert_free(column, &text);
        }
    }
}

#[track_caller]
fn assert_free(what: &str, text: &str) {
    for personal in PERSONAL {
        assert!(!text.contains(personal), "{what} shows {personal:?}");
    }
}
