//! [`Section`]: keys that stand together in a recipe, and the struct that holds their values. Each technique
//! declares its own by [`section!`]; `recipe::keys` puts them together.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Key;

/// Keys that stand together in a recipe, and the struct that holds them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Section {
    /// Dotted; empty at the top of a recipe.
    pub path: &'static str,
    /// What chooses these keys, where not every cell with the section has them.
    pub kind: Option<Kind>,
    /// One line.
    pub doc: &'static str,
    pub keys: &'static [Key],
}

/// The key that chooses which other keys its section has, and its values with which it has these.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kind {
    pub key: &'static str,
    /// Empty: any value but some.
    pub values: &'static [&'static str],
    pub but: &'static [&'static str],
}

impl Kind {
    /// Whether the keys are there where the section's key has this value.
    pub fn has(&self, value: &str) -> bool {
        !self.but.contains(&value) && (self.values.is_empty() || self.values.contains(&value))
    }
}

impl Section {
    /// For keys that every cell with the section has.
    pub const fn new(path: &'static str) -> Self {
        Self { path, kind: None, doc: "", keys: &[] }
    }

    /// For keys that are there where `key` has one of `values`.
    pub const fn of(path: &'static str, key: &'static str, values: &'static [&'static str]) -> Self {
        Self { kind: Some(Kind { key, values, but: &[] }), ..Self::new(path) }
    }

    /// For keys that are there where `key` has another value than these.
    pub const fn but(path: &'static str, key: &'static str, but: &'static [&'static str]) -> Self {
        Self { kind: Some(Kind { key, values: &[], but }), ..Self::new(path) }
    }

    #[must_use]
    pub const fn with(self, doc: &'static str, keys: &'static [Key]) -> Self {
        Self { doc, keys, ..self }
    }

    /// The dotted path of a key of the section.
    pub fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.into() } else { format!("{}.{name}", self.path) }
    }

    /// A struct of the section's keys, each with its default.
    ///
    /// # Panics
    /// When a key without a default needs a value.
    pub fn defaults<T: DeserializeOwned>(&self) -> T {
        let values = self.keys.iter().filter_map(|key| Some((key.name.to_string(), key.default.value()?)));
        serde_json::from_value(Value::Object(values.collect())).expect("every key has a default")
    }
}

/// A struct whose fields are the keys of a section, with the [`Section`] as `SECTION`. The first paragraph of its
/// documentation, and of each field's, is also that of the recipe. What stands behind `and` are fields with keys of
/// their own. With `, Default` behind the section the struct has the keys' defaults.
macro_rules! section {
    (
        $(#[$($about:tt)*])*
        $vis:vis struct $name:ident: $section:expr $(, $default:ident)? => {
            $($(#[$($doc:tt)*])* $key_vis:vis $key:ident: $type:ty = $is:expr),* $(,)?
        }
        $(and { $($(#[$field_doc:meta])* $field_vis:vis $field:ident: $field_type:ty),* $(,)? })?
    ) => {
        $(#[$($about)*])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        $vis struct $name {
            $($(#[$($doc)*])* $key_vis $key: $type,)*
            $($($(#[$field_doc])* $field_vis $field: $field_type,)*)?
        }

        impl $name {
            /// Its keys.
            pub const SECTION: $crate::keys::Section = $section.with(
                $crate::keys::section::first_paragraph!([] $(#[$($about)*])*),
                &[$($is.named(stringify!($key), $crate::keys::section::first_paragraph!([] $(#[$($doc)*])*))),*],
            );
        }

        $(
            impl $default for $name {
                /// Each key has its default.
                fn default() -> Self {
                    Self::SECTION.defaults()
                }
            }
        )?
    };
}
pub(crate) use section;

/// The first paragraph among attributes: up to an empty line, which reaches a macro as a raw string.
macro_rules! first_paragraph {
    ([$($line:literal)*] #[doc = r""] $($rest:tt)*) => { $crate::keys::section::first_paragraph!([$($line)*]) };
    ([$($line:literal)*] #[doc = $next:literal] $($rest:tt)*) => {
        $crate::keys::section::first_paragraph!([$($line)* $next] $($rest)*)
    };
    ([$($line:literal)*] #[$($other:tt)*] $($rest:tt)*) => {
        $crate::keys::section::first_paragraph!([$($line)*] $($rest)*)
    };
    ([$($line:literal)*]) => { concat!($($line),*).trim_ascii() };
}
pub(crate) use first_paragraph;

/// An enum over the kinds of a section: one configuration each, with its own [`Section`] as `SECTION`. The enum
/// derefs to what the kinds have in common.
macro_rules! kinds {
    ($(#[$meta:meta])* pub enum $name:ident: $common:path { $($(#[$doc:meta])* $variant:ident($config:ty)),+ $(,)? }) => {
        $(#[$meta])*
        pub enum $name { $($(#[$doc])* $variant($config)),+ }

        impl $name {
            /// Of its kinds.
            pub const SECTIONS: &[$crate::keys::Section] = &[$(<$config>::SECTION),+];
        }

        impl std::ops::Deref for $name {
            type Target = dyn $common;

            fn deref(&self) -> &Self::Target {
                match self { $(Self::$variant(config) => config),+ }
            }
        }
    };
}
pub(crate) use kinds;
