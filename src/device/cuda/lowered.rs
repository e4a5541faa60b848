//! `RUNNER_CAPABILITY`, with which tests take the ways of older devices on a newer one. Rules, kernels and limits are chosen
//! by [`capability`]; kernels are compiled for the device itself.

use std::env;

use super::driver::{self, architecture, count};
use crate::device::Capability;

const VARIABLE: &str = "RUNNER_CAPABILITY";

/// The compute capability that a device is taken for: its own, or what the variable lowers it to.
///
/// # Panics
/// When `ordinal` is not below [`count`].
pub fn capability(ordinal: usize) -> Capability {
    let own = architecture(ordinal);
    lowered(own, variable().as_deref()).unwrap_or(own)
}

/// Bytes of shared memory that a block may ask for.
///
/// # Panics
/// When `ordinal` is not below [`count`].
pub fn shared_memory(ordinal: usize) -> usize {
    let own = driver::shared_memory(ordinal);
    is_lowered(ordinal).map_or(own, |(_, to)| own.min(to.shared_memory()))
}

/// # Errors
/// Why the variable cannot be followed.
pub fn require_capability() -> Result<(), String> {
    let Some(text) = variable() else { return Ok(()) };
    // Without a device only the form is checked.
    text.parse::<Capability>().map_err(|error| format!("{VARIABLE}: {error}"))?;
    (0..count()).try_for_each(|ordinal| lowered(architecture(ordinal), Some(&text)).map(drop))
}

/// What a row says where the device is taken for another.
pub fn path(ordinal: usize) -> Option<String> {
    is_lowered(ordinal).map(|(own, to)| format!("{to} in place of {own} ({VARIABLE})"))
}

/// The name of the device, which its folder of results has: rows of one that is taken for another lie by themselves.
pub fn name(ordinal: usize, name: String) -> String {
    is_lowered(ordinal).map_or_else(|| name.clone(), |(_, to)| format!("{name} as {to}"))
}

/// From what to what.
fn is_lowered(ordinal: usize) -> Option<(Capability, Capability)> {
    let (own, to) = (architecture(ordinal), capability(ordinal));
    (own != to).then_some((own, to))
}

/// An empty variable counts as not set.
fn variable() -> Option<String> {
    env::var(VARIABLE).ok().filter(|text| !text.trim().is_empty())
}

/// # Errors
/// What is wrong with the variable.
fn lowered(own: Capability, variable: Option<&str>) -> Result<Capability, String> {
    let Some(text) = variable else { return Ok(own) };
    let to: Capability = text.parse().map_err(|error| format!("{VARIABLE}: {error}"))?;
    match to <= own {
        true => Ok(to),
        false => Err(format!(
            "{VARIABLE} = {to} is above the device's compute capability {own}: it can only lower it"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_lowers_and_never_raises() {
        let hopper = Capability::new(9, 0);
        assert_eq!(lowered(hopper, None), Ok(hopper));
        assert_eq!(lowered(hopper, Some("7.5")), Ok(Capability::new(7, 5)));
        assert_eq!(lowered(hopper, Some("9.0")), Ok(hopper));
        let above = lowered(hopper, Some("10.0")).unwrap_err();
        assert!(above.contains("10.0 is above the device's compute capability 9.0"), "{above}");
        let wrong = lowered(hopper, Some("turing")).unwrap_err();
        assert!(wrong.starts_with("RUNNER_CAPABILITY: \"turing\" is no compute capability"), "{wrong}");
    }
}
