//! How two [`Change`]s compare: bit by bit, or as far as rounding allows.

use runner::train::Change;

use crate::combination::Combination;

/// What rounding may do to the change Δ of a weight matrix: rms(Δ − Δ') ≤ of_change · rms(Δ') + of_weight · rms(w).
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    of_change: f64,
    /// In place of it, of a key's bias.
    of_key_bias: f64,
    of_weight: f64,
    /// The least that another order of additions may do: two roundings of a gradient in 16 bits, and of many numbers in fp32.
    /// The flipped bit may be of a weight that few gradients depend on, or lost in the cast to the compute type.
    least: f64,
}

/// What three steps of a small network round: of the gradients in `of_change`, of the stored weights in
/// `of_weight`, a unit in the last place a step.
pub fn allowed(combination: &Combination) -> Allowed {
    let of_change = match combination.choice("precision") {
        "fp32" => 2e-4,
        // What ReLU reads may have another sign when it is rounded: its derivative is then another. 1.3e-1 and 2.6e-1 have been
        // seen.
        "tf32" | "fp16" if combination.has_relu() => 2e-1,
        "tf32" | "fp16" => 1e-1,
        // Of an adapter, whose A has a gradient that is B times another's, and B begins at 0, 1.1 has been seen. Where the same
        // adapter drops nothing, this way is 0.38 of itself from fp32 and the plain one 0.87.
        _ if combination.has_relu() && combination.is("tuning", "lora that drops") => 8e-1,
        _ if combination.has_relu() => 4e-1,
        _ => 2e-1,
    };
    // A step from moments that were rounded at other places after the step before: of 8 bits 1.1e-2 has been seen, of bf16
    // 2e-3. Of 8 bits 7.7e-2 has of a key's bias, whose gradients are small and whose codes share a largest number with
    // those of weights.
    let (of_change, of_key_bias) = match combination.choice("optimizer") {
        "adamw8bit" => (f64::max(of_change, 5e-2), f64::max(of_change, 1.5e-1)),
        "adamw_bf16" => [f64::max(of_change, 1e-2); 2].into(),
        _ => [of_change; 2].into(),
    };
    let unit = match (combination.stores_half(), combination.choice("precision")) {
        (false, _) => 2f64.powi(-24),
        (true, "fp16") => 2f64.powi(-11),
        (true, _) => 2f64.powi(-8),
    };
    let least = match combination.choice("precision") {
        "fp32" => 2f64.powi(-18),
        "tf32" | "fp16" => 2f64.powi(-10),
        _ => 2f64.powi(-7),
    };
    Allowed { of_change, of_key_bias, of_weight: 3.0 * unit, least }
}

/// How many times as much as a flipped bit of one weight another order of additions may do, which rounds many numbers
/// otherwise. On a CPU 2.2 times has been seen.
const OF_A_FLIP: f64 = 8.0;

/// What another order of additions may do, of which no rounding is allowed more than `most`. `flipped`: the same steps as
/// the reference's from weights of which one has another last bit.
pub fn other_order(flipped: &Change, reference: &Change, most: Allowed) -> Result<Allowed, String> {
    let noise = differences(flipped, reference, most)?;
    let largest = |of_key_bias: bool| {
        let of_kind = noise.iter().filter(|difference| is_key_bias(&difference.name) == of_key_bias);
        OF_A_FLIP * of_kind.map(|difference| difference.distance / difference.scale).fold(0.0, f64::max)
    };
    Ok(Allowed {
        of_change: largest(false).max(most.least).min(most.of_change),
        of_key_bias: largest(true).max(most.least).min(most.of_key_bias),
        ..most
    })
}

fn is_key_bias(name: &str) -> bool {
    name.ends_with("k_proj.bias")
}

pub fn equal_bits(ours: &Change, reference: &Change) -> Result<(), String> {
    if ours.losses.iter().zip(&reference.losses).any(|(a, b)| a.to_bits() != b.to_bits()) {
        return Err(format!("losses {:?} are not {:?}", ours.losses, reference.losses));
    }
    let mut differing = Vec::new();
    for (name, values) in &ours.after {
        let other = find(reference, name)?;
        let unequal = || values.iter().zip(other).filter(|(a, b)| a.to_bits() != b.to_bits());
        let furthest = unequal().map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let count = unequal().count();
        if count > 0 {
            differing.push(format!(
                "{count} of {} elements of {name} differ, by {furthest:.1e} at most",
                values.len()
            ));
        }
    }
    if differing.is_empty() { Ok(()) } else { Err(differing.join("; ")) }
}

pub fn within_rounding(ours: &Change, reference: &Change, allowed: Allowed) -> Result<(), String> {
    if diverged(reference) {
        // fp16 overflows: both ways come to nothing.
        return diverged(ours).then_some(()).ok_or("the reference diverges, and this does not".into());
    }
    for Difference { name, distance, bound, scale } in differences(ours, reference, allowed)? {
        let within = distance <= bound;
        // NaN is not.
        if !within {
            return Err(format!(
                "the change of {name} is off by {:.1e} of itself, allowed {:.1e}",
                distance / scale,
                bound / scale
            ));
        }
    }
    Ok(())
}

/// Whether each change is as near to that in fp32, `exact`, as the reference's: at most half as far again and nearer than
/// no change at all, or within half as much again as rounding is allowed. All begin with the same weights, up to their type.
pub fn as_near(ours: &Change, reference: &Change, exact: &Change, allowed: Allowed) -> Result<(), String> {
    for ((name, values), (_, other)) in ours.before.iter().zip(&exact.before) {
        let difference: Vec<f64> = values.iter().zip(other).map(|(a, b)| a - b).collect();
        if rms(&difference) > 1e-2 * rms(other) {
            return Err(format!("fp32 begins with other values of {name}, and so tells nothing"));
        }
    }
    let [ours, theirs] = [ours, reference].map(|change| differences(change, exact, allowed));
    for (ours, theirs) in ours?.iter().zip(theirs?) {
        let as_theirs = f64::min(1.5 * theirs.distance, 0.9 * ours.scale);
        let within = ours.distance <= f64::max(as_theirs, 1.5 * ours.bound);
        // NaN is not.
        if !within {
            return Err(format!(
                "the change of {} is off by {:.1e} of itself, that of the plain way by {:.1e}",
                ours.name,
                ours.distance / ours.scale,
                theirs.distance / ours.scale
            ));
        }
    }
    Ok(())
}

/// How far the change of a weight matrix is from the reference's, as root mean squares.
struct Difference {
    name: String,
    distance: f64,
    /// What rounding may do.
    bound: f64,
    /// Of the reference's change, or a share of the largest one.
    scale: f64,
}

fn differences(ours: &Change, reference: &Change, allowed: Allowed) -> Result<Vec<Difference>, String> {
    if ours.losses.len() != reference.losses.len() {
        return Err(format!("{} steps in place of {}", ours.losses.len(), reference.losses.len()));
    }
    let (ours, theirs) = (moved(ours)?, moved(reference)?);
    // A matrix that hardly moves is held to a share of how far the others do.
    let typical = theirs.iter().map(|(_, change, _)| rms(change)).fold(0.0, f64::max);
    let of = |(name, change, weight): (String, Vec<f64>, f64)| {
        let (_, other, _) = theirs.iter().find(|(other, ..)| *other == name).ok_or(format!("no {name}"))?;
        let difference: Vec<f64> = change.iter().zip(other).map(|(a, b)| a - b).collect();
        let scale = rms(other).max(1e-3 * typical);
        let of_change = if is_key_bias(&name) { allowed.of_key_bias } else { allowed.of_change };
        let bound = of_change * scale + allowed.of_weight * weight;
        Ok(Difference { name, distance: rms(&difference), bound, scale })
    };
    ours.into_iter().map(of).collect()
}

fn diverged(change: &Change) -> bool {
    let weights = change.after.iter().flat_map(|(_, values)| values);
    weights.chain(&change.losses).any(|value| !value.is_finite())
}

/// By weight matrix: its change, and the root mean square of its elements.
fn moved(change: &Change) -> Result<Vec<(String, Vec<f64>, f64)>, String> {
    let of = |(name, before): &(String, Vec<f64>)| {
        let (_, after) = change.after.iter().find(|(other, _)| other == name).ok_or(format!("no {name}"))?;
        Ok((name.clone(), before.iter().zip(after).map(|(b, a)| a - b).collect(), rms(before)))
    };
    change.before.iter().map(of).collect()
}

fn find<'a>(change: &'a Change, name: &str) -> Result<&'a Vec<f64>, String> {
    let found = change.after.iter().find(|(other, _)| other == name);
    found.map(|(_, values)| values).ok_or(format!("no {name}"))
}

fn rms(values: &[f64]) -> f64 {
    (values.iter().map(|x| x * x).sum::<f64>() / values.len() as f64).sqrt()
}
