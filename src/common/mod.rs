//! What every part uses: amounts of memory, number types, names of devices, texts, files, the cache, refusals.

mod bytes;
pub mod cache;
pub mod checksums;
mod compute;
mod device_id;
pub mod files;
mod locked;
pub mod refusal;
pub mod streams;
pub mod terminal;
pub mod text;

pub use bytes::Bytes;
pub use compute::Compute;
pub use device_id::DeviceId;
pub use locked::locked;
