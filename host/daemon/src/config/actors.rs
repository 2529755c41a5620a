//! The section `[actors]`: which user of the machine is who to the daemon, and may do what. It never authenticates anybody.

use super::reader::{Entry, Section};

/// Somebody whom the daemon knows: the name stands in the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// Who it is.
    pub name: String,
    /// What they may do.
    pub role: Role,
}

/// What an actor may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Hand in jobs, and see what became of their own.
    Enqueue,
    /// See everything that is redacted.
    View,
    /// See, hand in jobs, and act on jobs and dead letters.
    Operate,
    /// Everything, also handlers, tokens and the configuration.
    Admin,
}

impl Role {
    /// The role as it is written in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enqueue => "enqueue",
            Self::View => "view",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }

    /// Whether the role is enough for what needs that one.
    pub const fn permits(self, needed: Self) -> bool {
        match self {
            Self::Admin => true,
            Self::Operate => !matches!(needed, Self::Admin),
            Self::View => matches!(needed, Self::View),
            Self::Enqueue => matches!(needed, Self::Enqueue),
        }
    }
}

/// One user of the machine and who that is to the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActorRule {
    /// The user id.
    pub uid: u32,
    /// Who that is.
    pub actor: Actor,
}

/// Reads the section. Without it, root and the daemon's own user are admins.
pub(super) fn read(section: &Section<'_>) -> Vec<ActorRule> {
    if !section.is_present() {
        return default_rules(rustix::process::geteuid().as_raw());
    }
    section.entries().iter().filter_map(read_rule).collect()
}

fn default_rules(own_uid: u32) -> Vec<ActorRule> {
    let admin = |uid: u32, name: String| ActorRule { uid, actor: Actor { name, role: Role::Admin } };
    let mut rules = vec![admin(0, "root".to_owned())];
    if own_uid != 0 {
        rules.push(admin(own_uid, format!("uid:{own_uid}")));
    }
    rules
}

fn read_rule(entry: &Entry<'_>) -> Option<ActorRule> {
    let digits = entry.name.strip_prefix("uid:").filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    let uid = digits.and_then(|digits| digits.parse().ok());
    if uid.is_none() {
        entry.error("is no user; a user is written \"uid:1000\"");
    }
    let section = entry.section();
    let name = section.required("name", "the actor's name").and_then(|name| read_name(&name));
    let role = section.required("role", "a role").and_then(|role| {
        let roles = [Role::Enqueue, Role::View, Role::Operate, Role::Admin].map(|role| (role.as_str(), role));
        role.choice(&roles)
    });
    section.refuse_unknown();
    Some(ActorRule { uid: uid?, actor: Actor { name: name?, role: role? } })
}

fn read_name(entry: &Entry<'_>) -> Option<String> {
    let name = entry.text()?;
    if name.is_empty() || name.chars().count() > 64 || name.chars().any(char::is_control) {
        entry.error("is no actor's name; allowed are 1 to 64 characters without control characters");
        return None;
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o5_by_default_root_and_the_daemons_own_user_are_admins() {
        let uids = |own_uid| default_rules(own_uid).iter().map(|rule| rule.uid).collect::<Vec<_>>();
        assert_eq!(uids(0), [0]);
        assert_eq!(uids(1000), [0, 1000]);
        assert!(default_rules(1000).iter().all(|rule| rule.actor.role == Role::Admin));
    }

    #[test]
    fn o5_a_role_permits_what_it_says_and_no_more() {
        let permitted =
            |role: Role| [Role::Enqueue, Role::View, Role::Operate, Role::Admin].map(|needed| role.permits(needed));
        assert_eq!(permitted(Role::Enqueue), [true, false, false, false]);
        assert_eq!(permitted(Role::View), [false, true, false, false]);
        assert_eq!(permitted(Role::Operate), [true, true, true, false]);
        assert_eq!(permitted(Role::Admin), [true; 4]);
    }
}
