//! Configurations as text, with the figures that make tests quick. A test states only what it is about.

/// A configuration of the handler `misbehave` and the kind `job`, to be extended.
#[derive(Debug, Clone)]
pub struct ConfigText {
    daemon: String,
    queue: String,
    sandbox: String,
    handler: String,
    kind: String,
    rest: String,
}

impl Default for ConfigText {
    fn default() -> Self {
        Self {
            daemon: "shutdown_grace = \"5s\"".into(),
            queue: String::new(),
            sandbox: "slots = 8\nmemory_max = \"16MiB\"".into(),
            handler: "stores = { s = \"read-write\" }\nsettings = { greeting = \"hello\" }\n\
                      outbound = [\"GET,POST http://127.0.0.1:9\"]"
                .into(),
            kind: "attempts = 3\nbackoff = { min = \"10ms\", max = \"50ms\" }\ndeadline = \"20s\"\n\
                   visibility_timeout = \"10s\"\nheartbeat = \"1s\"\nin_doubt = \"begin-again\""
                .into(),
            rest: "[errors]\n\"handler.told\" = \"retry\"".into(),
        }
    }
}

impl ConfigText {
    /// Sets a key of a section; a key that is there is replaced.
    fn set(section: &mut String, line: &str) {
        let key = line.split('=').next().unwrap_or_default().trim().to_owned();
        let kept = section.lines().filter(|line| line.split('=').next().map(str::trim) != Some(key.as_str()));
        *section = kept.chain([line]).collect::<Vec<_>>().join("\n");
    }

    /// Sets a line of `[daemon]`.
    pub fn daemon(mut self, line: &str) -> Self {
        Self::set(&mut self.daemon, line);
        self
    }

    /// Sets a line of `[queue]`.
    pub fn queue(mut self, line: &str) -> Self {
        Self::set(&mut self.queue, line);
        self
    }

    /// Sets a line of `[sandbox]`.
    pub fn sandbox(mut self, line: &str) -> Self {
        Self::set(&mut self.sandbox, line);
        self
    }

    /// Sets a line of `[handlers.misbehave]`.
    pub fn handler(mut self, line: &str) -> Self {
        Self::set(&mut self.handler, line);
        self
    }

    /// Sets a line of `[kinds.job]`.
    pub fn kind(mut self, line: &str) -> Self {
        Self::set(&mut self.kind, line);
        self
    }

    /// Adds another kind that `misbehave` serves, with lines like those of the first.
    pub fn another_kind(mut self, name: &str, lines: &str) -> Self {
        let section = format!("\n[kinds.{name}]\nhandler = \"misbehave\"\nowner = \"tests\"\n{lines}");
        self.rest += &section;
        self
    }

    /// Adds sections. `[errors]` stands before them, so lines that come first in the text go there.
    pub fn more(mut self, text: &str) -> Self {
        self.rest += "\n";
        self.rest += text;
        self
    }

    /// Lets `misbehave` reach a server on this machine.
    pub fn reaching(self, url: &str) -> Self {
        self.handler(&format!("outbound = [\"GET,POST {url}\"]"))
    }

    /// The file's text.
    pub fn text(&self) -> String {
        format!(
            "[daemon]\n{}\n[queue]\n{}\n[sandbox]\n{}\n[handlers.misbehave]\n{}\n\
             [kinds.job]\nhandler = \"misbehave\"\nowner = \"tests\"\n{}\n{}\n",
            self.daemon, self.queue, self.sandbox, self.handler, self.kind, self.rest
        )
    }
}
