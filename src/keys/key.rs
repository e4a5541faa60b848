//! [`Key`]: a key of a recipe with its values, default, label and documentation.

use serde_json::{Number, Value};

use super::values::Values;
use crate::common::{Bytes, text};

/// A key of a recipe. Keys of one path, of different kinds, have one role and one label.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    /// Within its section.
    pub name: &'static str,
    pub values: Values,
    pub default: DefaultValue,
    /// The value in a cell that has no such key, where that is not the default.
    pub absent: Option<DefaultValue>,
    pub role: Role,
    /// What it is called in tables and charts; `None`: its name with spaces.
    pub called: Option<&'static str>,
    /// The size after it, with which it is joined by × in labels.
    pub times: Option<&'static str>,
    /// The size that it divides: cells with equal products of the two solve one problem in other parts.
    pub divides: Option<&'static str>,
    /// Keys that decide its value where it is not written.
    pub follows: &'static [&'static str],
    /// One line.
    pub doc: &'static str,
}

/// How a report treats cells that differ in a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A part of the problem: methods are compared at equal values.
    Size,
    /// The same problem once more.
    Repetition,
    /// A way of solving the problem: methods are compared with one another.
    Method,
    /// A method: which implementation of an operator runs.
    Operator,
}

/// The value of a key that is not written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DefaultValue {
    /// It must be written.
    Required,
    /// Nothing: the feature is off.
    Nothing,
    Bool(bool),
    Whole(i64),
    Number(f64),
    Word(&'static str),
    /// Depends on other keys: a phrase that says how.
    Depends(&'static str),
}

impl Key {
    const fn new(values: Values, role: Role) -> Self {
        Self {
            name: "",
            values,
            default: DefaultValue::Required,
            absent: None,
            role,
            called: None,
            times: None,
            divides: None,
            follows: &[],
            doc: "",
        }
    }

    /// A size of the problem, which must be written unless it has a default.
    pub const fn size(values: Values) -> Self {
        Self::new(values, Role::Size)
    }

    /// A choice of method, which must be written unless it has a default.
    pub const fn method(values: Values) -> Self {
        Self::new(values, Role::Method)
    }

    /// A method that is used or not.
    pub const fn flag(default: bool) -> Self {
        Self::method(Values::Bool).default(DefaultValue::Bool(default))
    }

    /// Its name in its section, and its line of documentation. [`section!`](super::section) gives both.
    #[must_use]
    pub const fn named(mut self, name: &'static str, doc: &'static str) -> Self {
        (self.name, self.doc) = (name, doc);
        self
    }

    /// A value for a reader: an amount of memory has its unit.
    pub fn shown(&self, value: &Value) -> String {
        match (self.values, value.as_u64()) {
            (Values::Bytes, Some(bytes)) => Bytes(bytes).to_string(),
            _ => text::value(value),
        }
    }

    /// What it is called in tables and charts.
    pub fn label(&self) -> String {
        self.called.map_or_else(|| self.name.replace('_', " "), String::from)
    }
}

/// Methods that give a key with one field set.
macro_rules! setters {
    ($($field:ident($($argument:ident: $type:ty),*) = $value:expr;)*) => {
        impl Key {
            $(
                #[must_use]
                pub const fn $field(mut self $(, $argument: $type)*) -> Self {
                    self.$field = $value;
                    self
                }
            )*
        }
    };
}

setters! {
    default(default: DefaultValue) = default;
    absent(value: DefaultValue) = Some(value);
    role(role: Role) = role;
    called(name: &'static str) = Some(name);
    times(key: &'static str) = Some(key);
    divides(key: &'static str) = Some(key);
    follows(keys: &'static [&'static str]) = keys;
}

impl DefaultValue {
    pub const fn is_required(self) -> bool {
        matches!(self, Self::Required)
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
