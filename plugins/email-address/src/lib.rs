//! Whether a recipient's address can be one at all, and the form in which every e-mail plugin lists it. It decides by syntax
//! alone and never asks anyone.

use leasehold_guest::Failure;

/// The longest address that mail systems carry, in bytes.
const ADDRESS_MAX_BYTES: usize = 254;
/// The longest local part, in bytes.
const LOCAL_MAX_BYTES: usize = 64;

/// The address trimmed and in lower case, or poison: no later attempt makes a malformed address better.
pub fn normalised(address: &str) -> Result<String, Failure> {
    let address = address.trim();
    if is_plausible(address) {
        Ok(address.to_lowercase())
    } else {
        Err(Failure::poison("email.address_malformed", "the recipient's address is malformed"))
    }
}

fn is_plausible(address: &str) -> bool {
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    address.len() <= ADDRESS_MAX_BYTES && is_local_part(local) && is_domain(domain)
}

fn is_local_part(local: &str) -> bool {
    let is_allowed = |character: char| {
        !character.is_whitespace() && !character.is_control() && !"\"(),:;<>@[\\]".contains(character)
    };
    local.len() <= LOCAL_MAX_BYTES && local.split('.').all(|atom| !atom.is_empty() && atom.chars().all(is_allowed))
}

fn is_domain(domain: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|character| character.is_alphanumeric() || character == '-')
    };
    domain.contains('.') && domain.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_use_are_accepted_and_normalised() {
        for (given, listed) in [
            ("alice@example.com", "alice@example.com"),
            ("  Alice.B+news@Example.COM ", "alice.b+news@example.com"),
            ("o'neil@mail.example-shop.co.uk", "o'neil@mail.example-shop.co.uk"),
            ("jörg@müller.example", "jörg@müller.example"),
        ] {
            assert_eq!(normalised(given).as_deref(), Ok(listed));
        }
    }

    #[test]
    fn d1_a_malformed_address_is_poison() {
        let long_local = format!("{}@example.com", "a".repeat(65));
        let long_domain = format!("a@{}example.com", "label.".repeat(50));
        for address in [
            "",
            "alice",
            "@example.com",
            "alice@",
            "alice@example",
            "alice@-example.com",
            "alice@example-.com",
            "alice@exa mple.com",
            "al ice@example.com",
            "alice..b@example.com",
            ".alice@example.com",
            "a@b@example.com",
            "alice@example..com",
            "alice@example.com, bob@example.com",
            "Alice <alice@example.com>",
            "alice\r\nbcc:bob@example.com",
            &long_local,
            &long_domain,
        ] {
            let failure = normalised(address).expect_err(address);
            assert!(matches!(failure, Failure::Poison(_)), "{address}");
            assert_eq!(failure.problem().class, "email.address_malformed");
        }
    }
}
