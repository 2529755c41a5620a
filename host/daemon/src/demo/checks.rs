//! Tells the steps and keeps count of what held. It never ends the story by itself.

/// Says what happens and whether what should hold does.
#[derive(Debug, Default)]
pub(super) struct Narrator {
    steps: usize,
    checked: usize,
    failed: usize,
}

impl Narrator {
    /// Begins the next step.
    pub(super) fn step(&mut self, title: &str) {
        self.steps += 1;
        println!("\n{}. {title}", self.steps);
    }

    /// Shows something that the daemon said.
    #[allow(clippy::unused_self, reason = "all of the story goes through the narrator")]
    pub(super) fn show(&self, text: &str) {
        for line in text.lines() {
            println!("     {line}");
        }
    }

    /// Checks one thing.
    pub(super) fn check(&mut self, what: &str, holds: bool) {
        self.checked += 1;
        self.failed += usize::from(!holds);
        println!("   {} {what}", if holds { "ok " } else { "NOT" });
    }

    /// How many things were checked, and how many did not hold.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.checked, self.failed)
    }
}
