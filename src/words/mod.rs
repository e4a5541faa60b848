//! What every part uses: units, values with rules, errors, texts and files.

pub mod cache;
mod compute;
mod device_id;
pub mod files;
pub mod key;
mod locked;
pub mod refusal;
mod rule;
pub mod section;
mod settings;
pub mod streams;
pub mod text;
pub mod values;

pub use compute::Compute;
pub use device_id::DeviceId;
pub use key::Key;
pub use locked::locked;
pub use rule::{Rule, nearest};
pub use section::Section;
pub use settings::{Settings, flatten, is_within, settings};
pub use values::Bytes;
