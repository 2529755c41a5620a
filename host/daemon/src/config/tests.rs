//! The configuration as a whole: the shipped file, its documented defaults, and what each error says.

use super::*;
use leasehold_domain::{InDoubtPolicy, grants::StoreAccess};

const SHIPPED: &str = include_str!("../../../../config.toml");

fn parse(text: &str) -> Result<Config, ConfigErrors> {
    Config::parse(text, Path::new("/etc/leasehold/config.toml"))
}

/// The errors as a person sees them, a line each, without the file's name.
fn errors(text: &str) -> Vec<String> {
    let errors = parse(text).expect_err(text);
    errors.to_string().lines().map(|line| line.replacen("/etc/leasehold/config.toml:", "", 1)).collect()
}

fn kind(name: &str) -> Kind {
    Kind::new(name).unwrap()
}

/// The shipped file with its commented defaults put into force.
fn shipped_with_defaults_in_force() -> String {
    let is_default =
        |line: &str| line.strip_prefix('#').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
    let line = |line: &'static str| if is_default(line) { &line[1..] } else { line };
    SHIPPED.lines().map(line).collect::<Vec<_>>().join("\n")
}

const MINIMAL: &str = "[handlers.h]\n[kinds.k]\nhandler = 'h'\nowner = 'o'\n";

#[test]
fn o4_the_shipped_configuration_loads_as_it_is() {
    let config = parse(SHIPPED).unwrap();
    let email = &config.kinds[&kind("email.send")];
    assert_eq!(
        (email.handler.as_str(), email.deadline_ms, email.in_doubt),
        ("email-send", 60_000, InDoubtPolicy::BeginAgain)
    );
    assert_eq!(config.kinds[&kind("webhook.deliver")].in_doubt, InDoubtPolicy::BeginAgain);
    let handler = &config.handlers[&email.handler];
    assert_eq!(handler.grants.stores["suppressions"], StoreAccess::ReadWrite);
    assert_eq!(handler.grants.absent.iter().collect::<Vec<_>>(), ["api_key"]);
    assert!(config.redaction_rules(&kind("email.send")).names().any(|name| name == "subject"));
    assert!(!config.redaction_rules(&kind("webhook.deliver")).names().any(|name| name == "subject"));
    assert!(config.redaction_rules(&kind("of.another.day")).names().any(|name| name == "subject"));
    assert_eq!(config.daemon.socket, Path::new("/etc/leasehold/leasehold-data/leasehold.sock"));
}

#[test]
fn o4_every_documented_default_is_the_default() {
    let in_force = shipped_with_defaults_in_force();
    assert!(in_force.lines().any(|line| line == "heartbeat = \"5s\""));
    assert_eq!(parse(&in_force).unwrap(), parse(SHIPPED).unwrap());
}

#[test]
fn o4_every_key_is_documented() {
    let in_force = shipped_with_defaults_in_force();
    for section in [
        "[daemon]",
        "[queue]",
        "[sandbox]",
        "[alerts]",
        "[redaction]",
        "[handlers.email-send]",
        "[kinds.\"email.send\"]",
    ] {
        let with_unknown = in_force.replace(&format!("\n{section}\n"), &format!("\n{section}\nzzzzzzzzzzzz = 1\n"));
        let message = errors(&with_unknown).concat();
        let (_, allowed) = message.split_once("allowed are ").unwrap();
        for key in allowed.split(", ") {
            let is_set = |line: &str| line.starts_with(&format!("{key} =")) || line.ends_with(&format!(".{key}]"));
            let is_table = in_force.contains(&format!("[redaction.{key}."));
            assert!(is_table || in_force.lines().any(is_set), "{section} {key} is not documented");
        }
    }
}

#[test]
fn o4_a_file_without_kinds_has_defaults_for_everything_else() {
    let config = parse("").unwrap();
    assert!(config.kinds.is_empty() && config.handlers.is_empty());
    assert_eq!(config.queue.payload_max_bytes, 262_144);
    assert_eq!(config.actor_for_uid(0).unwrap().role, Role::Admin);
    assert_eq!(config.actor_for_uid(u32::MAX), None);
}

#[test]
fn o4_all_errors_of_a_file_are_named_at_once_each_with_its_line() {
    let text =
        "[queue]\npayload_max = 'big'\nbatch_max = 0\n[daemon]\nshutdown_grace = 20\nlog_format = 'xml'\n[other]\n";
    let errors = errors(text);
    let starts = [
        "2: queue.payload_max: ",
        "3: queue.batch_max: ",
        "5: daemon.shutdown_grace: ",
        "6: daemon.log_format: ",
        "7: other: ",
    ];
    assert_eq!(errors.len(), starts.len(), "{errors:#?}");
    for (error, start) in errors.iter().zip(starts) {
        assert!(error.starts_with(start), "{error}");
    }
    assert!(
        errors[0].contains("\"big\" is not allowed here; allowed is a size from \"1B\" to \"16MiB\""),
        "{}",
        errors[0]
    );
    assert!(errors[1].contains("0 is out of bounds; allowed is a whole number from 500 to 100000"), "{}", errors[1]);
    assert!(
        errors[2].contains("expected a duration from \"0ms\" to \"1h\" in ms, s, m, h or d, found an integer"),
        "{}",
        errors[2]
    );
    assert!(errors[3].ends_with("\"xml\" is not allowed here; allowed is \"text\" or \"json\""), "{}", errors[3]);
}

#[test]
fn o4_an_unknown_key_is_an_error_that_guesses_what_was_meant() {
    let message = &errors(&format!("{MINIMAL}hartbeat = '5s'"))[0];
    assert!(
        message.starts_with("5: kinds.k.hartbeat: is not a known key; did you mean heartbeat?; allowed are "),
        "{message}"
    );
    let messages = errors("[kinds.email.send]\nhandler = 'h'").concat();
    assert!(messages.contains("1: kinds.email.send: is not a known key; a name with a dot is quoted"), "{messages}");
    let message = &errors("[errors]\nemail.bounced = 'retry'")[0];
    assert!(message.contains("a name with a dot is quoted: \"email.bounced\""), "{message}");
}

#[test]
fn o4_broken_toml_names_its_line() {
    let message = &errors("[queue]\nbatch_max = \n")[0];
    assert!(message.starts_with("2: is no valid TOML: "), "{message}");
}

#[test]
fn o4_a_kind_without_an_owner_or_a_handler_is_an_error() {
    assert_eq!(
        errors("[handlers.h]\n[kinds.k]\n"),
        [
            "2: kinds.k.handler: is missing; required is the name of a handler",
            "2: kinds.k.owner: is missing; required is who answers for the kind"
        ]
    );
    assert!(errors("[handlers.h]\n[kinds.k]\nhandler = 'h'\nowner = ' '")[0].starts_with("4: kinds.k.owner: is empty"));
    let message = &errors("[handlers.h]\n[kinds.k]\nhandler = 'other'\nowner = 'o'")[0];
    assert!(message.starts_with("3: kinds.k.handler: there is no section [handlers.other]"), "{message}");
}

#[test]
fn o3_visibility_has_to_be_above_three_heartbeats() {
    assert!(parse(&format!("{MINIMAL}heartbeat = '5s'\nvisibility_timeout = '15001ms'")).is_ok());
    assert_eq!(
        errors(&format!("{MINIMAL}heartbeat = '5s'\nvisibility_timeout = '15s'")),
        [
            "6: kinds.k.visibility_timeout: visibility_timeout 15s is not above 3 × heartbeat 5s = 15s; raise the one or lower the other"
        ]
    );
}

#[test]
fn i5_key_retention_has_to_be_above_the_retry_horizon() {
    let figures =
        "deadline = '90s'\nvisibility_timeout = '30s'\nattempts = 3\nretry_after_max = '1m'\nbackoff = { max = '2m' }";
    // 3 × (90 s + 30 s) + 2 × 120 s = 600 s.
    assert!(parse(&format!("{MINIMAL}{figures}\n[queue]\nkey_retention = '601s'")).is_ok());
    assert_eq!(
        errors(&format!("{MINIMAL}{figures}\n[queue]\nkey_retention = '10m'")),
        [concat!(
            "11: queue.key_retention: 10m = 600 s is not above the retry horizon of kind k: 3 attempts × (deadline 90 s + ",
            "visibility timeout 30 s) + 2 delays × 120 s = 600 s; raise key_retention or lower the kind's figures"
        )]
    );
}

#[test]
fn q8_the_bounds_of_the_backoff_are_checked() {
    assert!(errors(&format!("{MINIMAL}backoff = {{ min = '2s', max = '1s' }}"))[0].contains("min 2s is above max 1s"));
    assert!(errors(&format!("{MINIMAL}backoff = {{ min = '0ms' }}"))[0].starts_with("5: kinds.k.backoff.min: "));
}

#[test]
fn h5_a_handlers_limits_may_not_exceed_the_sandboxs() {
    let config = parse("[handlers.h.limits]\nmemory_max = '1MiB'").unwrap();
    let limits = &config.handlers.values().next().unwrap().limits;
    assert_eq!((limits.memory_max_bytes, limits.log_lines_max), (1 << 20, config.sandbox.limits.log_lines_max));
    let message = &errors("[sandbox]\nmemory_max = '2MiB'\n[handlers.h.limits]\nmemory_max = '4MiB'")[0];
    assert!(message.starts_with("4: handlers.h.limits.memory_max: \"4MiB\" is not allowed here; allowed is a size from \"64KiB\" to \"2MiB\""), "{message}");
}

#[test]
fn h5_the_memory_of_all_attempts_has_room_for_one_of_each_handler() {
    let config = parse("[sandbox]\nmemory_total_max = '96MiB'\n[handlers.h.limits]\nmemory_max = '1MiB'").unwrap();
    assert_eq!(config.sandbox.memory_total_max_bytes, 96 << 20);
    assert_eq!(
        errors("[sandbox]\nmemory_total_max = '63MiB'\n[handlers.small.limits]\nmemory_max = '1MiB'\n[handlers.large]"),
        [
            "2: sandbox.memory_total_max: 63MiB is below what one attempt of handler large may use, 64MiB; raise this to at least 64MiB, or lower memory_max under [handlers.large.limits] or [sandbox]"
        ]
    );
    let message = &errors("[sandbox]\nmemory_total_max = 'all'")[0];
    assert!(message.ends_with("or a number of bytes, or \"auto\""), "{message}");
}

#[test]
fn h6_grants_are_read_as_written() {
    let text = "[handlers.h]\noutbound = ['https://a.org', 'get, post http://b.org:81', { url = 'https://c.org', methods = ['PUT'], private = true, outside_step = true }]\nsettings = { a = 'b' }\nstores = { s = 'read' }\nenqueue = ['k']\nannotate = ['k']\n[kinds.k]\nhandler = 'h'\nowner = 'o'";
    let config = parse(text).unwrap();
    let grants = &config.handlers.values().next().unwrap().grants;
    let methods = |index: usize| grants.outbound[index].methods.iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(
        [methods(0), methods(1), methods(2)],
        [vec!["GET", "HEAD", "OPTIONS"], vec!["GET", "POST"], vec!["PUT"]]
    );
    assert_eq!(
        (grants.outbound[1].port, grants.outbound[1].private, grants.outbound[1].outside_step),
        (81, false, false)
    );
    assert!(grants.outbound[2].private && grants.outbound[2].outside_step);
    assert_eq!(grants.settings["a"], "b");
    assert_eq!(grants.enqueue.as_ref().unwrap().iter().collect::<Vec<_>>(), ["k"]);
    assert_eq!(grants.annotate.iter().collect::<Vec<_>>(), ["k"]);
}

#[test]
fn h6_a_grant_that_makes_no_sense_is_an_error() {
    for (line, wanted) in [
        ("outbound = ['https://a.org/path']", "2: handlers.h.outbound[0]: \"https://a.org/path\" is no destination"),
        ("outbound = ['CONNECT https://a.org']", "2: handlers.h.outbound[0]: \"CONNECT\" is no method"),
        ("outbound = [{ methods = ['GET'] }]", "2: handlers.h.outbound[0]: url is missing"),
        ("annotate = ['nothing']", "2: handlers.h.annotate[0]: there is no kind \"nothing\""),
        ("enqueue = ['nothing']", "2: handlers.h.enqueue[0]: there is no kind \"nothing\""),
        (
            "stores = { s = 'write' }",
            "2: handlers.h.stores.s: \"write\" is not allowed here; allowed is \"read\" or \"read-write\"",
        ),
        ("settings = { a = 1 }", "2: handlers.h.settings.a: expected a string, found an integer"),
    ] {
        let errors = errors(&format!("[handlers.h]\n{line}"));
        assert!(errors.len() == 1 && errors[0].starts_with(wanted), "{errors:#?}");
    }
}

#[test]
fn o4_a_secret_comes_from_a_file_or_the_environment() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("key"), "canary-value\n").unwrap();
    let text = "[handlers.h]\nsecrets = { key = { file = 'key' }, path = { env = 'PATH' }, none = { file = 'none', optional = true } }";
    let config = Config::parse(text, &directory.path().join("config.toml")).unwrap();
    let handler = config.handlers.values().next().unwrap();
    assert_eq!(handler.grants.settings["key"], "canary-value");
    assert_eq!(handler.grants.secrets.iter().collect::<Vec<_>>(), ["key", "path"]);
    assert_eq!(handler.grants.absent.iter().collect::<Vec<_>>(), ["none"]);
    assert!(!format!("{config:?}").contains("canary-value"));
}

#[test]
fn o4_a_secret_that_is_missing_is_an_error_that_names_it() {
    for (secret, wanted) in [
        ("{ file = 'nowhere' }", "2: handlers.h.secrets.s.file: /etc/leasehold/nowhere can't be read: "),
        (
            "{ env = 'LEASEHOLD_TEST_UNSET' }",
            "2: handlers.h.secrets.s.env: the environment variable \"LEASEHOLD_TEST_UNSET\" is not set",
        ),
        (
            "{ env = 'A=B', optional = true }",
            "2: handlers.h.secrets.s.env: the environment variable \"A=B\" is not set",
        ),
        ("'canary-value'", "2: handlers.h.secrets.s: a secret's value never stands here"),
        ("{ file = 'a', env = 'B' }", "2: handlers.h.secrets.s: has to name one source"),
        ("{ optional = true }", "2: handlers.h.secrets.s: has to name one source"),
    ] {
        let errors = errors(&format!("[handlers.h]\nsecrets = {{ s = {secret} }}"));
        assert!(errors.len() == 1 && errors[0].starts_with(wanted), "{errors:#?}");
        assert!(!errors[0].contains("canary-value"));
    }
    let both = errors("[handlers.h]\nsettings = { s = 'x' }\nsecrets = { s = { env = 'PATH' } }");
    assert!(both[0].starts_with("3: handlers.h.secrets.s: has the name of a setting"), "{both:#?}");
}

#[test]
fn d2_a_kinds_rules_are_its_own_those_of_its_classes_and_the_common_ones() {
    let text = format!(
        "{MINIMAL}redact = {{ names = ['own'], paths = ['$.a'], classes = ['person'] }}\n[redaction]\nnames = ['common']\n[redaction.classes.person]\nnames = ['email']\n[redaction.classes.other]\nnames = ['other']"
    );
    let config = parse(&text).unwrap();
    let rules = config.redaction_rules(&kind("k"));
    assert_eq!(rules.names().collect::<Vec<_>>(), ["common", "email", "own"]);
    assert_eq!(rules.paths()[0].to_string(), "$.a");
    assert_eq!(config.redaction_rules(&kind("unknown")).names().collect::<Vec<_>>(), ["common", "email", "other"]);
}

#[test]
fn d3_detectors_run_for_every_kind_unless_they_are_switched_off() {
    for (setting, expected) in [("", true), ("detectors = true", true), ("detectors = false", false)] {
        let config = parse(&format!("{MINIMAL}\n[redaction]\n{setting}")).unwrap();
        assert_eq!(config.redaction_rules(&kind("k")).detects(), expected);
        assert_eq!(config.redaction_rules(&kind("unknown")).detects(), expected);
    }
}

#[test]
fn o4_redaction_that_makes_no_sense_is_an_error() {
    let unknown = errors(&format!("{MINIMAL}redact = {{ classes = ['person'] }}"));
    assert_eq!(
        unknown,
        ["5: kinds.k.redact.classes[0]: there is no data class \"person\" in [redaction.classes]; allowed is nothing"]
    );
    assert!(
        errors("[redaction]\npaths = [\n'$.a',\n'b']")[0]
            .starts_with("4: redaction.paths[1]: a path begins with $ at character 1")
    );
    assert!(errors("[redaction]\nnames = ['$.a']")[0].contains("belongs under paths"));
}

#[test]
fn o5_actors_are_read_by_user_id() {
    let config = parse("[actors]\n'uid:7' = { name = 'jo', role = 'operate' }").unwrap();
    assert_eq!(config.actor_for_uid(7), Some(Actor { name: "jo".to_owned(), role: Role::Operate }));
    assert_eq!(config.actor_for_uid(0), None);
    assert!(errors("[actors]\njo = { name = 'jo', role = 'view' }")[0].contains("a user is written \"uid:1000\""));
    assert!(
        errors("[actors]\n'uid:1' = { name = 'jo', role = 'root' }")[0]
            .contains("\"enqueue\", \"view\", \"operate\" or \"admin\"")
    );
}

#[test]
fn o5_nobody_is_given_a_name_that_the_daemon_itself_gives() {
    for name in ["retention", "handlers folder", "token:ci", "uid:7", "peer:127.0.0.1"] {
        let errors = errors(&format!("[actors]\n'uid:7' = {{ name = '{name}', role = 'admin' }}\n{MINIMAL}"));
        assert!(errors.len() == 1 && errors[0].contains("choose another one"), "{name}: {errors:#?}");
    }
}

#[test]
fn o5_actors_are_read_by_token_and_tokens_alone_leave_users_as_they_are() {
    let token = |name: &str| TokenName::new(name).unwrap();
    let config = parse("[actors]\n'token:ci' = { name = 'build', role = 'enqueue' }").unwrap();
    let build = Actor { name: "build".to_owned(), role: Role::Enqueue };
    assert_eq!((config.actor_for_token(&token("ci")), config.actor_for_token(&token("cd"))), (Some(build), None));
    assert_eq!(config.actor_for_uid(0).map(|actor| actor.role), Some(Role::Admin));
    let both = "[actors]\n'token:ci' = { name = 'a', role = 'view' }\n'uid:7' = { name = 'jo', role = 'view' }";
    assert_eq!(parse(both).unwrap().actor_for_uid(0), None);
    assert_eq!(parse("[actors]").unwrap().actor_for_uid(0), None);
    assert!(errors("[actors]\n'token:7' = { name = 'a', role = 'view' }")[0].contains("\"token:ci\""));
}

#[test]
fn o5_an_address_that_other_machines_reach_has_to_be_allowed() {
    let listen = |text: &str| parse(&format!("[api]\n{text}")).map(|config| config.api.listen.map(|a| a.to_string()));
    assert_eq!(parse("").unwrap().api.listen, None);
    assert_eq!(listen("listen = ''").unwrap(), None);
    for address in ["127.0.0.1:7878", "127.9.9.9:1", "[::1]:7878"] {
        assert_eq!(listen(&format!("listen = '{address}'")).unwrap().as_deref(), Some(address));
    }
    for address in ["0.0.0.0:7878", "[::]:7878", "192.168.1.7:7878", "[::ffff:192.168.1.7]:7878"] {
        let message = &errors(&format!("[api]\nlisten = '{address}'"))[0];
        assert!(message.starts_with("2: api.listen: ") && message.contains("allow_remote = true"), "{message}");
        assert!(listen(&format!("listen = '{address}'\nallow_remote = true")).unwrap().is_some());
    }
    for address in ["localhost:7878", "7878", "127.0.0.1", "/run/socket"] {
        assert!(errors(&format!("[api]\nlisten = '{address}'"))[0].contains("an IP address and a port"), "{address}");
    }
    assert_eq!(parse("[api]\nhosts = ['Queue.example.com']").unwrap().api.hosts, ["queue.example.com"]);
    assert!(errors("[api]\nhosts = ['https://x']")[0].contains("without scheme and port"));
}

#[test]
fn o4_a_socket_path_that_no_socket_holds_is_an_error() {
    let path = format!("/{}", "s".repeat(107));
    assert!(parse(&format!("[daemon]\nsocket = '{}'", &path[..107])).is_ok());
    let message = &errors(&format!("[daemon]\nsocket = '{path}'"))[0];
    assert!(message.starts_with("2: daemon.socket: ") && message.contains("is 108 bytes long"), "{message}");
}

#[test]
fn o4_a_class_that_can_not_be_mapped_is_an_error() {
    assert!(errors("[errors]\n'No Class' = 'retry'")[0].contains("is no class that can be mapped"));
    assert!(errors("[errors]\nunclassified = 'retry'")[0].contains("is no class that can be mapped"));
    assert!(errors("[errors]\nclass = 'again'")[0].contains("\"retry\", \"rate-limited\", \"rejected\" or \"poison\""));
}

#[test]
fn o4_a_file_that_can_not_be_read_is_named() {
    let errors = Config::load(Path::new("/nowhere/config.toml")).unwrap_err();
    assert!(errors.to_string().starts_with("/nowhere/config.toml: the configuration can't be read: "));
}

#[test]
fn o2_where_pages_go_is_checked() {
    let alerts = |lines: &str| errors(&format!("[alerts]\n{lines}\n{MINIMAL}"));
    for (lines, start, why) in [
        ("page_after = 0", "2: alerts.page_after: ", "a whole number from 1"),
        ("timeout = '1ms'", "2: alerts.timeout: ", "a duration from \"100ms\""),
        ("webhook = 'http://hooks.example.com'", "2: alerts.webhook: ", "allowed is https://"),
        ("webhook = { env = 'TEST_NO_SUCH_SECRET' }", "2: alerts.webhook.env: ", "is not set"),
        ("webhook_secret = 'plain'", "2: alerts.webhook_secret: ", "never stands here"),
        ("command = ['page']", "2: alerts.command: ", "no file that can be executed"),
        ("command = ['/etc/passwd']", "2: alerts.command: ", "no file that can be executed"),
        ("command = ['/bin/sh', 7]", "2: alerts.command[1]: ", "expected a string"),
        ("webhook = 'https://a.org'\ncommand = ['/bin/sh']", "3: alerts.command: ", "leave one of the two away"),
        ("comand = ['/bin/sh']", "2: alerts.comand: ", "did you mean command?"),
    ] {
        let errors = alerts(lines);
        assert!(errors.len() == 1 && errors[0].starts_with(start) && errors[0].contains(why), "{lines}: {errors:#?}");
    }
    let command = parse("[alerts]\ncommand = ['/bin/sh', '-c', 'true']").unwrap().alerts.channel;
    let arguments = vec!["-c".to_owned(), "true".to_owned()];
    assert_eq!(command, Some(Channel::Command { program: "/bin/sh".into(), arguments }));
    assert_eq!(parse("[alerts]\nwebhook = ''\ncommand = []").unwrap().alerts, parse("").unwrap().alerts);
    // Whoever makes the secret before the webhook must not find that nothing starts.
    for webhook in ["webhook = 'https://a.org'\n", "", "command = ['/bin/sh']\n"] {
        assert!(parse(&format!("[alerts]\n{webhook}webhook_secret = {{ env = 'PATH' }}")).is_ok(), "{webhook}");
    }
}
