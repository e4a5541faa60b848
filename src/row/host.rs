//! How much of a step its host needs to launch the kernels.

use crate::advise::{Rates, launching};
use crate::common::DeviceId;
use crate::device::Ceilings;
use crate::measure::Measurement;
use crate::recipe::Cell;

/// The host's time for the launches of a step, as a share of the measured step: the kernels that the operators count, at the
/// host's time for one launch. `None` on the CPU, and where that time was not measured.
pub(super) fn host_share(cell: &Cell, ceilings: &Ceilings, measurement: &Measurement) -> Option<f64> {
    if cell.device_id() == DeviceId::Cpu || ceilings.launch.is_none() {
        return None;
    }
    let mut ran = cell.with_resident_blocks(measurement.resident_blocks);
    ran.train.graph &= measurement.is_graph();
    Some(launching(&ran, &Rates::of(cell.device_id(), *ceilings)) / measurement.step.median)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Target;
    use crate::measure::Samples;
    use crate::recipe::{Recipe, Source};
    use crate::run::testing;

    /// At 10 µs a launch; the graph leaves the host the launches of the update.
    #[test]
    fn a_small_step_waits_for_its_host_unless_it_is_a_graph() {
        let cell = |graph: &str| {
            let text = format!(
                "title = \"t\"\ndevice = \"cuda:0\"\n[model]\nkind = \"gpt2\"\npreset = \"gpt2\"\n[train]\nbatch_size = 1\n\
                 seq_len = 64\noptimizer = {{ kind = \"adamw\", lr = 1e-3 }}\ngraph = {graph}\n"
            );
            let target: Target = "cuda, 80 GiB, sm_90".parse().expect("a device");
            let source = Source { path: "r.toml".into(), text };
            Recipe::parse_for(&source, &target).expect("a recipe").cells.remove(0)
        };
        let ceilings = Ceilings { launch: Some(1e-5), ..Ceilings::default() };
        let share = |graph: &str, path: &str, seconds: f64| {
            let paths = [("graph".to_string(), path.to_string())].into_iter().collect();
            let step = Samples::new(vec![seconds]);
            let measurement = Measurement { step, paths, ..testing::measurement(1.0) };
            host_share(&cell(graph), &ceilings, &measurement).expect("a GPU")
        };
        let launched = share("false", "none: train.graph is false", 1e-2);
        assert!((0.2..2.0).contains(&launched), "{launched}: some hundreds of launches in 10 ms");
        assert_eq!(share("false", "none: train.graph is false", 2e-2), launched / 2.0);
        let recorded = share("true", "forward and backward are one CUDA graph", 1e-2);
        assert!(recorded > 0.0 && recorded < 0.2 * launched, "{recorded} of {launched}");
        assert_eq!(share("true", "none: the device refuses it", 1e-2), launched);
        let measurement = testing::measurement(1.0);
        assert_eq!(host_share(&cell("false"), &Ceilings::default(), &measurement), None);
        assert_eq!(host_share(&testing::recipe().cells[0], &ceilings, &measurement), None);
    }
}
