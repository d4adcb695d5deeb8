//! Lets a type or a trait of another crate out of its public API in every way there is, and keeps
//! it inside in a few. What follows `leaks:` is the item that the tool must name.

use foreign::{Error, Trait, Type};

pub struct Field {
    pub field: Type, // leaks: Field::field
}

pub enum Source {
    Variant { source: Error }, // leaks: Source
}

pub fn argument(_: &Type) {} // leaks: argument

pub fn result() -> Result<(), Error> {
    // leaks: result
    Ok(())
}

pub fn list() -> Vec<Option<Type>> {
    // leaks: list
    Vec::new()
}

pub fn bound<T: Trait>(_: T) {} // leaks: bound

pub fn hidden() -> impl Trait {
    // leaks: hidden
    0
}

pub fn dynamic(_: &dyn Trait) {} // leaks: dynamic

pub fn closure(_: impl FnOnce(Type)) {} // leaks: closure

pub struct Implements;

impl Trait for Implements {} // leaks: Implements

pub struct Converts;

impl From<Error> for Converts {
    // leaks: Converts
    fn from(_: Error) -> Self {
        Self
    }
}

pub trait Super: Trait {} // leaks: Super

pub trait Method {
    fn method(&self) -> Type; // leaks: Method::method
}

pub type Alias = Type; // leaks: Alias

pub static STATIC: Type = Type; // leaks: STATIC

pub mod outer {
    pub use foreign::Type; // leaks: outer
}

/// Foreign inside, not outside.
pub struct Sound {
    _inside: Type,
}

/// As a field of a private type and in private functions.
pub fn sound() {
    struct Private(#[expect(dead_code, reason = "it is here to be private")] Type);
    fn private(_: Private) {}
    private(Private(Type));
}
