//! The write-up of a ladder, whose cells each improve on the one before: the gain of each stage, and what was counted before and
//! after it.

use super::differences::{are_of_one_build, builds, for_a_token, median, takes_longer};
use super::document::{Element, Table};
use super::frame::{EQUAL_LOSS, Frame};
use super::table::Comparison;
use crate::recipe::Stage;
use crate::words::text::{and, ratio};

/// Counts that differ by less than this share are not reported as a change.
const SAME: f64 = 0.05;
/// Nor is a stall of less than this share of a step.
const NEGLIGIBLE: f64 = 0.005;
/// What is counted before and after a stage.
const COUNTED: [(&str, &str); 10] = [
    ("trace_kernels", "kernels a step"),
    ("trace_busy", "share of the step that kernels take"),
    ("trace_copies_to_device", "copies to the device"),
    ("trace_bytes_to_device", "bytes to the device"),
    ("trace_copies_to_host", "copies to the host"),
    ("trace_bytes_to_host", "bytes to the host"),
    ("stall_s_median", "stall a step"),
    ("padding_share", "share of padding"),
    ("steps", "steps for the samples"),
    ("live_peak_bytes", "peak memory"),
];

/// The measured stages. A stage has the number of its line, from zero.
struct Ladder<'c> {
    comparison: &'c Comparison<'c>,
    stages: &'c [Stage],
    frame: &'c Frame,
    measured: Vec<usize>,
}

impl<'c> Ladder<'c> {
    fn new(comparison: &'c Comparison<'c>) -> Self {
        let stages = &comparison.recipe.report.ladder;
        let measured = comparison.having("tokens_per_second").take(stages.len()).collect();
        Self { comparison, stages, frame: &comparison.frame, measured }
    }

    /// How many times as many real tokens a second as another stage.
    fn gain(&self, stage: usize, other: usize) -> f64 {
        let time = |stage: usize| median(&for_a_token(self.comparison, stage)).expect("it was measured");
        time(other) / time(stage)
    }

    /// The gain, or why there is none.
    fn gained(&self, stage: usize, other: usize) -> String {
        match self.differ(stage, other) {
            true => ratio(self.gain(stage, other)),
            false if self.are_of_one_build(stage, other) => "not clear".into(),
            false => "other build".into(),
        }
    }

    /// Times of different builds are not compared.
    fn are_of_one_build(&self, stage: usize, other: usize) -> bool {
        are_of_one_build(self.comparison, [&[stage], &[other]])
    }

    /// What a paragraph says of two stages that do not differ.
    fn alike(&self, stage: usize, other: usize) -> &'static str {
        if self.are_of_one_build(stage, other) { "no clear difference to" } else { "not compared with" }
    }

    /// Whether the real tokens a second differ by more than chance.
    fn differ(&self, stage: usize, other: usize) -> bool {
        takes_longer(self.comparison, &[stage], &[other]) || takes_longer(self.comparison, &[other], &[stage])
    }

    fn written(&self, column: &str, stage: usize) -> String {
        self.frame.written(column, stage).unwrap_or_else(|| "–".into())
    }

    fn table(&self) -> Option<Table> {
        let &first = self.measured.first()?;
        self.comparison.table_in_order("ladder", |stage| {
            let before = self.measured.iter().rev().find(|&&before| before < stage);
            let own = match before {
                None => "–".into(),
                Some(&before) => self.gained(stage, before),
            };
            let total = if stage == first { ratio(1.0) } else { self.gained(stage, first) };
            vec![
                ("stage", format!("{}. {}", stage + 1, self.stages[stage].stage)),
                ("own gain", own),
                ("total gain", total),
            ]
        })
    }

    fn paragraph(&self, before: usize, stage: usize) -> String {
        let changes = self.changes(before, stage);
        let counted = match changes.is_empty() {
            true => "Nothing that was counted changed".into(),
            false => format!("Counted before and after: {}", changes.join("; ")),
        };
        let Stage { stage: name, why } = &self.stages[stage];
        let first = self.measured[0];
        let of_before =
            if before + 1 == stage { "the stage before".into() } else { format!("stage {}", before + 1) };
        let own = match self.differ(stage, before) {
            true => {
                format!("{} the real tokens a second of {of_before}", ratio(self.gain(stage, before)))
            }
            false => format!("{} {of_before}", self.alike(stage, before)),
        };
        let total = match self.differ(stage, first) {
            true => format!("{} the real tokens a second of the first", ratio(self.gain(stage, first))),
            false => format!("{} the first", self.alike(stage, first)),
        };
        let gained = if before == first { own } else { format!("{own}, and {total}") };
        format!(
            "{}. {name}: {why} {counted}. {} took {} instead of {}: {gained}.",
            stage + 1,
            if self.comparison.with_samplers() { "The run" } else { "The stage's step" },
            self.written("time_s", stage),
            self.written("time_s", before),
        )
    }

    /// What differs between two stages, of all that is counted.
    fn changes(&self, before: usize, stage: usize) -> Vec<String> {
        let change = |(column, what): (&str, &str)| {
            let [old, new] = [before, stage].map(|stage| self.frame.get(column, stage));
            let (old, new) = old.zip(new)?;
            // Microseconds of a queue are noise.
            let stalls = |stage: usize, stall: f64| {
                stall > NEGLIGIBLE * self.frame.get("step_s_median", stage).unwrap_or_default()
            };
            let noise = column == "stall_s_median" && !stalls(before, old) && !stalls(stage, new);
            let [was, is] = [before, stage].map(|stage| self.written(column, stage));
            let differs = (old - new).abs() > SAME * old.abs().max(new.abs()) && was != is;
            (differs && !noise).then(|| format!("{what} {was}, then {is}"))
        };
        COUNTED.into_iter().filter_map(change).collect()
    }
}

/// The gain of all stages together, for the summary; `None` with fewer than two.
pub fn sentence(comparison: &Comparison) -> Option<String> {
    let ladder = Ladder::new(comparison);
    let (&first, &last) = (ladder.measured.first()?, ladder.measured.last()?);
    // Stages of different builds are not compared.
    if last == first || builds(comparison, &ladder.measured).len() > 1 {
        return None;
    }
    let clear = ladder.measured.windows(2).filter(|pair| ladder.differ(pair[1], pair[0]));
    let gains = clear.map(|pair| (ladder.gain(pair[1], pair[0]), pair[1])).filter(|(gain, _)| *gain > 1.0);
    let largest = match gains.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((gain, most)) => {
            format!("the largest gain of one stage is {} by {}", ratio(gain), ladder.stages[most].stage)
        }
        None => "no stage has a clear gain".into(),
    };
    let time = |stage: usize| ladder.frame.get(EQUAL_LOSS, stage);
    let learned = time(first).zip(time(last)).map_or(String::new(), |(slow, fast)| {
        let reaching = || ladder.measured.iter().filter(|stage| time(**stage).is_some());
        let loss = reaching().filter_map(|&stage| ladder.frame.get("train_loss_final", stage));
        let who = match (reaching().count(), ladder.stages.len()) {
            (some, all) if some == all => "All stages".to_string(),
            (some, all) => format!("{some} of {all} stages"),
        };
        format!(
            " {who} reach a training loss of {:.2} nats, the last after {} and the first after {}, {} as long. Stages make \
             unequal numbers of updates from the same samples, at one learning rate.",
            loss.fold(0.0, f64::max),
            ladder.written(EQUAL_LOSS, last),
            ladder.written(EQUAL_LOSS, first),
            ratio(slow / fast)
        )
    });
    let missing = (0..ladder.stages.len()).filter(|stage| !ladder.measured.contains(stage));
    let missing: Vec<String> = missing.map(|stage| format!("“{}”", ladder.stages[stage].stage)).collect();
    let (all, left_out) = match missing.as_slice() {
        [] => ("All stages", String::new()),
        missing => {
            let has = if missing.len() == 1 { "has" } else { "have" };
            ("The other stages", format!(" {} {has} no result.", and(missing)))
        }
    };
    let name = &ladder.stages[first].stage;
    let together = match ladder.differ(last, first) {
        true => {
            let tokens = |stage: usize| comparison.lines[stage].cell.train.tokens_of_a_step();
            let [is, was] = [last, first].map(|stage| match comparison.with_samplers() {
                true => ladder.written("tokens_per_second", stage),
                false => {
                    let of = if tokens(last) == tokens(first) {
                        "a step".into()
                    } else {
                        format!("{} tokens", tokens(stage))
                    };
                    format!("{} for {of}", ladder.written("step_s_median", stage))
                }
            });
            let gain = ratio(ladder.gain(last, first));
            format!(
                "{all} together train on {gain} the real tokens a second of {name}, {is} instead of {was}"
            )
        }
        false => {
            format!("{all} together train on no clearly different number of real tokens a second than {name}")
        }
    };
    Some(format!("{together}; {largest}.{learned}{left_out}"))
}

/// Nothing without `[[report.ladder]]`.
pub fn elements(comparison: &Comparison) -> Vec<Element> {
    let ladder = Ladder::new(comparison);
    let Some(table) = ladder.table() else { return Vec::new() };
    let first = ladder.measured[0];
    let Stage { stage, why } = &ladder.stages[first];
    let mut out = vec![Element::heading("The ladder"), Element::Table(table)];
    out.push(Element::paragraph(format!("{}. {stage}: {why}", first + 1)));
    let pairs = ladder.measured.windows(2);
    out.extend(pairs.map(|pair| Element::paragraph(ladder.paragraph(pair[0], pair[1]))));
    if comparison.having("trace_s").next().is_none() {
        out.push(Element::paragraph(
            "No stage was traced, so kernels and copies are not counted here; on a GPU \
             `runner run --trace --force` records them.",
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::testing::{language_recipe, loading_row, step_trace, write_traces};
    use super::*;
    use crate::report::timelines::Timelines;
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

    fn text(elements: &[Element]) -> String {
        serde_json::to_string(elements).expect("elements are plain data")
    }

    #[test]
    fn a_stage_is_reported_with_its_gains_and_counts() {
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
        // The second has one copy to the device fewer.
        let trace = step_trace();
        write_traces(folder.path(), rows.iter().zip([&trace[..], &trace[1..]]));
        let mut comparison = Comparison::new(&recipe, &rows);
        Timelines::default().add_to(&mut comparison);
        let untraced = text(&elements(&comparison));
        assert!(untraced.contains("No stage was traced"), "{untraced}");
        let timelines = Timelines::read(folder.path(), &comparison).expect("readable traces");
        timelines.add_to(&mut comparison);
        assert_eq!(comparison.methods, ["plain", "prefetching"]);
        let text = text(&elements(&comparison));
        for part in [
            "1. plain: As one first writes it.",
            "2. prefetching: The loop waited. Counted before and after:",
            "copies to the device 2, then 1",
            "stall a step 100 ms, then 10.0 µs",
            "The run took 2.00 s instead of 4.00 s: 2.00x the real tokens",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("kernels a step 3"), "{text}");
        let sentence = sentence(&comparison).expect("two stages");
        assert!(
            sentence.contains("2.00x the real tokens a second of plain, 500 instead of 250"),
            "{sentence}"
        );
    }

    #[test]
    fn without_stages_there_is_no_ladder() {
        let recipe = language_recipe("");
        let comparison = Comparison::new(&recipe, &[]);
        assert!(elements(&comparison).is_empty());
    }

    /// Stages stand in their order also where one goes back to an earlier size, and those without a result are named.
    #[test]
    fn stages_keep_their_order_and_those_without_a_result_are_named() {
        let sizes = LADDER.replace("\"data.num_workers\" = [0, 1]", "\"train.batch_size\" = [4, 8, 2]");
        let third = "[[report.ladder]]\nstage = \"less\"\nwhy = \"Fewer at once.\"\n";
        let recipe = language_recipe(&format!("{sizes}{third}"));
        let row = |cell| loading_row(cell, 2.0, &[500, 500], 1000, 0);
        let rows: Vec<Row> = recipe.cells.iter().map(row).collect();
        let mut comparison = Comparison::new(&recipe, &rows);
        Timelines::default().add_to(&mut comparison);
        let Some(Element::Table(table)) = elements(&comparison).into_iter().nth(1) else {
            panic!("no table")
        };
        let stages: Vec<&str> = table.rows.iter().map(|row| row[0].as_str()).collect();
        assert_eq!(stages, ["1. plain", "2. prefetching", "3. less"]);
        assert!(sentence(&comparison).unwrap().starts_with("All stages together"));

        let without = [rows[0].clone(), rows[2].clone()];
        let mut comparison = Comparison::new(&recipe, &without);
        Timelines::default().add_to(&mut comparison);
        let said = sentence(&comparison).unwrap();
        assert!(said.starts_with("The other stages together"), "{said}");
        assert!(said.ends_with("“prefetching” has no result."), "{said}");
        assert!(text(&elements(&comparison)).contains("no clear difference to stage 1"));
    }
}
