//! [`Key`]: what is known of a key of a recipe: its values, its default, what it is called and what it is for.
//! Each technique lists the keys of its own [`Section`]; `recipe::keys` puts them together.

use serde_json::{Number, Value};

use super::values::Range;

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

/// A key of a recipe. Keys of one path, of different kinds, have one role and one label.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    /// Within its section.
    pub name: &'static str,
    pub values: Values,
    pub default: DefaultValue,
    pub role: Role,
    /// What it is called in tables and charts; `None`: its name with spaces.
    pub called: Option<&'static str>,
    /// How values read in labels: the first pair with the value or with "" counts; `{}` is the value.
    pub reads: &'static [(&'static str, &'static str)],
    /// How the lack of a value reads in labels.
    pub without: Option<&'static str>,
    /// Whether its default goes without saying in a short label.
    pub tacit: bool,
    /// Where the key has no effect.
    pub moot: Option<When>,
    /// Where an operator's label needs no name: the network has no other.
    pub alone: Option<When>,
    /// The size after it, with which it is joined by × in labels.
    pub times: Option<&'static str>,
    /// Keys that decide its value where it is not written.
    pub follows: &'static [&'static str],
    /// One line.
    pub doc: &'static str,
    /// The row format since which rows have it; rows before have its default.
    pub since: u32,
}

/// A dotted key that has this value.
pub type When = (&'static str, &'static str);

/// What a report makes of cells that differ in a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Of the problem: compared at equal values.
    Size,
    /// The same problem once more.
    Repetition,
    /// A way of doing it: compared with one another.
    Method,
    /// A method: which implementation of an operator runs.
    Operator,
}

/// Which values a key takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Values {
    Bool,
    Words(&'static [&'static str]),
    /// The kinds of its section.
    Kinds,
    Whole {
        least: i64,
        most: i64,
    },
    Number(Range),
    /// A number above 0 that reads as a power of two.
    Scale,
    Numbers(&'static [f64]),
    /// An amount of memory.
    Bytes,
    Text,
    /// One of these words, or a path.
    Path(&'static [&'static str]),
}

/// What counts where a key is not written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DefaultValue {
    /// It must be written.
    Required,
    /// Nothing: what it asks for does not happen.
    Nothing,
    Bool(bool),
    Whole(i64),
    Number(f64),
    Word(&'static str),
    /// Depends on other keys: a phrase that says how.
    Depends(&'static str),
}

/// At least one.
pub const COUNT: Values = Values::Whole { least: 1, most: super::values::MAX_COUNT };
pub const COUNT_OR_ZERO: Values = Values::Whole { least: 0, most: super::values::MAX_COUNT };
pub const LAYERS: Values = Values::Whole { least: 1, most: super::values::MAX_LAYERS };
pub const POSITIVE: Values = Values::Number(Range::Positive);
pub const NON_NEGATIVE: Values = Values::Number(Range::NonNegative);
pub const FRACTION: Values = Values::Number(Range::Fraction);

impl Kind {
    /// Whether the keys are there where the section's key has this value.
    pub fn has(&self, value: &str) -> bool {
        !self.but.contains(&value) && (self.values.is_empty() || self.values.contains(&value))
    }
}

impl Section {
    /// Keys that every cell with the section has.
    pub const fn new(path: &'static str, doc: &'static str, keys: &'static [Key]) -> Self {
        Self { path, kind: None, doc, keys }
    }

    /// Keys that are there where `key` has one of `values`.
    pub const fn of(
        path: &'static str,
        key: &'static str,
        values: &'static [&'static str],
        doc: &'static str,
        keys: &'static [Key],
    ) -> Self {
        Self { path, kind: Some(Kind { key, values, but: &[] }), doc, keys }
    }

    /// Keys that are there where `key` has another value than these.
    pub const fn but(
        path: &'static str,
        key: &'static str,
        but: &'static [&'static str],
        doc: &'static str,
        keys: &'static [Key],
    ) -> Self {
        Self { path, kind: Some(Kind { key, values: &[], but }), doc, keys }
    }

    /// The dotted path of a key of the section.
    pub fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.into() } else { format!("{}.{name}", self.path) }
    }
}

impl Key {
    const fn new(
        name: &'static str,
        values: Values,
        default: DefaultValue,
        role: Role,
        doc: &'static str,
    ) -> Self {
        Self {
            name,
            values,
            default,
            role,
            called: None,
            reads: &[],
            without: None,
            tacit: false,
            moot: None,
            alone: None,
            times: None,
            follows: &[],
            doc,
            since: 1,
        }
    }

    pub const fn size(name: &'static str, values: Values, default: DefaultValue, doc: &'static str) -> Self {
        Self::new(name, values, default, Role::Size, doc)
    }

    pub const fn method(
        name: &'static str,
        values: Values,
        default: DefaultValue,
        doc: &'static str,
    ) -> Self {
        Self::new(name, values, default, Role::Method, doc)
    }

    /// What it is called in tables and charts.
    pub fn label(&self) -> String {
        self.called.map_or_else(|| self.name.replace('_', " "), String::from)
    }

    #[must_use]
    pub const fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    #[must_use]
    pub const fn called(mut self, name: &'static str) -> Self {
        self.called = Some(name);
        self
    }

    #[must_use]
    pub const fn reads(mut self, reads: &'static [(&'static str, &'static str)]) -> Self {
        self.reads = reads;
        self
    }

    #[must_use]
    pub const fn without(mut self, text: &'static str) -> Self {
        self.without = Some(text);
        self
    }

    #[must_use]
    pub const fn tacit(mut self) -> Self {
        self.tacit = true;
        self
    }

    #[must_use]
    pub const fn moot(mut self, key: &'static str, value: &'static str) -> Self {
        self.moot = Some((key, value));
        self
    }

    #[must_use]
    pub const fn alone(mut self, key: &'static str, value: &'static str) -> Self {
        self.alone = Some((key, value));
        self
    }

    #[must_use]
    pub const fn times(mut self, key: &'static str) -> Self {
        self.times = Some(key);
        self
    }

    #[must_use]
    pub const fn follows(mut self, keys: &'static [&'static str]) -> Self {
        self.follows = keys;
        self
    }

    #[must_use]
    pub const fn since(mut self, format: u32) -> Self {
        self.since = format;
        self
    }
}

impl DefaultValue {
    pub fn is_required(self) -> bool {
        self == Self::Required
    }

    /// `None` where there is none, or it depends on other keys.
    pub fn value(self) -> Option<Value> {
        match self {
            Self::Required | Self::Nothing | Self::Depends(_) => None,
            Self::Bool(value) => Some(value.into()),
            Self::Whole(value) => Some(value.into()),
            Self::Number(value) => Number::from_f64(value).map(Value::Number),
            Self::Word(value) => Some(value.into()),
        }
    }
}

/// A section of numbers with defaults, declared once: the struct with how each number is read, the defaults, and the
/// keys.
macro_rules! section {
    ($(#[$meta:meta])* pub struct $name:ident, $path:literal, $kind:literal, $doc:literal {
        $($key:ident: $type:ty as $read:literal = $variant:ident($default:literal), $values:expr, $about:literal
            $(, reads($($reads:tt)*))?;)+
    }) => {
        #[doc = $doc]
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $(#[doc = $about] #[serde(deserialize_with = $read)] pub $key: $type,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default),+ }
            }
        }

        impl $name {
            pub const SECTION: $crate::words::Section =
                $crate::words::Section::of($path, "kind", &[$kind], $doc, &[$(
                    $crate::words::Key::method(
                        stringify!($key),
                        $values,
                        $crate::words::key::DefaultValue::$variant($default),
                        $about,
                    )
                    $(.reads($($reads)*))?,
                )+]);
        }
    };
}
pub(crate) use section;

/// An enum over the kinds of a section: one configuration each, with its own [`Section`] as `SECTION`. The enum
/// derefs to what the kinds have in common.
macro_rules! kinds {
    ($(#[$meta:meta])* pub enum $name:ident: $common:path { $($(#[$doc:meta])* $variant:ident($config:ty)),+ $(,)? }) => {
        $(#[$meta])*
        pub enum $name { $($(#[$doc])* $variant($config)),+ }

        impl $name {
            /// Of its kinds.
            pub const SECTIONS: &[$crate::words::Section] = &[$(<$config>::SECTION),+];
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
