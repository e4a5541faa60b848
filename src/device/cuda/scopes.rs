//! [`Scopes`]: reports to CUPTI which operator issues each kernel.
//!
//! CubeCL's thread launches the kernels, in the order in which this process issued them. Scopes begin and end on that
//! thread too, between the launches. So CUPTI gives each call to the driver, and the kernel that the call launches, the
//! id of the innermost scope around it.

use std::collections::HashMap;
use std::sync::Mutex;

use cudarc::cupti::sys as cupti;

use super::Gpu;
use crate::common::locked;
use crate::device::trace::Follower;

/// The kind of our ids; other programs may use the others.
const KIND: cupti::CUpti_ExternalCorrelationKind =
    cupti::CUpti_ExternalCorrelationKind::CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;

pub(super) struct Scopes {
    gpu: &'static Gpu,
    /// A scope's id is its operator's place in here.
    operators: Mutex<Vec<&'static str>>,
}

impl Scopes {
    pub fn new(gpu: &'static Gpu) -> Self {
        Self { gpu, operators: Mutex::default() }
    }

    /// The operator of each call to the driver, by CUPTI's number of the call: `ids` has those of the scopes.
    pub fn operators(&self, ids: HashMap<u32, u64>) -> HashMap<u32, &'static str> {
        let operators = locked(&self.operators);
        let operator = |id: u64| operators.get(usize::try_from(id).ok()?).copied();
        ids.into_iter().filter_map(|(call, id)| Some((call, operator(id)?))).collect()
    }

    fn id(&self, operator: &'static str) -> u64 {
        let mut operators = locked(&self.operators);
        let place = operators.iter().position(|known| *known == operator).unwrap_or_else(|| {
            operators.push(operator);
            operators.len() - 1
        });
        place as u64
    }

    /// Calls CUPTI on CubeCL's thread, after what was issued before.
    fn between_launches(&self, call: impl FnOnce() -> cupti::CUptiResult + Send + 'static) {
        // Where CUPTI refuses, kernels are recorded without their operators.
        self.gpu.stream().issue(move |_| _ = call());
    }
}

impl Follower for Scopes {
    fn enter(&self, operator: &'static str) {
        let id = self.id(operator);
        // SAFETY: notes a number for the calling thread.
        self.between_launches(move || unsafe { cupti::cuptiActivityPushExternalCorrelationId(KIND, id) });
    }

    fn leave(&self) {
        // SAFETY: takes back what `enter` noted on the same thread; the number itself is not wanted.
        self.between_launches(|| unsafe {
            cupti::cuptiActivityPopExternalCorrelationId(KIND, std::ptr::null_mut())
        });
    }
}
