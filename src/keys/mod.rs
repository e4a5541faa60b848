//! Keys of recipes: the table's entries, sections, values, settings, and the rules that a recipe breaks.

pub mod key;
mod rule;
pub mod section;
mod settings;
pub mod values;

pub use key::Key;
pub use rule::{Rule, nearest};
pub use section::Section;
pub use settings::{Settings, flatten, is_within, settings};
