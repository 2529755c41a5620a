//! A handler that does what another does and is as large as an interpreter: its module's functions are there many times
//! over, and only the first of each are ever called. What it costs to compile is what so much code costs.

use std::convert::Infallible;

use anyhow::anyhow;
use wasm_encoder::{
    CodeSection, Component, FunctionSection,
    reencode::{Error, Reencode, ReencodeComponent},
};
use wasmparser::{CodeSectionReader, FunctionSectionReader, Parser};

/// Modules with fewer functions are the small ones that a component is wired with.
const FUNCTIONS_MIN: u32 = 20;

/// Makes a component as large as asked for, or a little larger.
pub fn enlarge(component: &[u8], bytes: usize) -> anyhow::Result<Vec<u8>> {
    let mut copies = bytes / component.len();
    loop {
        let mut large = Component::new();
        Copier { copies }
            .parse_component(&mut large, Parser::new(0), component)
            .map_err(|error| anyhow!("the component can't be enlarged: {error}"))?;
        let large = large.finish();
        if large.len() >= bytes {
            return Ok(large);
        }
        copies += copies / 4 + 1;
    }
}

/// The same component with other bytes: `name` is in a section that nothing reads.
#[must_use]
pub fn rename(component: &[u8], name: &str) -> Vec<u8> {
    let mut renamed = component.to_vec();
    let length = u8::try_from(name.len()).unwrap_or(0);
    renamed.extend([0, length + 1, length]);
    renamed.extend(name.bytes().take(usize::from(length)));
    renamed
}

struct Copier {
    copies: usize,
}

impl Reencode for Copier {
    type Error = Infallible;

    fn parse_function_section(
        &mut self,
        functions: &mut FunctionSection,
        section: FunctionSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        for _ in 0..=self.copies_of(section.count()) {
            for function in section.clone() {
                functions.function(function?);
            }
        }
        Ok(())
    }

    fn parse_code_section(
        &mut self,
        code: &mut CodeSection,
        section: CodeSectionReader<'_>,
    ) -> Result<(), Error<Infallible>> {
        for _ in 0..=self.copies_of(section.count()) {
            for function in section.clone() {
                self.parse_function_body(code, function?)?;
            }
        }
        Ok(())
    }
}

impl Copier {
    const fn copies_of(&self, functions: u32) -> usize {
        if functions < FUNCTIONS_MIN { 0 } else { self.copies }
    }
}

impl ReencodeComponent for Copier {}
