//! Sources of the kernels, and the constants that Rust and MSL share.

/// A Metal library: the text of one compilation.
#[derive(Debug, PartialEq, Eq)]
pub struct Library {
    name: &'static str,
    parts: &'static [&'static str],
}

impl Library {
    /// A library of this name whose source is these parts, one after the other.
    #[must_use]
    pub const fn new(name: &'static str, parts: &'static [&'static str]) -> Self {
        Self { name, parts }
    }

    /// Its name: the stem of its `.metal` file.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The whole source, for MSL 3.1 in safe math mode: the kernels tell numbers from NaN.
    #[must_use]
    pub fn source(&self) -> String {
        self.parts.join("\n")
    }
}

/// Numbers that a kernel gets by value.
pub(super) trait Constants {
    /// The declaration of the struct in MSL.
    const MSL: &'static str;

    /// Its bytes.
    fn bytes(&self) -> Vec<u8>;
}

/// Declares a struct of `u32` and `f32` for Rust and, in [`Constants::MSL`], for MSL. All fields
/// have four bytes, so both lay it out without gaps.
macro_rules! constants {
    ($name:ident { $($field:ident: $type:tt),* $(,)? }) => {
        #[derive(Clone, Copy, Debug)]
        pub(super) struct $name {
            $(pub(super) $field: $type,)*
        }

        impl crate::metal::library::Constants for $name {
            const MSL: &'static str = concat!(
                "struct ", stringify!($name), " {",
                $(" ", crate::metal::library::msl_type!($type), " ", stringify!($field), ";",)*
                " };"
            );

            fn bytes(&self) -> Vec<u8> {
                [$(self.$field.to_le_bytes()),*].concat()
            }
        }
    };
}

macro_rules! msl_type {
    (u32) => {
        "uint"
    };
    (f32) => {
        "float"
    };
}

pub(super) use {constants, msl_type};
