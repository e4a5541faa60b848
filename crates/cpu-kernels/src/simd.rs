//! Which vector instructions there are, and functions compiled for each of them.

use std::sync::OnceLock;

/// Vector instructions, each with those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What every processor of this kind has.
    Baseline,
    /// 16 registers of 8 numbers, with multiply-add.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 32 registers of 16 numbers.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// The best of this processor; in a test no better than its limit.
pub fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        #[cfg(test)]
        if let Some(limit) = tests::limit() {
            return limit.min(best());
        }
        best()
    })
}

fn best() -> Level {
    #[cfg(target_arch = "x86_64")]
    {
        let has_avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        if has_avx2 && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
            return Level::Avx512;
        }
        if has_avx2 {
            return Level::Avx2;
        }
    }
    Level::Baseline
}

/// Whether a · b + c is one instruction in the baseline.
pub const BASELINE_FMA: bool = cfg!(target_arch = "aarch64");

/// a · b + c, rounded once where `FMA` says that there is an instruction for it.
#[inline(always)]
pub fn multiply_add<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// A function whose loops are compiled for each [`Level`]. In its body the constant in brackets says whether
/// [`multiply_add`] is one instruction; behind it a type may stand that the function is generic over.
macro_rules! vectorised {
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident[$fma:ident $(, $form:ident: $bound:path)?]($($arg:ident: $type:ty),* $(,)?)
        $(-> $result:ty)? $body:block
    ) => {
        $(#[$meta])*
        $vis fn $name$(<$form: $bound>)?($($arg: $type),*) $(-> $result)? {
            #[inline(always)]
            fn body<const $fma: bool $(, $form: $bound)?>($($arg: $type),*) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512vl,avx2,fma")]
            fn avx512$(<$form: $bound>)?($($arg: $type),*) $(-> $result)? {
                body::<true $(, $form)?>($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2$(<$form: $bound>)?($($arg: $type),*) $(-> $result)? {
                body::<true $(, $form)?>($($arg),*)
            }

            match $crate::simd::level() {
                // SAFETY: the processor has these instructions.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Level::Avx512 => unsafe { avx512$(::<$form>)?($($arg),*) },
                // SAFETY: the processor has these instructions.
                #[cfg(target_arch = "x86_64")]
                $crate::simd::Level::Avx2 => unsafe { avx2$(::<$form>)?($($arg),*) },
                $crate::simd::Level::Baseline => body::<{ $crate::simd::BASELINE_FMA } $(, $form)?>($($arg),*),
            }
        }
    };
}
pub(crate) use vectorised;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Environment variable: the number in [`LIMITS`] of a process's limit.
    const LIMIT: &str = "CPU_KERNELS_LIMIT";
    #[cfg(target_arch = "x86_64")]
    const LIMITS: &[Level] = &[Level::Avx2, Level::Baseline];
    #[cfg(not(target_arch = "x86_64"))]
    const LIMITS: &[Level] = &[Level::Baseline];

    pub fn limit() -> Option<Level> {
        let number = std::env::var(LIMIT).ok()?;
        Some(LIMITS[number.parse::<usize>().expect("a number")])
    }

    #[test]
    fn no_level_is_above_its_limit() {
        assert_eq!(level(), limit().map_or(best(), |limit| limit.min(best())));
    }

    /// All tests of this crate again, in a process for each limit.
    #[test]
    fn every_test_passes_at_every_level() {
        for (number, limit) in LIMITS.iter().enumerate() {
            let mut tests = Command::new(std::env::current_exe().expect("the tests"));
            let tests = tests.env(LIMIT, number.to_string()).args(["--skip", "every_test_passes"]);
            let output = tests.output().expect("the tests start");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{limit:?}: {text}");
            assert!(text.contains("no_level_is_above_its_limit ... ok"), "{text}");
        }
    }
}
