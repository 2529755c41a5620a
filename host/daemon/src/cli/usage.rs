//! What is wrong with a command line, in one line for programs. People get the parser's own words.

/// The parser's words about an error, without what is for the eye alone: what is wrong, then how it is used. Where a command
/// is missing the parser shows its help; then this says which there are.
pub fn explained(rendered: &str) -> String {
    match rendered.strip_prefix("error: ") {
        Some(words) => wrong(words),
        None => format!("a command is missing; allowed are {}", commands(rendered).join(", ")),
    }
}

fn wrong(words: &str) -> String {
    let (what, usage) = words.split_once("\nUsage:").unwrap_or((words, ""));
    let what: Vec<_> = lines(what).filter(|line| !line.starts_with("For more information")).collect();
    let usage = lines(usage).next().map(|usage| format!(" (usage: {usage})")).unwrap_or_default();
    what.join(" ") + &usage
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty())
}

/// The first words of the lines under the heading of the commands.
fn commands(help: &str) -> Vec<&str> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::Cli;

    fn explained_of(arguments: &[&str]) -> String {
        let Err(error) = Cli::try_parse_from([&["leasehold"], arguments].concat()) else { panic!("{arguments:?}") };
        explained(&error.to_string())
    }

    #[test]
    fn o5_an_error_of_usage_is_whole_and_in_one_line() {
        let missing = explained_of(&["dlq", "discard", "1"]);
        assert!(
            missing.starts_with("the following required arguments were not provided: --reason <REASON>"),
            "{missing}"
        );
        assert!(missing.contains("(usage: leasehold dlq discard"), "{missing}");
        let wrong = explained_of(&["tokens", "add", "--name", "ci", "--role", "root"]);
        assert!(wrong.contains("'root'") && wrong.contains("the roles are enqueue, view, operate, admin"), "{wrong}");
        let unknown = explained_of(&["jobs", "list"]);
        assert!(unknown.contains("unrecognized subcommand 'list'") && unknown.contains("similar"), "{unknown}");
        for words in [missing, wrong, unknown] {
            assert!(!words.contains('\n') && !words.contains("--help"), "{words}");
        }
    }

    #[test]
    fn o5_a_command_that_is_missing_is_named() {
        assert_eq!(explained_of(&["tokens"]), "a command is missing; allowed are add, ls, revoke");
        assert!(explained_of(&[]).contains("serve, demo, enqueue"));
    }
}
