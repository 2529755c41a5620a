//! What kind of address a name has resolved to. It is a pure classification: anything that is not surely public is not.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Who an address belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddressClass {
    /// The public internet.
    Public,
    /// This machine, a private network or a link: reached only by a grant that says `private`.
    Private,
    /// No single host, or none that can be said to be somewhere: never reached.
    Never,
}

/// Classifies an address. An IPv6 address that stands for an IPv4 one is what that one is.
pub(super) fn classify(address: IpAddr) -> AddressClass {
    match address {
        IpAddr::V4(address) => classify_v4(address),
        IpAddr::V6(address) => classify_v6(address),
    }
}

fn classify_v4(address: Ipv4Addr) -> AddressClass {
    match address.octets() {
        [0 | 224..=255, ..] => AddressClass::Never,
        [10 | 127, ..]
        | [100, 64..=127, ..]
        | [169, 254, ..]
        | [172, 16..=31, ..]
        | [192, 168, ..]
        // Protocol assignments, documentation, the old 6to4 relay and benchmarks are nobody's public hosts.
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18 | 19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _] => AddressClass::Private,
        _ => AddressClass::Public,
    }
}

fn classify_v6(address: Ipv6Addr) -> AddressClass {
    if address.is_unspecified() {
        return AddressClass::Never;
    }
    if address.is_loopback() {
        return AddressClass::Private;
    }
    if let Some(embedded) = embedded_v4(address) {
        return classify_v4(embedded);
    }
    match address.segments() {
        [0xff00..=0xffff, ..] => AddressClass::Never,
        // Documentation, Teredo, ORCHID and benchmarks lie within what is otherwise public.
        [0x2001, 0x0000..=0x01ff | 0x0db8, ..] | [0x3fff, 0x0000..=0x0fff, ..] => AddressClass::Private,
        // Only 2000::/3 is given out as global unicast; unique local, link-local and all else are not.
        [0x2000..=0x3fff, ..] => AddressClass::Public,
        _ => AddressClass::Private,
    }
}

/// The IPv4 address that an IPv6 one is translated to: mapped, compatible, NAT64 and 6to4.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h6_only_public_addresses_are_public() {
        use AddressClass::{Never, Private, Public};
        let table = [
            ("1.1.1.1", Public),
            ("93.184.216.34", Public),
            ("100.63.255.255", Public),
            ("100.64.0.0", Private),
            ("100.127.255.255", Private),
            ("100.128.0.0", Public),
            ("10.0.0.1", Private),
            ("127.0.0.1", Private),
            ("127.255.255.254", Private),
            ("169.254.169.254", Private),
            ("172.15.255.255", Public),
            ("172.16.0.1", Private),
            ("172.31.255.255", Private),
            ("172.32.0.0", Public),
            ("192.168.1.1", Private),
            ("192.0.2.1", Private),
            ("198.18.0.1", Private),
            ("0.0.0.0", Never),
            ("0.1.2.3", Never),
            ("224.0.0.1", Never),
            ("240.0.0.1", Never),
            ("255.255.255.255", Never),
            ("::", Never),
            ("::1", Private),
            ("::ffff:127.0.0.1", Private),
            ("::ffff:1.1.1.1", Public),
            ("::ffff:0.0.0.0", Never),
            ("::127.0.0.1", Private),
            ("::ffff:0:127.0.0.1", Private),
            ("::ffff:169.254.169.254", Private),
            ("64:ff9b::10.0.0.1", Private),
            ("64:ff9b::0.0.0.0", Never),
            ("fe80::5efe:1.1.1.1", Private),
            ("fd00:ec2::254", Private),
            ("64:ff9b::1.1.1.1", Public),
            ("64:ff9b:1::1", Private),
            ("2002:7f00:1::", Private),
            ("2002:101:101::", Public),
            ("fc00::1", Private),
            ("fd12:3456::1", Private),
            ("fe80::1", Private),
            ("fec0::1", Private),
            ("ff02::1", Never),
            ("2001:db8::1", Private),
            ("2001::1", Private),
            ("2606:4700:4700::1111", Public),
            ("4000::1", Private),
        ];
        for (text, expected) in table {
            assert_eq!(classify(text.parse().unwrap()), expected, "{text}");
        }
    }
}
