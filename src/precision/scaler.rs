//! `precision.scaler`: the loss is multiplied by a scale before backward, so that gradients are large
//! enough for fp16, and gradients are divided by it before they are clipped and used
//! (Micikevicius et al. 2018; names, defaults and arithmetic of `torch.amp.GradScaler`).
//!
//! A step whose gradients are not all finite is skipped. Whether they are is a number on the device,
//! as are the scale and what decides its growth: no step waits for the host.

use burn::tensor::{DType, Device, Tensor};
use serde::{Deserialize, Serialize};

use crate::keys::key::DefaultValue::{Nothing, Number, Whole};
use crate::keys::section::section;
use crate::keys::values::{COUNT, POSITIVE, Values};
use crate::keys::{Key, Rule, Section};
use crate::optim::{Kept, Visit, clip_factor};

/// The least that a scale backs off to, fp16's smallest normal number: gradients that still overflow
/// are not the scale's fault.
const SMALLEST_SCALE: f64 = 1.0 / 16384.0;

/// `{ kind = "static", scale = 65536 }` or `{ kind = "dynamic" }`
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScalerConfig {
    Static(StaticGradScaler),
    Dynamic(DynamicGradScaler),
}

section! {
    /// One scale for the whole run.
    #[derive(Copy)]
    pub struct StaticGradScaler: Section::of("precision.scaler", "kind", &["static"]) => {
        /// What the loss is multiplied by.
        pub scale: f64 = Key::method(Values::Scale).default(Number(65536.0)),
    }
}

section! {
    /// A scale that follows the gradients, as `torch.amp.GradScaler`.
    ///
    /// Times `backoff_factor` after a step that was skipped, times `growth_factor` after `growth_interval` steps in a
    /// row that were not.
    #[derive(Copy)]
    pub struct DynamicGradScaler: Section::of("precision.scaler", "kind", &["dynamic"]), Default => {
        /// The scale of the first step.
        pub init_scale: f64 =
            Key::method(Values::Scale).default(Number(65536.0)),
        /// What the scale grows by; above 1.
        pub growth_factor: f64 = Key::method(POSITIVE).default(Number(2.0)),
        /// What the scale is multiplied by after a step that was skipped; below 1.
        pub backoff_factor: f64 = Key::method(POSITIVE).default(Number(0.5)),
        /// Steps without overflow before it grows.
        pub growth_interval: usize = Key::method(COUNT).default(Whole(2000)),
    }
}

impl ScalerConfig {
    pub const SECTIONS: &[Section] = &[
        Section::new("precision.scaler").with(
            "Multiplies the loss, so that small gradients do not vanish in fp16; without it nothing does.",
            &[Key::method(Values::Kinds)
                .named("kind", "Which gradient scaler.")
                .called("scaler")
                .default(Nothing)],
        ),
        StaticGradScaler::SECTION,
        DynamicGradScaler::SECTION,
    ];

    /// The scale of the first step.
    pub fn first_scale(&self) -> f64 {
        match self {
            Self::Static(config) => config.scale,
            Self::Dynamic(config) => config.init_scale,
        }
    }

    /// The scale below which none of the run's lies.
    pub fn smallest_scale(&self) -> f64 {
        match self {
            Self::Static(config) => config.scale,
            Self::Dynamic(_) => SMALLEST_SCALE,
        }
    }

    pub(super) fn check(&self) -> Result<(), Rule> {
        let first = self.first_scale();
        Rule::refuse_if(
            !(SMALLEST_SCALE..=f64::from(f32::MAX)).contains(&first),
            &["precision.scaler"],
            format!("a scale of {first:e} is not from 2^-14 to the largest fp32 number"),
            "65536 is usual",
        )?;
        let Self::Dynamic(config) = self else { return Ok(()) };
        Rule::refuse_if(
            config.growth_factor <= 1.0,
            &["precision.scaler.growth_factor", "precision.scaler"],
            format!("a growth_factor of {} does not make the scale grow", config.growth_factor),
            "use a factor above 1: 2 is usual",
        )?;
        Rule::refuse_if(
            config.backoff_factor >= 1.0,
            &["precision.scaler.backoff_factor", "precision.scaler"],
            format!("a backoff_factor of {} does not make the scale smaller", config.backoff_factor),
            "use a factor below 1: 0.5 is usual",
        )
    }
}

/// A scaler in training. Tensors are [1] in fp32.
pub struct GradScaler {
    config: ScalerConfig,
    scale: Tensor<1>,
    /// Steps in a row without an overflow, since the last growth.
    growth_tracker: Tensor<1>,
}

/// What a step makes of scaled gradients.
pub struct Unscaled {
    /// What every gradient is multiplied by: the scale's inverse, and the clipping.
    pub factor: Tensor<1>,
    /// 1 where all gradients are finite, else 0: the update is skipped.
    pub applied: Tensor<1>,
}

impl GradScaler {
    pub fn new(config: ScalerConfig, device: &Device) -> Self {
        let number = |value: f64| Tensor::full([1], value, (device, DType::F32));
        Self { config, scale: number(config.first_scale()), growth_tracker: number(0.0) }
    }

    /// What the gradient of the loss starts from.
    pub fn scale(&self) -> Tensor<1> {
        self.scale.clone()
    }

    /// What it keeps between steps.
    pub fn visit(&mut self, visit: &mut Visit) {
        visit("scaler.scale", Kept::Tensor(&mut self.scale));
        visit("scaler.growth_tracker", Kept::Tensor(&mut self.growth_tracker));
    }

    /// From the sum of the squares of all scaled gradients; the norm that is limited is that of the
    /// unscaled ones. The sum is not finite where a gradient is not finite or is beyond 1e19.
    pub fn unscale(&self, squares: Tensor<1>, clip_norm: Option<f64>) -> Unscaled {
        let applied = squares.clone().lower_equal_elem(f32::MAX).float();
        let inverse = self.scale.clone().recip();
        let factor = match clip_norm {
            None => inverse,
            Some(limit) => clip_factor(squares.sqrt() * inverse.clone(), limit) * inverse,
        };
        Unscaled { factor, applied }
    }

    /// Computes the scale of the next step. Returns the report of this step to the host: whether it was applied, and
    /// the next scale, [2].
    pub fn update(&mut self, applied: Tensor<1>) -> Tensor<1> {
        if let ScalerConfig::Dynamic(config) = self.config {
            let tracker = (self.growth_tracker.clone() + 1.0) * applied.clone();
            let due = tracker.clone().greater_equal_elem(config.growth_interval as f32);
            let larger = times(&self.scale, config.growth_factor);
            let grows = due.clone().bool_and(larger.clone().lower_equal_elem(f32::MAX));
            let smaller = times(&self.scale, config.backoff_factor).clamp_min(SMALLEST_SCALE);
            let skipped = applied.clone().equal_elem(0.0);
            self.scale = self.scale.clone().mask_where(skipped, smaller).mask_where(grows, larger);
            self.growth_tracker = tracker.mask_fill(due, 0.0);
        }
        Tensor::cat(vec![applied, self.scale()], 0)
    }
}

/// The product in fp64, rounded once, as PyTorch has it. Of a factor that fp32 has, fp32 gives the same.
fn times(scale: &Tensor<1>, factor: f64) -> Tensor<1> {
    if f64::from(factor as f32) == factor {
        return scale.clone() * factor;
    }
    (scale.clone().cast(DType::F64) * factor).cast(DType::F32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(value: f32) -> Tensor<1> {
        Tensor::from_floats([value], &Device::flex())
    }

    /// Scaled gradients of norm 8192 at scale 1024 are gradients of norm 8.
    #[test]
    fn gradients_are_unscaled_before_they_are_clipped() {
        let scaler =
            GradScaler::new(ScalerConfig::Static(StaticGradScaler { scale: 1024.0 }), &Device::flex());
        let factor = |limit| {
            let unscaled = scaler.unscale(number(8192.0 * 8192.0), limit);
            assert_eq!(unscaled.applied.into_scalar::<f32>(), 1.0);
            unscaled.factor.into_scalar::<f32>()
        };
        assert_eq!(factor(None), 1.0 / 1024.0);
        assert_eq!(factor(Some(10.0)), 1.0 / 1024.0);
        assert!((factor(Some(2.0)) * 1024.0 - 0.25).abs() < 1e-6);
        for lost in [f32::INFINITY, f32::NAN] {
            assert_eq!(scaler.unscale(number(lost), Some(1.0)).applied.into_scalar::<f32>(), 0.0);
        }
    }

    #[test]
    fn factors_that_fp32_does_not_have_are_fp64s() {
        for factor in [0.3, 1.7, 3.0, 0.1] {
            let mut scale = 65536.0f32;
            let mut ours = number(scale);
            for _ in 0..20 {
                scale = (f64::from(scale) * factor) as f32;
                ours = times(&ours, factor);
                assert_eq!(ours.clone().into_scalar::<f32>(), scale, "{factor}");
            }
        }
    }

    #[test]
    fn a_scale_stays_within_what_fp32_and_fp16_can_tell() {
        let config = DynamicGradScaler {
            init_scale: 2e38,
            growth_interval: 1,
            ..DynamicGradScaler::SECTION.defaults()
        };
        let mut scaler = GradScaler::new(ScalerConfig::Dynamic(config), &Device::flex());
        scaler.update(number(1.0));
        assert_eq!(scaler.scale().into_scalar::<f32>(), 2e38, "twice as much is infinite");
        for _ in 0..200 {
            scaler.update(number(0.0));
        }
        assert_eq!(f64::from(scaler.scale().into_scalar::<f32>()), SMALLEST_SCALE);
    }
}
