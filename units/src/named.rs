//! Enums whose values have names: in files, on sockets, in tables.

/// An enum from one list: its values, numbered from 0 in their order, each with its name. It gets `COUNT`,
/// `ALL`, `NAMES`, `name`, `from_name`, and is displayed by its name.
#[macro_export]
macro_rules! named {
    ($(#[$about:meta])* $vis:vis enum $enum:ident {
        $($(#[$meta:meta])* $value:ident = $name:literal,)*
    }) => {
        $(#[$about])*
        $vis enum $enum {
            $($(#[$meta])* $value,)*
        }

        impl $enum {
            /// The number of values.
            $vis const COUNT: usize = [$($name),*].len();
            /// All of them, in the order of their numbers.
            $vis const ALL: [Self; Self::COUNT] = [$(Self::$value),*];
            /// Their names, in the same order.
            $vis const NAMES: [&'static str; Self::COUNT] = [$($name),*];

            /// Its name.
            #[must_use]
            $vis const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)*
                }
            }

            /// The value of this name, if there is one.
            #[must_use]
            $vis fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }
        }

        impl core::fmt::Display for $enum {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
