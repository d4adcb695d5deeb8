//! Types of values in a safetensors file.

use std::fmt;

macro_rules! dtypes {
    ($($name:ident = $text:literal, $bits:literal;)+) => {
        /// Type of a tensor's values. Names are those of the safetensors format.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(non_camel_case_types, reason = "the format's own names")]
        #[non_exhaustive]
        pub enum Dtype {
            $(
                #[doc = concat!("`", $text, "`, ", stringify!($bits), " bits a value.")]
                $name,
            )+
        }

        impl Dtype {
            /// The type with a name of the format.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($text => Some(Self::$name),)+
                    _ => None,
                }
            }

            /// The format's name of the type.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }

            /// Bits of one value.
            #[must_use]
            pub const fn bits(self) -> u64 {
                match self {
                    $(Self::$name => $bits,)+
                }
            }
        }
    };
}

dtypes! {
    BOOL = "BOOL", 8;
    F4 = "F4", 4;
    F6_E2M3 = "F6_E2M3", 6;
    F6_E3M2 = "F6_E3M2", 6;
    U8 = "U8", 8;
    I8 = "I8", 8;
    F8_E5M2 = "F8_E5M2", 8;
    F8_E4M3 = "F8_E4M3", 8;
    F8_E8M0 = "F8_E8M0", 8;
    F8_E4M3FNUZ = "F8_E4M3FNUZ", 8;
    F8_E5M2FNUZ = "F8_E5M2FNUZ", 8;
    I16 = "I16", 16;
    U16 = "U16", 16;
    F16 = "F16", 16;
    BF16 = "BF16", 16;
    I32 = "I32", 32;
    U32 = "U32", 32;
    F32 = "F32", 32;
    C64 = "C64", 64;
    F64 = "F64", 64;
    I64 = "I64", 64;
    U64 = "U64", 64;
}

impl Dtype {
    /// Bytes of `values` values; `None` on overflow or when they do not fill whole bytes.
    #[must_use]
    pub fn bytes_of(self, values: u64) -> Option<u64> {
        let bits = values.checked_mul(self.bits())?;
        bits.is_multiple_of(8).then_some(bits / 8)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
