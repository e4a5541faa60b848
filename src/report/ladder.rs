//! The write-up of a ladder, whose cells each improve on the one before: what each stage gained, what was
//! counted before and after it, and why that had cost time.

use super::content::{or_dash, strings};
use super::document::{Block, Table};
use super::table::Comparison;
use super::timelines::Timelines;
use crate::device::trace::{Summary, Transfers};
use crate::measure::Measurement;
use crate::recipe::Stage;
use crate::words::Bytes;
use crate::words::text::{percent, rate, ratio, seconds};

/// Counts that differ by less than this share are not told as a change.
const SAME: f64 = 0.05;
/// Nor is a stall of less than this share of a step.
const NEGLIGIBLE: f64 = 0.005;

/// A stage that was measured.
struct Rung<'a> {
    number: usize,
    stage: &'a Stage,
    measured: &'a Measurement,
    trace: Option<&'a Summary>,
}

impl Rung<'_> {
    /// Seconds of the training run, or of a step where there are no samples.
    fn seconds(&self) -> f64 {
        self.measured.loading.as_ref().map_or(self.measured.step.median, |loading| loading.run_seconds)
    }

    /// How many times as many real tokens a second as another.
    fn gain(&self, other: &Rung) -> f64 {
        self.measured.tokens_per_second / other.measured.tokens_per_second
    }
}

/// The stages that were measured.
fn rungs<'a>(comparison: &'a Comparison, timelines: &'a Timelines) -> Vec<Rung<'a>> {
    let stages = comparison.recipe.report.ladder.iter().zip(&comparison.lines).enumerate();
    stages
        .filter_map(|(i, (stage, line))| {
            Some(Rung { number: i + 1, stage, measured: line.measured()?, trace: timelines.summary(i) })
        })
        .collect()
}

/// What all stages came to, for the conclusion; `None` without two of them.
pub fn sentence(comparison: &Comparison) -> Option<String> {
    let none = Timelines::default();
    let rungs = rungs(comparison, &none);
    let (first, last) = (rungs.first()?, rungs.last()?);
    let gains = rungs.windows(2).map(|pair| (pair[1].gain(&pair[0]), &pair[1]));
    let (gain, most) = gains.max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(format!(
        "All stages together train on {} the real tokens a second of {}, {} in place of {}; the largest gain \
         of one stage is {} by {}.",
        ratio(last.gain(first)),
        first.stage.stage,
        rate(last.measured.tokens_per_second),
        rate(first.measured.tokens_per_second),
        ratio(gain),
        most.stage.stage
    ))
}

/// Nothing without `[[report.ladder]]`.
pub fn blocks(comparison: &Comparison, timelines: &Timelines) -> Vec<Block> {
    let rungs = rungs(comparison, timelines);
    let Some(first) = rungs.first() else { return Vec::new() };
    let mut out = vec![Block::Heading { text: "The ladder".into() }, Block::Table(table(&rungs))];
    out.push(Block::Paragraph {
        text: format!("{}. {}: {}", first.number, first.stage.stage, first.stage.why),
    });
    for pair in rungs.windows(2) {
        out.push(Block::Paragraph { text: paragraph(first, &pair[0], &pair[1]) });
    }
    if rungs.iter().all(|rung| rung.trace.is_none()) {
        out.push(Block::Paragraph {
            text: "No stage was traced, so kernels, copies and idle times are not counted here; on a GPU \
                   `runner run --trace --force` records them."
                .into(),
        });
    }
    out
}

fn table(rungs: &[Rung]) -> Table {
    let traced = rungs.iter().any(|rung| rung.trace.is_some());
    let mut header =
        strings(&["stage", "time", "real tokens/s", "own gain", "total gain", "peak memory", "stall a step"]);
    if traced {
        header.extend(strings(&["kernels", "busy", "longest idle", "copies to the device", "to the host"]));
    }
    let copies = |t: Transfers| format!("{} ({})", t.count, Bytes(t.bytes));
    let row = |(i, rung): (usize, &Rung)| {
        let m = rung.measured;
        let mut row = vec![
            format!("{}. {}", rung.number, rung.stage.stage),
            seconds(rung.seconds()),
            rate(m.tokens_per_second),
            or_dash(i.checked_sub(1).map(|before| ratio(rung.gain(&rungs[before])))),
            ratio(rung.gain(&rungs[0])),
            Bytes(m.memory.live_peak).to_string(),
            or_dash(m.loading.as_ref().map(|loading| seconds(loading.stall.median))),
        ];
        if traced {
            let of = |f: &dyn Fn(&Summary) -> String| or_dash(rung.trace.map(f));
            row.extend([
                of(&|s| s.kernels.to_string()),
                of(&|s| percent(s.busy_share)),
                of(&|s| seconds(s.longest_idle as f64 * 1e-9)),
                of(&|s| copies(s.to_device)),
                of(&|s| copies(s.to_host)),
            ]);
        }
        row
    };
    Table {
        caption:
            "Each stage has the improvements of all before it. Gains are ratios of real tokens a second \
                  over the whole run: own against the stage before, total against the first. Kernels, copies \
                  and idle times are those of one traced step and the loading of the next batch."
                .into(),
        header,
        rows: rungs.iter().enumerate().map(row).collect(),
        text_columns: vec![0],
    }
}

fn paragraph(first: &Rung, before: &Rung, now: &Rung) -> String {
    let changes = changes(before, now);
    let counted = match changes.is_empty() {
        true => "Nothing that was counted changed".into(),
        false => format!("Counted before and after: {}", changes.join("; ")),
    };
    format!(
        "{}. {}: {} {counted}. The run took {} in place of {}, {} the real tokens a second of the stage before \
         and {} those of the first.",
        now.number,
        now.stage.stage,
        now.stage.why,
        seconds(now.seconds()),
        seconds(before.seconds()),
        ratio(now.gain(before)),
        ratio(now.gain(first)),
    )
}

/// What differs between two stages, of all that is counted.
fn changes(before: &Rung, now: &Rung) -> Vec<String> {
    let mut out = Vec::new();
    let mut tell = |what: &str, before: Option<f64>, now: Option<f64>, show: &dyn Fn(f64) -> String| {
        let (Some(before), Some(now)) = (before, now) else { return };
        if (before - now).abs() > SAME * before.abs().max(now.abs()) && show(before) != show(now) {
            out.push(format!("{what} {}, then {}", show(before), show(now)));
        }
    };
    let both = |f: &dyn Fn(&Summary) -> f64| (before.trace.map(f), now.trace.map(f));
    let whole = |n: f64| format!("{n:.0}");
    let time = |n: f64| seconds(n * 1e-9);
    let bytes = |n: f64| Bytes(n as u64).to_string();
    type Shown<'a> = (&'a str, &'a dyn Fn(&Summary) -> f64, &'a dyn Fn(f64) -> String);
    let traced: [Shown; 7] = [
        ("kernels a step", &|s| s.kernels as f64, &whole),
        ("share of the step with a kernel running", &|s| s.busy_share, &percent),
        ("longest idle time", &|s| s.longest_idle as f64, &time),
        ("copies to the device", &|s| s.to_device.count as f64, &whole),
        ("bytes to the device", &|s| s.to_device.bytes as f64, &bytes),
        ("copies to the host", &|s| s.to_host.count as f64, &whole),
        ("bytes to the host", &|s| s.to_host.bytes as f64, &bytes),
    ];
    for (what, of, show) in traced {
        let (before, now) = both(of);
        tell(what, before, now, show);
    }
    let [before, now] = [before, now].map(|rung| rung.measured);
    let loading = |m: &Measurement, f: fn(&crate::measure::Loading) -> f64| m.loading.as_ref().map(f);
    let stall = |m: &Measurement| loading(m, |l| l.stall.median);
    // Microseconds of a queue are noise.
    if [before, now].iter().any(|m| stall(m).is_some_and(|stall| stall > NEGLIGIBLE * m.step.median)) {
        tell("stall a step", stall(before), stall(now), &seconds);
    }
    let padding = |m: &Measurement| loading(m, |l| l.padding_share());
    tell("share of padding", padding(before), padding(now), &percent);
    let steps = |m: &Measurement| loading(m, |l| l.step_tokens.len() as f64);
    tell("steps for the samples", steps(before), steps(now), &whole);
    let memory = |m: &Measurement| Some(m.memory.live_peak as f64);
    tell("peak memory", memory(before), memory(now), &bytes);
    out
}

#[cfg(test)]
mod tests {
    use super::super::testing::{language_recipe, loading_row, step_trace};
    use super::*;
    use crate::device::trace::chrome_trace;
    use crate::row::Row;

    const LADDER: &str = r#"
[grid]
"data.num_workers" = [0, 1]
"data.sampler" = "padded"
[[report.ladder]]
stage = "plain"
why = "As one first writes it."
[[report.ladder]]
stage = "prefetching"
why = "The loop waited."
"#;

    fn text(blocks: &[Block]) -> String {
        serde_json::to_string(blocks).expect("blocks are plain data")
    }

    #[test]
    fn a_stage_is_told_with_its_gains_and_counts() {
        let recipe = language_recipe(LADDER);
        let mut rows: Vec<Row> = [4.0, 2.0]
            .iter()
            .zip(&recipe.cells)
            .map(|(seconds, cell)| loading_row(cell, *seconds, &[500, 500], 1000, 0))
            .collect();
        for (row, stall) in rows.iter_mut().zip([0.1, 1e-5]) {
            let loading = row.measurement.as_mut().and_then(|m| m.loading.as_mut()).expect("with a sampler");
            loading.stall = crate::measure::Samples::new(vec![stall, stall]);
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("traces")).expect("a folder");
        let mut trace = step_trace();
        for row in &rows {
            let file = folder.path().join(format!("traces/{}.json", row.key));
            std::fs::write(file, chrome_trace(&trace).to_string()).expect("a written trace");
            // One copy to the device fewer.
            trace.remove(0);
        }
        let comparison = Comparison::new(&recipe, &rows);
        let timelines = Timelines::read(folder.path(), &comparison).expect("readable traces");
        assert_eq!(comparison.methods, ["plain", "prefetching"]);
        let text = text(&blocks(&comparison, &timelines));
        for part in [
            "1. plain: As one first writes it.",
            "2. prefetching: The loop waited. Counted before and after:",
            "copies to the device 2, then 1",
            "stall a step 100 ms, then 10.0 µs",
            "The run took 2.00 s in place of 4.00 s, 2.00x the real tokens",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("kernels a step 3"), "{text}");
        let sentence = sentence(&comparison).expect("two stages");
        assert!(
            sentence.contains("2.00x the real tokens a second of plain, 500 in place of 250"),
            "{sentence}"
        );
        let untraced = super::super::ladder::blocks(&comparison, &Timelines::default());
        assert!(self::text(&untraced).contains("No stage was traced"));
    }

    #[test]
    fn without_stages_there_is_no_ladder() {
        let recipe = language_recipe("");
        let comparison = Comparison::new(&recipe, &[]);
        assert!(blocks(&comparison, &Timelines::default()).is_empty());
    }
}
