//! A policy's fields, compiled so that one pass over a payload finds them all. It never reads a payload itself.

use std::collections::BTreeSet;

use super::path::{FieldPath, Segment};

/// The fields to mask: by name anywhere and by path.
///
/// The paths run side by side as one automaton whose states are the places between their segments; a set of states is a
/// row of bits, so that going one level down costs the same at any depth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    detects: bool,
    names: BTreeSet<String>,
    paths: Vec<FieldPath>,
    states: Vec<State>,
    roots: Vec<usize>,
}

/// A place in a path: what has to follow, or nothing when the path ends here.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State(Option<Segment>);

/// The states that are live at one place of a payload, a bit each.
pub(super) type StateSet = Vec<u64>;

/// One step down into a payload.
#[derive(Debug, Clone, Copy)]
pub(super) enum Descent<'a> {
    /// Into the field of that name, in lower case.
    Key(&'a str),
    /// Into the element at that place.
    Index(usize),
}

impl Default for Rules {
    fn default() -> Self {
        Self::new([], [])
    }
}

impl Rules {
    /// Compiles names, which match at any depth whatever their case, and paths.
    #[must_use]
    pub fn new(names: impl IntoIterator<Item = String>, paths: impl IntoIterator<Item = FieldPath>) -> Self {
        let names = names.into_iter().map(|name| name.to_lowercase()).collect();
        let paths: Vec<FieldPath> = paths.into_iter().collect();
        let (mut states, mut roots) = (Vec::new(), Vec::new());
        for path in &paths {
            roots.push(states.len());
            states.extend(path.segments.iter().cloned().map(|segment| State(Some(segment))));
            states.push(State(None));
        }
        Self { detects: true, names, paths, states, roots }
    }

    /// Says whether what looks like personal data or a secret is masked in fields that are not listed too, as it is
    /// unless this is called.
    #[must_use]
    pub fn with_detectors(self, detects: bool) -> Self {
        Self { detects, ..self }
    }

    /// Whether detectors run.
    pub const fn detects(&self) -> bool {
        self.detects
    }

    /// The names, in lower case.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// The paths, as they were given.
    pub fn paths(&self) -> &[FieldPath] {
        &self.paths
    }

    /// How many words a set of states takes.
    pub(super) fn words(&self) -> usize {
        self.states.len().div_ceil(64)
    }

    /// Whether a field of that name, in lower case, is masked wherever it stands.
    pub(super) fn is_masked_name(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// The states at the payload's root.
    pub(super) fn root(&self) -> StateSet {
        let mut set = vec![0; self.words()];
        for &root in &self.roots {
            self.enter(&mut set, root);
        }
        set
    }

    /// Writes the states one level further down into `into`, which holds [`Rules::words`] words.
    pub(super) fn descend(&self, from: &[u64], descent: Descent<'_>, into: &mut [u64]) {
        into.fill(0);
        for state in members(from) {
            match &self.states[state].0 {
                Some(Segment::AnyDepth) => self.enter(into, state),
                Some(segment) if matches(segment, descent) => self.enter(into, state + 1),
                _ => {}
            }
        }
    }

    /// Whether some path ends at this set of states.
    pub(super) fn is_end(&self, set: &[u64]) -> bool {
        members(set).any(|state| self.states[state].0.is_none())
    }

    /// Adds a state, and those behind it that any depth lets one reach without a step.
    fn enter(&self, set: &mut [u64], first: usize) {
        let mut state = first;
        set[state / 64] |= 1 << (state % 64);
        while self.states[state].0 == Some(Segment::AnyDepth) {
            state += 1;
            set[state / 64] |= 1 << (state % 64);
        }
    }
}

fn matches(segment: &Segment, descent: Descent<'_>) -> bool {
    match (segment, descent) {
        (Segment::Any, _) => true,
        (Segment::Key(wanted), Descent::Key(name)) => wanted == name,
        (Segment::Index(wanted), Descent::Index(index)) => *wanted == index,
        _ => false,
    }
}

fn members(set: &[u64]) -> impl Iterator<Item = usize> {
    set.iter().enumerate().flat_map(|(word, &bits)| {
        (0..64).take_while(move |_| bits != 0).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word * 64 + bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reaches(path: &str, descents: &[Descent<'_>]) -> bool {
        let rules = Rules::new([], [path.parse().unwrap()]);
        let mut set = rules.root();
        for &descent in descents {
            let mut next = vec![0; rules.words()];
            rules.descend(&set, descent, &mut next);
            set = next;
        }
        rules.is_end(&set)
    }

    #[test]
    fn d2_a_path_is_followed_through_fields_elements_and_any_depth() {
        use Descent::{Index, Key};
        assert!(reaches("$", &[]));
        assert!(reaches("$.items[*].iban", &[Key("items"), Index(7), Key("iban")]));
        assert!(!reaches("$.items[1].iban", &[Key("items"), Index(7), Key("iban")]));
        assert!(reaches("$..token", &[Key("token")]));
        assert!(reaches("$..token", &[Key("a"), Index(0), Key("b"), Key("token")]));
        assert!(!reaches("$..token", &[Key("token"), Key("id")]));
        assert!(reaches("$.a..b.*", &[Key("a"), Key("b"), Key("b"), Index(2)]));
    }

    #[test]
    fn d3_a_policy_is_told_as_it_was_given_with_its_names_in_lower_case() {
        let rules = Rules::new(["PassWord".to_owned(), "E-Mail".to_owned()], ["$.A['b c']".parse().unwrap()]);
        assert_eq!(rules.names().collect::<Vec<_>>(), ["e-mail", "password"]);
        assert_eq!(rules.paths().iter().map(ToString::to_string).collect::<Vec<_>>(), ["$.A['b c']"]);
        assert!(rules.detects() && !rules.with_detectors(false).detects());
    }

    #[test]
    fn d2_more_paths_than_fit_one_word_are_all_followed() {
        let paths = (0..100).map(|n| format!("$.a{n}.b").parse().unwrap());
        let rules = Rules::new([], paths);
        let (mut first, mut second) = (vec![0; rules.words()], vec![0; rules.words()]);
        rules.descend(&rules.root(), Descent::Key("a99"), &mut first);
        rules.descend(&first, Descent::Key("b"), &mut second);
        assert!(rules.is_end(&second));
    }
}
