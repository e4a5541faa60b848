//! The key table and the structs that serde reads say the same.

use super::*;
