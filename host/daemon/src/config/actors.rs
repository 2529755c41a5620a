//! The section `[actors]`: which user of the machine, and which token's bearer, is who to the daemon, and may do what. It
//! never authenticates anybody.

use leasehold_domain::token::TokenName;

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
    /// All roles.
    pub const ALL: [Self; 4] = [Self::Enqueue, Self::View, Self::Operate, Self::Admin];

    /// The role of that name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }

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

/// Somebody who can prove who they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// A user of this machine, by the kernel's word.
    Uid(u32),
    /// The bearer of a token.
    Token(TokenName),
}

/// One caller and who that is to the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActorRule {
    /// The caller.
    pub caller: Caller,
    /// Who that is.
    pub actor: Actor,
}

/// Reads the section. When it is not there, or names tokens alone, root and the daemon's own user are admins.
pub(super) fn read(section: &Section<'_>) -> Vec<ActorRule> {
    let entries = section.entries();
    let mut rules: Vec<_> = entries.iter().filter_map(read_rule).collect();
    let names_tokens_alone = !entries.is_empty() && entries.iter().all(|entry| entry.name.starts_with(TOKEN));
    if !section.is_present() || names_tokens_alone {
        rules.extend(default_rules(rustix::process::geteuid().as_raw()));
    }
    rules
}

const UID: &str = "uid:";
const TOKEN: &str = "token:";
/// Callers who could not say who they are stand in the audit log under their address.
const PEER: &str = "peer:";
/// Who acts by a setting, not by a call.
const RESERVED: [&str; 2] = ["retention", "handlers folder"];

fn default_rules(own_uid: u32) -> Vec<ActorRule> {
    let admin =
        |uid: u32, name: String| ActorRule { caller: Caller::Uid(uid), actor: Actor { name, role: Role::Admin } };
    let mut rules = vec![admin(0, "root".to_owned())];
    if own_uid != 0 {
        rules.push(admin(own_uid, format!("uid:{own_uid}")));
    }
    rules
}

fn read_rule(entry: &Entry<'_>) -> Option<ActorRule> {
    let caller = read_caller(&entry.name);
    if caller.is_none() {
        entry.error("is no user and no token; a user is written \"uid:1000\", a token by its name, \"token:ci\"");
    }
    let section = entry.section();
    let name = section.required("name", "the actor's name").and_then(|name| read_name(&name));
    let role = section.required("role", "a role").and_then(|role| {
        let roles = Role::ALL.map(|role| (role.as_str(), role));
        role.choice(&roles)
    });
    section.refuse_unknown();
    Some(ActorRule { caller: caller?, actor: Actor { name: name?, role: role? } })
}

fn read_caller(text: &str) -> Option<Caller> {
    if let Some(name) = text.strip_prefix(TOKEN) {
        return TokenName::new(name).ok().map(Caller::Token);
    }
    let digits = text.strip_prefix(UID).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok().map(Caller::Uid)
}

fn read_name(entry: &Entry<'_>) -> Option<String> {
    let name = entry.text()?;
    if name.is_empty() || name.chars().count() > 64 || name.chars().any(char::is_control) {
        entry.error("is no actor's name; allowed are 1 to 64 characters without control characters");
        return None;
    }
    if RESERVED.contains(&name.as_str()) || [UID, TOKEN, PEER].iter().any(|prefix| name.starts_with(prefix)) {
        entry.error("is a name that the daemon itself gives in the audit log; choose another one");
        return None;
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o5_by_default_root_and_the_daemons_own_user_are_admins() {
        let callers = |own_uid| default_rules(own_uid).into_iter().map(|rule| rule.caller).collect::<Vec<_>>();
        assert_eq!(callers(0), [Caller::Uid(0)]);
        assert_eq!(callers(1000), [Caller::Uid(0), Caller::Uid(1000)]);
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
